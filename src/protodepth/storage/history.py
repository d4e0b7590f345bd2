"""How a domain came to be: what its folder says of its making, for lists, cards and whoever receives it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

VERSIONS = ("protodepth", "torch", "python", "machine")  # stand beside the other entries in a file
TEXT, COUNT, NUMBER, TABLE = (str,), (int,), (int, float), (dict,)
KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("source", "when", "origin", "file", "stored_as"), TEXT),
    **dict.fromkeys(("frames", "steps", "kept_step"), COUNT),
    **dict.fromkeys(("data", "recipe", "held_out_error_mm", "bad_frames", "described"), TABLE),
    "seconds": NUMBER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """None = not recorded.  Adapting writes most of it, training a base its recipe, the others little.

    >>> History.from_json({"source": "walk", "frames": 15, "torch": "2.13"}).to_json()
    {'source': 'walk', 'frames': 15, 'torch': '2.13'}
    """

    source: str | None = None  # the data argument that it was learned from, without folders
    when: str | None = None  # ISO 8601, UTC
    data: dict[str, Any] | None = None  # what the data is: ``Domain.identity``
    recipe: dict[str, Any] | None = None  # of a base
    frames: int | None = None  # learned from
    steps: int | None = None  # made
    kept_step: int | None = None  # whose prototypes were kept
    seconds: float | None = None
    held_out_error_mm: dict[str, float] | None = None  # before and after, at sparse points that were not shown
    bad_frames: dict[str, str] | None = None  # left out, with the reason
    described: "History | None" = None  # of a base: what its descriptor is from
    origin: str | None = None  # where prototypes that were not learned here are from,
    file: str | None = None  # the file they were in,
    stored_as: str | None = None  # and their name in it
    versions: dict[str, str] | None = None  # what it was made with
    more: dict[str, Any] = field(default_factory=dict)  # of another version: kept and written again, not read

    @property
    def learned_from(self) -> str:
        """In a word; empty if nothing is known.

        >>> History(data={"source": "worlds", "world": "street"}).learned_from
        'worlds: street'
        """
        data = self.data or {}
        identity = ": ".join(str(data[key]) for key in ("source", "dataset", "world", "name", "path") if key in data)
        published = ": ".join(part for part in (self.origin, self.file, self.stored_as) if part)
        return str(self.source or (self.recipe or {}).get("data") or published or identity)

    def to_json(self) -> dict[str, Any]:
        """As it stands in ``meta.json``: what is known, in one flat table."""
        plain = (f.name for f in fields(self) if f.name not in ("described", "versions", "more"))
        known = {name: value for name in plain if (value := getattr(self, name)) is not None}
        described = {} if self.described is None else {"described": self.described.to_json()}
        return {**known, **described, **(self.versions or {}), **self.more}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "History":
        """Of any version: an entry with another name or kind than ours goes to ``more``."""
        known: dict[str, Any] = {name: v for name, v in values.items() if isinstance(v, KINDS.get(name, ()))}
        versions = {name: v for name, v in values.items() if name in VERSIONS and isinstance(v, str)}
        more = {name: v for name, v in values.items() if name not in known and name not in versions}
        if "described" in known:
            known["described"] = cls.from_json(known["described"])
        return cls(**known, versions=versions or None, more=more)
