"""The checker of annotated shapes that tests install; a whole number may stand for a float, as everywhere in Python."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
