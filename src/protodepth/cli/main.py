"""The command line: parses, prints, exits.  Each command is a thin verb over a function that a notebook can call.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once.
"""

import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from protodepth.cli import help as helptext

# command -> (module, class, one line of help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("protodepth.cli.demo", "Demo", "the whole story on built-in worlds, no download"),
    "predict": ("protodepth.cli.predict", "Predict", "dense depth for an image and sparse points"),
    "adapt": ("protodepth.cli.adapt", "Adapt", "learn a new domain from an unlabelled recording"),
    "domains list": ("protodepth.cli.domains", "ListDomains", "the domains of a model and how alike they are"),
    "domains show": ("protodepth.cli.domains", "ShowDomain", "everything about one domain"),
    "domains describe": ("protodepth.cli.domains", "DescribeBase", "learn the base's descriptor from data"),
    "domains export": ("protodepth.cli.domains", "ExportDomain", "one domain as a folder to share"),
    "domains import": ("protodepth.cli.domains", "ImportDomain", "add an exported domain to a model"),
    "domains rename": ("protodepth.cli.domains", "RenameDomain", "another name for a domain"),
    "domains remove": ("protodepth.cli.domains", "RemoveDomain", "delete a domain from a model"),
    "train": ("protodepth.cli.train", "Train", "run a recipe: a base network, or a method on a sequence"),
    "recipe show": ("protodepth.cli.recipe", "ShowRecipe", "every value of a recipe and where it is from"),
    "evaluate": ("protodepth.cli.evaluate", "Evaluate", "errors of a model, by ground truth or by hidden points"),
    "bench": ("protodepth.cli.bench", "Bench", "the paper's tables and figures by name"),
    "bench list": ("protodepth.cli.bench", "BenchList", "what bench can run"),
    "bench real": ("protodepth.cli.bench", "BenchReal", "your recordings: interpolation, a base, after adapting"),
    "tune": ("protodepth.cli.tune", "Tune", "choose hyper-parameters on val frames, equal trials for each method"),
    "report": ("protodepth.cli.report", "MakeReport", "one page from the results of runs"),
    "convert": ("protodepth.cli.convert", "Convert", "an official checkpoint becomes a model folder"),
    "export": ("protodepth.cli.export", "Export", "one graph for ONNX Runtime or OpenVINO, compared with PyTorch"),
    "data check": ("protodepth.cli.data", "DataCheck", "read every file and report every fault"),
    "data prepare": ("protodepth.cli.data", "DataPrepare", "list a dataset's frames once, so that it opens at once"),
    "data example": ("protodepth.cli.data", "Example", "a small recording drawn from a built-in world"),
    "data preview": ("protodepth.cli.data", "DataPreview", "a picture of what the loader sees"),
    "speed": ("protodepth.cli.speed", "MeasureSpeed", "latency, memory, share of the machine's peak"),
    "app": ("protodepth.cli.app", "App", "a local page to look at depth and point clouds"),
    "doctor": ("protodepth.cli.doctor", "Doctor", "versions, device, threads, disk"),
    "completion": ("protodepth.cli.completion", "Completion", "a script with which the shell completes commands"),
}
HELP = ("-h", "--help")


def _help_text(group: str = "") -> str:
    """All commands, or those of a group such as ``domains``."""
    chosen = {name: text for name, (_, _, text) in COMMANDS.items() if not group or name.startswith(f"{group} ")}
    width = max(map(len, chosen))
    lines = [f"  {name:<{width}}  {text}" for name, text in chosen.items()]
    command = f"{group} COMMAND" if group else "COMMAND"
    return "\n".join(
        [
            f"usage: protodepth {command} ...        (protodepth {command} --help for its options)",
            *(
                [
                    "",
                    "Dense depth from an image and sparse points; new places are learned without labels or forgetting.",
                ]
                if not group
                else []
            ),
            "",
            *lines,
            "",
            helptext.DOCUMENTS,
            "exit codes: 0 done, 2 bad input, 1 internal error, 130 interrupted, 143 ended by SIGTERM",
        ]
    )


def _groups() -> set[str]:
    """First words that are no command by themselves."""
    return {name.split()[0] for name in COMMANDS if " " in name} - set(COMMANDS)


