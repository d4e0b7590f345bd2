"""The command line: exit codes and one message, whatever happens inside."""

import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import tyro

from protodepth import __main__
from protodepth.cli import main
from protodepth.errors import DataError, TrainingDiverged


def command(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """A command ``try`` that does one thing."""

    @dataclass(frozen=True)
    class Try:
        """A try."""

        number: int = 3
        """A number."""

        def run(self) -> None:
            action()

    module = types.ModuleType("protodepth_try")
    module.Try = Try  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "protodepth_try", module)
    monkeypatch.setitem(main.COMMANDS, "try", ("protodepth_try", "Try", "a try"))


def raises(error: BaseException) -> Callable[[], object]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("frame 3 is black"), 2, "protodepth: frame 3 is black\n"),
        (TrainingDiverged("not finite"), 2, "protodepth: not finite\n"),
        (
            FileNotFoundError(2, "No such file or directory", "a.png"),
            2,
            "protodepth: cannot read or write a.png: No such file or directory\n",
        ),
        (OSError(28, "No space left on device"), 2, "protodepth: cannot read or write: No space left on device\n"),
        (
            KeyboardInterrupt(),
            130,
            "protodepth: interrupted; run the same command again (train: with --resume) to go on\n",
        ),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    command(monkeypatch, raises(error))
    assert main.run(["try"]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", message)


def test_our_own_faults_are_exit_1_with_what_is_needed_to_mend_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(monkeypatch, raises(ZeroDivisionError("oops")))
    assert main.run(["try"]) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in err
    assert err.endswith("protodepth: internal error: please report the lines above\n")


def test_a_command_that_works_is_exit_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command(monkeypatch, lambda: print("done"))
    assert main.run(["try", "--number", "4"]) == 0
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize("arguments", [["--number", "many"], ["--nubmer", "3"], ["extra"]])
def test_wrong_options_are_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    ran: list[int] = []
    command(monkeypatch, lambda: ran.append(1))
    assert main.run(["try", *arguments]) == 2
    assert ran == []
    assert capsys.readouterr().err


@pytest.mark.parametrize("argv", [["fly"], ["data", "fly"], ["data"], ["--colour"]])
def test_an_unknown_command_lists_the_known_ones(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert main.run(argv) == 2
    err = capsys.readouterr().err
    assert "unknown command" in err
    assert ("data check" if argv[0] == "data" else "predict") in err
    assert "did you mean" not in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert main.run(argv) == 0
    out = capsys.readouterr().out
    assert all(name in out and text in out for name, (_, _, text) in main.COMMANDS.items())
    assert "0 done, 2 bad input, 1 internal error, 130 interrupted" in out


@pytest.mark.parametrize("group", ["domains", "data"])
@pytest.mark.parametrize("words", [["{}", "--help"], ["{}", "-h"], ["help", "{}"]])
def test_a_group_lists_its_commands(capsys: pytest.CaptureFixture[str], group: str, words: list[str]) -> None:
    assert main.run([word.format(group) for word in words]) == 0
    out = capsys.readouterr().out
    assert all((name in out) == name.startswith(f"{group} ") for name in main.COMMANDS if " " in name)


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["predct"], "predict"),
        (["domains", "lst"], "domains list"),
        (["domain"], "domains"),
        (["data", "chek"], "data check"),
    ],
)
def test_a_slip_of_the_finger_is_understood(capsys: pytest.CaptureFixture[str], argv: list[str], meant: str) -> None:
    assert main.run(argv) == 2
    assert f"did you mean {meant}" in capsys.readouterr().err


def test_the_help_of_bench_names_what_is_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert "bench list" in out
    assert "bench real" in out


def test_the_commands_of_the_first_release_are_there() -> None:
    assert {"demo", "predict", "train", "evaluate", "report", "doctor"} <= set(main.COMMANDS)


def test_two_words_win_over_one() -> None:
    assert main.split(["data", "check", "x"]) == ("data check", ["x"])
    assert main.split(["predict", "check"]) == ("predict", ["check"])


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    script = f"{sys.executable} -m protodepth -h | head -1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with subprocess.Popen(
        [sys.executable, "-m", "protodepth", "-h"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()  # before a word was read
        assert program.stderr.read() == b""
        assert program.wait(60) == 0


def test_sigterm_ends_a_command_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    command(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert main.run(["try"]) == 143
    assert "ended by SIGTERM" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_a_command_is_being_read_is_a_word_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    monkeypatch.setattr(tyro, "cli", lambda *args, **options: os.kill(os.getpid(), number))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        assert main.run(["doctor"]) == code
    finally:
        signal.signal(signal.SIGINT, before)
    said = capsys.readouterr().err
    assert "run the same command again" in said
    assert "Traceback" not in said


def test_ctrl_c_while_the_program_is_being_imported_is_a_word_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "run", interrupt)
    assert __main__.main(["doctor"]) == 130
    assert capsys.readouterr().err == "protodepth: interrupted\n"


def test_bad_names_are_one_sentence_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["adapt", "--data", "worlds:room", "--name", "a/b", "--out", str(tmp_path / "m")]) == 2
    assert "'a/b' cannot name a domain" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main.run(["recipe", "show", "paper"]) == 2
    assert "paper-indoor" in capsys.readouterr().err
