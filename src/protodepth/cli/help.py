"""What ``--help`` prints, read from the command itself: its fields are the options, the strings below them the texts.

Defaults are said in words, options stand in four groups, and each command has two examples.
"""

import ast
import dataclasses
import difflib
import inspect
import itertools
import shutil
import textwrap
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

DOCUMENTS = "documents: README.md and the folder docs/ of the source; docs/own_data.md is about your own recordings"

# Which group an option stands in, by its name; whatever is not here chooses what is learned or measured.
GROUPS = {
    "input": "image sparse intrinsics data split model domain selection unknown depth_unit sample path raw folder "
    "checkpoint network pose rotation depth_range prototypes predictions outside kind scale_by scale runs dataset name "
    "world shell fix experiments agnostic calibrate",
    "output": "markdown out format write colormap rerun json to images dry_run force rows resume",
    "learning": "",
    "machine": "device threads batch_size engine workers on port open warmup seconds",
}
OF_COMMAND = {  # where the same name means another thing
    ("adapt", "name"): "output",
    ("domains describe", "name"): "output",
    ("domains import", "name"): "output",
    ("recipe show", "name"): "input",
    ("speed", "runs"): "machine",
    ("speed", "size"): "input",
    ("export", "size"): "output",
    ("export", "precision"): "output",
    ("data example", "size"): "output",
    ("data example", "frames"): "output",
    ("data example", "seed"): "input",
    ("data prepare", "set"): "input",
    ("bench real", "frames"): "input",
    ("bench real", "patterns"): "input",
    ("convert", "preset"): "input",
}
METAVARS = {
    "model": "MODEL", "data": "DATA", "name": "NAME", "to": "NAME", "domain": "NAME", "intrinsics": "K", "size": "HxW",
    "depth_unit": "UNIT", "sample": "SAMPLER", "device": "DEVICE", "out": "PATH", "backbone": "NETWORK",
    "network": "NETWORK", "method": "METHOD", "methods": "METHOD", "seeds": "N", "set": "KEY=VALUE",
    "set_base": "KEY=VALUE", "base": "NETWORK=FOLDER", "experiments": "NAME", "sequence": "SEQUENCE",
    "recipe": "RECIPE", "preset": "PRESET", "patterns": "PATTERN", "world": "WORLD", "dataset": "DATASET",
    "scale": "X", "outside": "NAME", "split": "train|val|test", "shell": "bash|zsh|fish", "raw": "DOWNLOAD",
    "checkpoint": "CHECKPOINT", "calibrate": "DATA", "colormap": "MAP", "scaffold": "DATA",
}  # fmt: skip

MEANT = {  # what other programs call our options
    "--depth": ("--sparse", "--depth-unit"),
    "--rgb": ("--image",),
    "--input": ("--image", "--data"),
    "--camera": ("--intrinsics",),
    "--unit": ("--depth-unit",),
    "--output": ("--out",),
    "--checkpoint": ("--model",),
    "--weights": ("--model",),
    "--lr": ("--rate",),
    "--gpu": ("--device",),
}


@dataclass(frozen=True)
class Option:
    """One option or argument of a command, as the help says it."""

    name: str  # the field's
    metavar: str  # empty for a switch
    text: str
    positional: bool
    required: bool
    hint: Any = str  # the type of its value
    switch: bool | None = None  # its default, of a switch

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Every way to write it."""
        if self.positional:
            return ()
        return (self.flag, self.flag.replace("--", "--no-", 1)) if self.switch is not None else (self.flag,)

    @property
    def head(self) -> str:
        if self.positional:
            return self.metavar
        return f"{self.flag} {self.metavar}".strip() if self.switch is not True else self.flags[1]


def options(kind: type) -> list[Option]:
    """The options of a command's class, in their order."""
    hints, texts = get_type_hints(kind, include_extras=True), _field_texts(kind)
    rows = []
    for field in dataclasses.fields(kind):
        hint, positional, given = _unwrap(hints[field.name])
        required = field.default is MISSING and field.default_factory is MISSING
        switch = field.default if hint is bool and isinstance(field.default, bool) else None
        metavar = "" if switch is not None else given or METAVARS.get(field.name) or _metavar_of(hint)
        metavar += " ..." if get_args(hint)[-1:] == (Ellipsis,) and not metavar.endswith("...") else ""
        text = _with_default(texts.get(field.name, ""), field.default, required)
        rows.append(Option(field.name, metavar, text, positional, required, hint, switch))
    return rows


def _unwrap(hint: Any) -> tuple[Any, bool, str]:
    """(the plain type without None, whether it is given without its name, its own word for the value)."""
    positional, metavar = False, ""
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        positional = any(str(mark) == "Positional" for mark in marks)
        metavar = next((str(mark.metavar) for mark in marks if getattr(mark, "metavar", None)), "")
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(kind for kind in get_args(hint) if kind is not type(None))
    return hint, positional, metavar


