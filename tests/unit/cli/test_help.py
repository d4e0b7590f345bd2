"""Help: every command answers, defaults are said once and in words, examples can be run as printed."""

import dataclasses
import re
import shlex
from importlib import import_module
from typing import Literal, get_args, get_origin

import pytest
import tyro

from protodepth.cli import help as helptext
from protodepth.cli.main import COMMANDS, run, split
from protodepth.data.arguments import BUILT_IN
from protodepth.data.worlds.worlds import WORLDS


def kind_of(name: str) -> type:
    module, kind, _ = COMMANDS[name]
    found = getattr(import_module(module), kind)
    assert isinstance(found, type)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_its_options_in_groups_and_two_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert "None" not in out
    assert out.startswith(f"usage: protodepth {name}")
    assert helptext.DOCUMENTS in out
    for option in helptext.options(kind_of(name)):
        assert option.text, option.name
        assert option.head in out
    assert len(helptext.EXAMPLES[name]) == 2
    assert all(f"protodepth {line}" in out for line in helptext.EXAMPLES[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_what_happens_without_an_option_is_said_once_and_in_words(name: str) -> None:
    kind = kind_of(name)
    for field, option in zip(dataclasses.fields(kind), helptext.options(kind), strict=True):
        assert option.text.count("(default:") <= 1, option.head
        assert "not given" not in option.text, option.head
        if not option.required and option.switch is None and not option.text.startswith("Also"):
            assert "(default: " in option.text, f"{name} {option.head} (its default is {field.default!r})"


def test_a_switch_that_says_no_says_what_is_left_out() -> None:
    """What is on by default is turned off by --no-...: the sentence beside it speaks of that."""
    texts = {o.head: o.text for name in COMMANDS for o in helptext.options(kind_of(name)) if o.switch is True}
    assert texts.keys() == {"--no-adapt", "--no-register", "--no-own-parts"}
    for head, text in texts.items():
        assert text.startswith(("Leave", "Learn prototypes alone")), head
        assert "Otherwise" in text, head


@pytest.mark.parametrize("name", COMMANDS)
def test_no_value_is_called_text(name: str) -> None:
    assert not [o.head for o in helptext.options(kind_of(name)) if "TEXT" in o.metavar]


def test_the_worlds_that_an_example_may_be_drawn_from_are_named() -> None:
    text = next(o.text for o in helptext.options(kind_of("data example")) if o.name == "world")
    assert all(name in text for name in WORLDS)


def test_the_datasets_that_can_be_prepared_are_named() -> None:
    text = next(o.text for o in helptext.options(kind_of("data prepare")) if o.name == "dataset")
    assert set(BUILT_IN) - {"manifest", "worlds"} == set(re.findall(r"[a-z0-9_]+", text.split("(")[0])) - {"or"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_choice_is_said_in_words_or_shown(name: str) -> None:
    """A word that an option takes is seen in its help, wherever a field's name gives the value a name of its own."""
    for option in helptext.options(kind_of(name)):
        choices = get_args(option.hint) if get_origin(option.hint) is Literal else ()
        assert all(str(choice) in f"{option.metavar} {option.text}" for choice in choices), option.head


@pytest.mark.parametrize("name", ["predict", "adapt", "evaluate", "data check", "data preview"])
def test_every_verb_that_reads_a_recording_takes_its_unit(name: str) -> None:
    """Who had to say it to adapt has to say it to evaluate, too."""
    assert "--depth-unit" in {o.flag for o in helptext.options(kind_of(name))}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_can_be_parsed(name: str) -> None:
    for line in helptext.EXAMPLES[name]:
        words = shlex.split(line.split(" > ")[0])
        found, rest = split(words)
        assert found == name
        assert helptext.fault(name, kind_of(name), rest) is None
        tyro.cli(kind_of(name), args=rest)


def test_every_option_of_the_tables_exists() -> None:
    names = {f.name for name in COMMANDS for f in dataclasses.fields(kind_of(name))}
    assert {word for words in helptext.GROUPS.values() for word in words.split()} <= names
    assert set(helptext.METAVARS) <= names
    for command, option in helptext.OF_COMMAND:
        assert option in {f.name for f in dataclasses.fields(kind_of(command))}


def test_options_stand_in_the_groups_input_output_learning_machine(capsys: pytest.CaptureFixture[str]) -> None:
    run(["adapt", "--help"])
    out = capsys.readouterr().out
    order = [
        "input",
        "  --data DATA",
        "output",
        "  --out PATH",
        "learning",
        "  --rate X",
        "machine",
        "  --device DEVICE",
    ]
    places = [out.index(f"\n{word}") for word in order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "--imgae", "a.png"], "predict has no option --imgae: did you mean --image?"),
        (["predict"], "predict needs --out PATH (Folder for the results)"),
        (["data", "check"], "data check needs DATA (A recording's folder"),
        (["data", "check", "--fix", "--depth-unit", "mm"], "data check needs DATA (A recording's folder"),
        (["convert", "kbnet", "--out", "m"], "convert needs CHECKPOINT (The .pth file)"),
        (["data", "prepare", "kitti", "--workers", "2", "raw"], "data prepare needs PATH (The folder to write"),
        (["speed", "--runs", "many"], "speed --runs many: expected a whole number"),
        (
            ["predict", "--out", "x", "--format=kiti"],
            "predict --format kiti: did you mean kitti? choose one of: kitti, mm, npy",
        ),
        (
            ["speed", "--engine", "onnx", "tensorrt"],
            "speed --engine tensorrt: choose one of: all, none, channels_last, compiled, onnx, openvino",
        ),
        (["speed", "--runs"], "speed --runs needs a value, N"),
        (["predict", "a.png", "b.png", "--out", "x"], "predict takes no bare word 'a.png': write options by name"),
        (["data", "check", "--fix", "a", "b"], "data check takes no bare word 'b'"),
        (["predict", "--depth", "a.png"], "predict has no option --depth: did you mean --sparse?"),
        (["adapt", "--lr", "1e-2"], "adapt has no option --lr: did you mean --rate?"),
        (
            ["predict", "--out", "x", "--image", "a.png"],
            "--sparse and --intrinsics missing: give --image, --sparse and",
        ),
    ],
)
def test_wrong_options_are_one_line_that_says_what_was_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["predict", "bench", "data prepare"])
def test_where_the_work_is_done_stands_beside_the_processes_that_do_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No verb that only reads or measures has a choice of Ray among what it learns."""
    assert run([*name.split(), "--help"]) == 0
    machine = capsys.readouterr().out.split("\nmachine\n")[1].split("\nexamples\n")[0]
    assert "--on here|ray" in machine
    assert "--workers" in machine
