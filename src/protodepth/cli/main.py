"""The command line: parses, prints, exits.  Each command is a thin verb over a function that a notebook can call.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once.
"""

import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

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
    "evaluate": ("protodepth.cli.evaluate", "Evaluate", "errors of a model on data with ground truth"),
    "bench": ("protodepth.cli.bench", "Bench", "the paper's tables and figures by name"),
    "bench real": ("protodepth.cli.bench", "BenchReal", "your recordings: interpolation, a base, after adapting"),
    "tune": ("protodepth.cli.tune", "Tune", "choose hyper-parameters on val frames, equal trials for each method"),
    "report": ("protodepth.cli.report", "MakeReport", "one page from the results of runs"),
    "convert": ("protodepth.cli.convert", "Convert", "an official checkpoint becomes a model folder"),
    "export": ("protodepth.cli.export", "Export", "one graph for ONNX Runtime or OpenVINO, compared with PyTorch"),
    "data check": ("protodepth.cli.data", "DataCheck", "read every file and report every fault"),
    "data prepare": ("protodepth.cli.data", "DataPrepare", "write a manifest of a dataset"),
    "data example": ("protodepth.cli.data", "Example", "a small recording drawn from a built-in world"),
    "data preview": ("protodepth.cli.data", "DataPreview", "a picture of what the loader sees"),
    "speed": ("protodepth.cli.speed", "MeasureSpeed", "latency, memory, share of the machine's peak"),
    "app": ("protodepth.cli.app", "App", "a local page to look at depth and point clouds"),
    "doctor": ("protodepth.cli.doctor", "Doctor", "versions, device, threads, disk"),
}


def help_text() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, _, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: protodepth COMMAND ...        (protodepth COMMAND --help for its options)",
            "",
            "Unsupervised continual depth completion with prototypes.",
            "",
            *lines,
            "",
            "exit codes: 0 done, 2 bad input, 1 internal error, 130 interrupted, 143 ended by SIGTERM",
        ]
    )


def run(argv: list[str]) -> int:
    """Run one command line; returns the exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if argv[0] in ("-V", "--version"):
        from protodepth._version import __version__

        print(f"protodepth {__version__}")
        return 0
    name, rest = split(argv)
    if name is None:
        words = " ".join(argv[:2]) if argv[0] in {n.split()[0] for n in COMMANDS if " " in n} else argv[0]
        print(f"protodepth: unknown command {words!r}; choose one of: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return execute(name, rest)


def split(argv: list[str]) -> tuple[str | None, list[str]]:
    """The command (one or two words) and its arguments."""
    if " ".join(argv[:2]) in COMMANDS:
        return " ".join(argv[:2]), argv[2:]
    return (argv[0], argv[1:]) if argv[0] in COMMANDS else (None, argv)


def execute(name: str, arguments: list[str]) -> int:
    import tyro

    from protodepth.errors import ProtoDepthError

    module, kind, _ = COMMANDS[name]
    try:
        command = tyro.cli(getattr(import_module(module), kind), prog=f"protodepth {name}", args=arguments)
    except SystemExit as stop:  # tyro has printed what was wrong
        return stop.code if isinstance(stop.code, int) else 2
    try:
        with ending_by_signal():
            command.run()
    except ProtoDepthError as error:
        return fail(str(error), 2)
    except Terminated:
        return fail("ended by SIGTERM; run the same command again (train: with --resume) to go on", 143)
    except KeyboardInterrupt:
        return fail("interrupted; run the same command again (train: with --resume) to go on", 130)
    except BrokenPipeError:  # __main__ sees to the rest
        return 0
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        return fail(f"cannot read or write{where}: {error.strerror or error}", 2)
    except Exception:  # the last line of defence: say that it is our fault, with what we need to mend it
        traceback.print_exc()
        return fail("internal error: please report the lines above", 1)
    return 0


class Terminated(KeyboardInterrupt):
    """SIGTERM came where nothing else takes care of it."""


@contextmanager
def ending_by_signal() -> Iterator[None]:
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


def fail(message: str, code: int) -> int:
    print(f"protodepth: {message}", file=sys.stderr)
    return code
