"""Configuration is Python: frozen dataclasses, in and out of TOML, with overrides from the command line."""

import dataclasses
import math
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import tomli_w
from pydantic import TypeAdapter, ValidationError

from protodepth.errors import ConfigError, UnknownNameError
from protodepth.storage.files import write_bytes

T = TypeVar("T")
MOST_SAID = 300  # letters of a value that a message repeats


def to_dict(config: Any) -> dict[str, Any]:
    """A frozen dataclass as plain values; None is left out (TOML has no null),
    so a field can be None only if that is its default.
    """

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f: getattr(value, f.name) for f in dataclasses.fields(value)}
            for f, held in fields.items():
                if held is None and f.default is not None:
                    raise ConfigError(
                        f"{f.name}=None cannot be saved: leave it out, or give a value (inf for no limit)"
                    )
            return {f.name: plain(held) for f, held in fields.items() if held is not None}
        if isinstance(value, dict):
            return {str(k): plain(v) for k, v in value.items() if v is not None}
        if isinstance(value, (tuple, list)):
            return [plain(v) for v in value]
        return value

    return plain(config)


def from_dict(kind: type[T], values: dict[str, Any], where: str = "configuration") -> T:
    """A frozen dataclass from plain values, as TOML has them, all checked; the message names the field."""
    _check_names(kind, values, where)
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        given = repr(first.get("input"))
        given = given if len(given) <= MOST_SAID else f"{given[:MOST_SAID]}..."
        raise ConfigError(f"{where[:MOST_SAID]}: {field or 'value'}: {first['msg']} (got {given})") from None


def _check_names(kind: Any, values: Any, where: str) -> None:
    """A misspelt setting must not be ignored."""
    if not dataclasses.is_dataclass(kind) or not isinstance(values, dict):
        return
    types = get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    for name, value in values.items():
        if name not in names:
            raise ConfigError(f"{where}: unknown setting {name!r}; choose one of: {', '.join(names)}")
        _check_names(types[name], value, f"{where}: {name}")


def write(config: Any, path: Path) -> None:
    """The resolved configuration as TOML, saved beside what it made."""
    write_bytes(path, tomli_w.dumps(to_dict(config)).encode())


def read_values(path: Path) -> dict[str, Any]:
    """The plain values of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:  # also a number of 5000 digits, brackets 10,000 deep
        raise ConfigError(f"{path} is not readable TOML: {error}") from None


def read(kind: type[T], path: Path) -> T:
    """A configuration (a frozen dataclass) from a TOML file."""
    return from_dict(kind, read_values(path), str(path))


def parse_value(text: str) -> Any:
    """A command-line value as TOML reads it; what is not TOML is a string.

    >>> parse_value("3e-2"), parse_value("[1, 2]"), parse_value("true"), parse_value("cosine")
    (0.03, [1, 2], True, 'cosine')
    """
    if text == "inf":
        return math.inf
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def override(config: T, settings: tuple[str, ...]) -> T:
    """``key.sub=value`` settings applied to a frozen dataclass."""
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting!r}: expected key=value, for example --set schedule.steps=100")
        config = _replace(config, path.split("."), parse_value(text), setting)
    return config


def _replace(config: Any, keys: list[str], value: Any, setting: str) -> Any:
    key, rest = keys[0], keys[1:]
    if isinstance(config, dict):
        return {**config, key: _replace(config.get(key, {}), rest, value, setting) if rest else value}
    names = tuple(f.name for f in dataclasses.fields(config)) if dataclasses.is_dataclass(config) else ()
    if key not in names:
        raise UnknownNameError(f"setting in --set {setting}", key, names)
    if rest:
        return dataclasses.replace(config, **{key: _replace(getattr(config, key), rest, value, setting)})
    values = {f: getattr(config, f) for f in names} | {key: value}
    return from_dict(type(config), values, f"--set {setting}")