def _metavar_of(hint: Any) -> str:
    """What stands for a value of this type.

    >>> _metavar_of(int), _metavar_of(Literal["a", "b"]), _metavar_of(tuple[float, float])
    ('N', 'a|b', 'X X')
    """
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        return _metavar_of(kinds[0]) + " ..." if kinds[-1] is Ellipsis else " ".join(map(_metavar_of, kinds))
    return {int: "N", float: "X", Path: "PATH"}.get(hint, "TEXT")


def _with_default(text: str, default: Any, required: bool) -> str:
    """The text with its default in words, once."""
    empty = required or default is None or default is MISSING or default == () or isinstance(default, bool)
    if empty or "(default:" in text:
        return text
    words = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    words = f"{default:g}" if isinstance(default, float) else words
    return f"{text.rstrip('.')} (default: {words})." if text.endswith(".") else f"{text} (default: {words})"


def _field_texts(kind: type) -> dict[str, str]:
    """The string below each field of a class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            texts[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return texts


def _group_of(command: str, option: Option) -> str:
    if (command, option.name) in OF_COMMAND:
        return OF_COMMAND[command, option.name]
    return next((group for group, names in GROUPS.items() if option.name in names.split()), "learning")


def command_help(name: str, kind: type, below: Iterable[tuple[str, str]] = ()) -> str:
    """The whole help of one command; ``below``: its sub-commands with what they do."""
    all_options = options(kind)
    lines = [_usage(name, all_options), "", *_paragraphs(inspect.getdoc(kind) or "")]
    subcommands = list(below)
    if subcommands:
        lines += ["", "commands", *_table(subcommands)]
    for group in GROUPS:
        rows = [(o.head, _required(o)) for o in all_options if _group_of(name, o) == group]
        if rows:
            lines += ["", group, *_table(rows)]
    examples = [f"  protodepth {line}" for line in EXAMPLES.get(name, ())]
    return "\n".join([*lines, *(["", "examples", *examples] if examples else []), "", DOCUMENTS])


def _required(option: Option) -> str:
    return f"{option.text} Required." if option.required and not option.positional else option.text


def _usage(name: str, all_options: Sequence[Option]) -> str:
    """What must be given, and that more can be."""
    needed = [o.head for o in all_options if o.required]
    more = ["[options]"] if any(not o.required for o in all_options) else []
    return " ".join(["usage: protodepth", name, *needed, *more])


def _width() -> int:
    return max(60, min(110, shutil.get_terminal_size((100, 24)).columns))


def _paragraphs(text: str) -> Iterator[str]:
    for number, part in enumerate(text.split("\n\n")):
        yield from [""] * (number > 0)
        yield from textwrap.wrap(" ".join(part.split()), _width(), break_on_hyphens=False)


def _table(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Two columns; a long head has a line of its own."""
    left = min(24, max(len(head) for head, _ in rows)) + 4
    for head, text in rows:
        body = textwrap.wrap(text, _width() - left, break_on_hyphens=False) or [""]
        if len(head) + 4 > left:
            yield f"  {head}"
        else:
            yield f"{'  ' + head:<{left}}{body.pop(0)}".rstrip()
        yield from (" " * left + line for line in body)


def similar(word: str, known: Iterable[str]) -> str:
    """`` Did you mean x?``, or nothing.

    >>> similar("predct", ["predict", "adapt"])
    ' did you mean predict?'
    """
    close = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f" did you mean {close[0]}?" if close else ""


def fault(name: str, kind: type, arguments: Sequence[str]) -> str | None:
    """Why these arguments cannot be of this command: an option that it has not, a value of another kind, or one that
    is missing.
    """
    all_options = options(kind)
    flags = {flag: option for option in all_options for flag in option.flags}
    given = list(_written(arguments))
    for word, values in given:
        if word.startswith("--tyro"):
            continue
        if word not in flags:
            other = next((flag for flag in MEANT.get(word, ()) if flag in flags), None)
            meant = f" did you mean {other}?" if other else similar(word, flags)
            return f"{name} has no option {word}:{meant or f' see protodepth {name} --help'}"
        reason = _wrong_value(flags[word], values)
        if reason:
            return f"{name} {word} {reason} (protodepth {name} --help)"
    places, words = [o for o in all_options if o.positional], _without_names(arguments, flags)
    if len(words) > len(places) and not any(o.metavar.endswith("...") for o in places):
        needed = " ".join(o.head for o in all_options if o.required and not o.positional) or "options"
        first = f"{name} takes no bare word {words[len(places)]!r}"
        return f"{first}: write options by name, as {needed} (protodepth {name} --help)"
    missing = [o for o in places[len(words) :] if o.required]
    missing += [o for o in all_options if o.required and not o.positional and o.flag not in dict(given)]
    needs = "; ".join(f"{o.head} ({o.text.rstrip('.')})" for o in missing)
    return f"{name} needs {needs}" if missing else None


