"""Options that several commands share."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protodepth.model import ProtoDepth

DEFAULT_MODEL = "any-sensor"


def load_model(source: str, device: str | None = "cpu") -> "ProtoDepth":
    """``--model``: a folder, a bundled name, or a run folder with a model; no device: on a GPU if there is one."""
    from protodepth.progress import working

    with working(f"loading {source}"):
        from protodepth import distributed
        from protodepth.model import ProtoDepth

        place = distributed.device(device)
        return ProtoDepth.from_pretrained(model_folder(source)).to(place)


def model_folder(source: str) -> Path:
    """The folder that ``--model`` means."""
    from protodepth.storage.folders import resolve

    inside = Path(source) / "model"
    return inside if (inside / "config.json").exists() else resolve(source)


def start_of(model: str | None, out: Path, name: str) -> str:
    """What a new domain is added to: ``--model``, else the model in ``--out``, else the default."""
    if model is not None:
        check_out(model, out)
        return model
    known = _domains_in(out)
    if known is None:
        return DEFAULT_MODEL
    print(f"{out} exists: {name} is added to its domains ({', '.join(known) or 'none yet'})")
    return str(out)


def _domains_in(folder: Path) -> list[str] | None:
    """The names of the domains of a model folder; None if it is none."""
    from protodepth.storage.replace import described, domain_names, recover

    recover(folder)
    meta = described(folder, "model")
    return None if meta is None else domain_names(meta)


def check_out(source: str, out: Path) -> None:
    """``--out``: refuse to write a model over another one: its domains would be lost."""
    from protodepth.errors import ConfigError

    known = _domains_in(out)
    if known is not None and model_folder(source).resolve() != out.resolve():
        raise ConfigError(
            f"{out} holds another model than {source} (domains: {', '.join(known) or 'none yet'}), which would be "
            f"lost: --model {out} goes on with it, another --out leaves it as it is"
        )


def check_empty(out: Path) -> None:
    """``--out``: refuse to write a model that begins anew where one with domains is."""
    from protodepth.errors import ConfigError
    from protodepth.storage.replace import check_replaceable

    known = _domains_in(out)
    if known:
        raise ConfigError(
            f"{out} holds a model with domains {', '.join(known)}, which would be lost: give another --out"
        )
    check_replaceable(out)


def keep_notes(source: str) -> dict[str, Any]:
    """The notes of a model, for a command that writes a changed copy of it."""
    from protodepth.storage.files import read_description

    return dict(read_description(model_folder(source) / "config.json", "model").get("notes") or {})


def parse_size(text: str) -> tuple[int, int]:
    """``--size 480x640`` -> (480, 640)"""
    from protodepth.errors import ConfigError

    match = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6})", text)
    if not match:
        raise ConfigError(f"size {text!r}: expected HEIGHTxWIDTH, for example 480x640")
    return int(match[1]), int(match[2])


def words(values: tuple[str, ...]) -> tuple[str, ...]:
    """An option's words: ``("a,b", "c")`` -> (a, b, c), each once."""
    return tuple(dict.fromkeys(w for value in values for w in value.split(",") if w))


def parse_data(values: tuple[str, ...]) -> tuple[str, ...]:
    """``--data``: ``D2=x`` at its place, plain arguments in order."""
    from protodepth.errors import ConfigError

    named = {v[1]: v[3:] for v in values if len(v) > 3 and v[0] == "D" and v[1].isdigit() and v[2] == "="}
    if named and len(named) != len(values):
        raise ConfigError("--data: name all domains (D1=... D2=... D3=...) or none of them")
    if named and sorted(named) != [str(n + 1) for n in range(len(named))]:
        raise ConfigError(f"--data: expected D1, D2, D3 without a gap, got {', '.join('D' + n for n in sorted(named))}")
    return tuple(named[n] for n in sorted(named)) if named else values


def check_scale(scale: float | None) -> float | None:
    """``--scale``: a share of the published epochs."""
    from protodepth.errors import ConfigError

    if scale is not None and not 0 < scale <= 1:
        raise ConfigError(f"--scale {scale:g}: expected a number above 0 and at most 1")
    return scale


def pairs(values: tuple[str, ...]) -> dict[str, str]:
    """``--base NETWORK=FOLDER``, given several times, as a dict."""
    from protodepth.errors import ConfigError

    for value in values:
        if "=" not in value:
            raise ConfigError(f"--base {value}: expected NETWORK=FOLDER, for example kbnet=bases/kbnet")
    return dict(value.split("=", 1) for value in values)


def positive(name: str, value: int | None) -> int | None:
    """The value of an option that counts something: at least 1, or not given."""
    from protodepth.errors import ConfigError

    if value is not None and value < 1:
        raise ConfigError(f"--{name} must be at least 1, got {value}")
    return value
