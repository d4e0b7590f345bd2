"""What numbers are made with."""

import platform

import torch

from protodepth._version import __version__, made_with, processor, versions


def test_versions_name_this_package_and_those_asked_for() -> None:
    assert versions("torch") == {"protodepth": __version__, "torch": torch.__version__}
    assert versions("no-such-package")["no-such-package"] == "not installed as a package"


def test_the_record_of_a_number_says_packages_python_and_threads() -> None:
    record = made_with()
    assert record["python"] == platform.python_version()
    assert record["machine"].endswith(f"{torch.get_num_threads()} threads")
    assert {"protodepth", "torch"} < record.keys()


def test_the_processor_has_a_name() -> None:
    assert processor().strip()
