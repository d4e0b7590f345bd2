"""protodepth completion"""

import contextlib
import dataclasses
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Union, get_type_hints

import tyro

from protodepth.cli import help as helptext

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Completion:
    """Print a script with which the shell completes commands and their options.  Write it where the shell looks."""

    shell: tyro.conf.Positional[str]
    """The shell that you use."""

    def run(self) -> None:
        from protodepth.errors import UnknownNameError

        if self.shell not in SHELLS:
            raise UnknownNameError("shell", self.shell, SHELLS)
        with contextlib.suppress(SystemExit):  # how tyro ends after printing
            tyro.cli(_every_command(), prog="protodepth", args=["--tyro-print-completion", self.shell])


def _every_command() -> Any:
    """One type of all commands, from which tyro makes the script.  ``bench`` completes its options, not its words."""
    from protodepth.cli.main import COMMANDS

    tree: dict[str, Any] = {}
    for name, (module, kind, text) in COMMANDS.items():
        first, _, second = name.partition(" ")
        command = _plain(getattr(import_module(module), kind), text)
        if not second:
            tree[first] = command
        elif isinstance(tree.setdefault(first, {}), dict):
            tree[first][second] = command
    return _union(tree)


def _plain(kind: type, text: str) -> type:
    """The command's fields with one line of text each: tyro takes the second line of a text for another answer."""
    hints = get_type_hints(kind, include_extras=True)
    texts = {option.name: option.text for option in helptext.options(kind)}
    fields: list[Any] = []
    for field in dataclasses.fields(kind):
        hint: Any = hints[field.name]
        described = Annotated[hint, tyro.conf.arg(help=texts[field.name])]  # type: ignore[valid-type]
        fields.append((field.name, described, dataclasses.field(default=field.default)))
    made = dataclasses.make_dataclass(kind.__name__, fields, kw_only=True)
    made.__doc__ = text
    return made


def _union(tree: dict[str, Any]) -> Any:
    """A group of one command (``recipe show``) stands for it: a union of one is no choice to tyro."""
    alone = {
        name: next(iter(kind.values())) for name, kind in tree.items() if isinstance(kind, dict) and len(kind) == 1
    }
    parts = ((_union(k) if isinstance(k, dict) else k, name) for name, k in {**tree, **alone}.items())
    return Union[tuple(Annotated[kind, tyro.conf.subcommand(name)] for kind, name in parts)]  # noqa: UP007  of a tuple