def _written(arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each option with the values that follow it.

    >>> list(_written(["folder", "--a", "1", "2", "--b_c=3"]))
    [('--a', ['1', '2']), ('--b-c', ['3'])]
    """
    starts = [n for n, word in enumerate(arguments) if word.startswith("--") and word != "--"]
    for start, end in itertools.pairwise([*starts, len(arguments)]):
        flag, equals, value = arguments[start].partition("=")
        yield flag.replace("_", "-"), [*([value] if equals else []), *arguments[start + 1 : end]]


def _without_names(arguments: Sequence[str], flags: dict[str, Option]) -> list[str]:
    """The words that belong to no option: those before the first one, and what an option leaves of the others."""
    start = next((n for n, word in enumerate(arguments) if word.startswith("--")), len(arguments))
    words = list(arguments[:start])
    for flag, values in _written(arguments):
        option = flags.get(flag)
        parts = get_args(option.hint) if option is not None and get_origin(option.hint) is tuple else (str,)
        if option is not None and parts[-1] is not Ellipsis:
            words += values[0 if option.switch is not None else len(parts) :]
    return words


def _wrong_value(option: Option, values: Sequence[str]) -> str | None:
    """What is wrong with the values of an option, as far as its type says; a single one takes the first."""
    several = get_origin(option.hint) is tuple
    if option.switch is not None:
        return None
    if not values:
        return None if several else f"needs a value, {option.metavar}"
    kind = get_args(option.hint)[0] if several else option.hint
    for value in values if several else values[:1]:
        if get_origin(kind) is Literal and value not in map(str, get_args(kind)):
            choices = [str(choice) for choice in get_args(kind)]
            return f"{value}:{similar(value, choices)} choose one of: {', '.join(choices)}"
        if kind in (int, float) and not _is_number(kind, value):
            return f"{value}: expected a {'whole number' if kind is int else 'number'}"
    return None


def _is_number(kind: type, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("demo", "demo --sequence indoor --out demo-indoor"),
    "predict": (
        "predict --image a.png --sparse a_depth.png --depth-unit mm --intrinsics 615,615,320,240 --out result",
        "predict --data my_recording --model my_model --out result",
    ),
    "adapt": (
        "adapt --data my_recording --name warehouse --out my_model",
        "adapt --data my_recording --name warehouse --out my_model --minutes 20 --dry-run",
    ),
    "domains list": ("domains list", "domains list --model my_model"),
    "domains show": ("domains show --name warehouse --model my_model", "domains show --name room --model runs/indoor"),
    "domains describe": (
        "domains describe --data worlds:room --model my_model",
        "domains describe --data my_recording --model my_model --name home --out described",
    ),
    "domains export": (
        "domains export --name warehouse --model my_model --out warehouse",
        "domains export --name room --model runs/indoor --out parcels/room",
    ),
    "domains import": (
        "domains import --folder warehouse --model my_model",
        "domains import --folder warehouse --model my_model --name hall --out another_model",
    ),
    "domains rename": (
        "domains rename --name warehouse --to hall --model my_model",
        "domains rename --name warehouse --to hall --model my_model --out another_model",
    ),
    "domains remove": (
        "domains remove --name warehouse --model my_model",
        "domains remove --name warehouse --model my_model --out smaller_model",
    ),
    "train": (
        "train --recipe worlds-tiny --out runs/base",
        "train --recipe indoor --method ewc --set schedule.steps=200 --out runs/ewc",
    ),
    "recipe show": ("recipe show paper-indoor", "recipe show all --markdown"),
    "evaluate": (
        "evaluate --model my_model --data my_recording",
        "evaluate --model my_model --data my_recording --domain base --out errors.json",
    ),
    "bench": (
        "bench indoor --methods finetune protodepth --out bench",
        "bench all --dry-run",
    ),
    "bench list": ("bench list", "bench list > experiments.txt"),
    "bench real": (
        "bench real my_recording --no-adapt",
        "bench real 'my_recording?depth_unit=mm' another --patterns 500 lidar --out bench-real",
    ),
    "tune": ("tune --sequence indoor", "tune --sequence outdoor --methods ewc replay --trials 4 --out tuning"),
    "report": ("report runs/indoor", "report runs/ewc runs/protodepth --out both.html"),
    "convert": (
        "convert kbnet kbnet-void.pth --preset void --out kbnet-void",
        "convert voiced voiced.pth --preset void --pose posenet.pth --out voiced-void",
    ),
    "export": ("export --out model.onnx", "export --model my_model --domain warehouse --size 240x320 --out model.xml"),
    "data check": ("data check my_recording", "data check my_recording --depth-unit mm --fix"),
    "data prepare": (
        "data prepare kitti /data/kitti prepared/kitti",
        "data prepare void /data/void prepared/void --set density=500 --workers 4",
    ),
    "data example": ("data example my_recording", "data example my_recording --world highway --frames 60"),
    "data preview": ("data preview my_recording", "data preview worlds:street --rows 6 --out street.png"),
    "speed": ("speed", "speed --model my_model --size 240x320 --engine onnx --json speed.json"),
    "app": ("app --open", "app --model my_model --port 8000"),
    "doctor": ("doctor", "doctor > doctor.txt"),
    "completion": (
        "completion bash > ~/.local/share/bash-completion/completions/protodepth",
        "completion zsh > ~/.zfunc/_protodepth",
    ),
}