def run(argv: list[str]) -> int:
    """Run one command line; returns the exit code."""
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    if not argv or argv[0] in HELP:
        print(_help_text())
        return 0
    if argv[0] in ("-V", "--version"):
        from protodepth._version import __version__

        print(f"protodepth {__version__}")
        return 0
    if argv[0] in _groups() and argv[1:2] and argv[1] in HELP:
        print(_help_text(argv[0]))
        return 0
    name, rest = split(argv)
    return _fail(_unknown_command(argv), 2) if name is None else execute(name, rest)


def split(argv: list[str]) -> tuple[str | None, list[str]]:
    """The command (one or two words) and its arguments."""
    if " ".join(argv[:2]) in COMMANDS:
        return " ".join(argv[:2]), argv[2:]
    return (argv[0], argv[1:]) if argv[0] in COMMANDS else (None, argv)


def _unknown_command(argv: list[str]) -> str:
    """What was meant, as far as that can be told."""
    inside = argv[0] in _groups()
    known = [name for name in COMMANDS if not inside or name.startswith(f"{argv[0]} ")]
    if inside and len(argv) == 1:
        return f"unknown command {argv[0]!r}: it needs a second word, one of: {', '.join(known)}"
    word = " ".join(argv[: 1 + inside])
    if inside:  # the first word is right: it would make any two alike
        close = helptext.similar(argv[1], [name.split()[1] for name in known]).replace("mean ", f"mean {argv[0]} ")
    else:
        both = helptext.similar(" ".join(argv[:2]), [name for name in COMMANDS if " " in name]) if argv[1:] else ""
        close = both or helptext.similar(word, [*COMMANDS, *_groups()])
    choices = f" choose one of: {', '.join(known)}" if inside or not close else ""
    return f"unknown command {word!r}:{close}{choices} (protodepth --help says what each does)"


def execute(name: str, arguments: list[str]) -> int:
    """Run one command; Ctrl-C and SIGTERM end it with a word at any moment, be it while it is read or imported."""
    try:
        with _ending_by_signal():
            return _execute(name, arguments)
    except Terminated:
        return _fail("ended by SIGTERM; run the same command again (train: with --resume) to go on", 143)
    except KeyboardInterrupt:
        return _fail("interrupted; run the same command again (train: with --resume) to go on", 130)


def _execute(name: str, arguments: list[str]) -> int:
    from protodepth.errors import ProtoDepthError

    module, class_name, _ = COMMANDS[name]
    kind = getattr(import_module(module), class_name)
    if any(word in HELP for word in arguments):
        print(helptext.command_help(name, kind, _below(name)))
        return 0
    fault = helptext.fault(name, kind, arguments)
    if fault:
        return _fail(fault, 2)
    import tyro

    try:
        command = tyro.cli(kind, prog=f"protodepth {name}", args=arguments)
    except SystemExit as stop:  # tyro has printed what was wrong
        return stop.code if isinstance(stop.code, int) else 2
    try:
        command.run()
    except ProtoDepthError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:  # __main__ sees to the rest
        return 0
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        return _fail(f"cannot read or write{where}: {error.strerror or error}", 2)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or re.search("allocate memory|out of memory", str(error)):
            return _fail(f"not enough memory: take smaller frames, or fewer together ({_line(error)})", 2)
        return _internal_error()
    except Exception:  # the last line of defence: say that it is our fault, with what we need to mend it
        return _internal_error()
    return 0


def _internal_error() -> int:
    traceback.print_exc()
    return _fail("internal error: please report the lines above", 1)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


class Terminated(KeyboardInterrupt):
    """SIGTERM came where nothing else takes care of it."""


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    """SIGTERM ends a command like Ctrl-C, with a word and with what ``finally`` has to put in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _below(name: str) -> list[tuple[str, str]]:
    """Commands of two words that begin with this one."""
    return [(other, text) for other, (_, _, text) in COMMANDS.items() if other.startswith(f"{name} ")]


def _fail(message: str, code: int) -> int:
    print(f"protodepth: {message}", file=sys.stderr)
    return code
