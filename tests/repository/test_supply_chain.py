"""What is installed beside the program: known holes, and the list that a release carries."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.documents import ROOT

TOOLS = ROOT / ".venv-tools" / "bin"
# what a tool says that cannot ask its database
UNREACHABLE = re.compile(
    r"ConnectionError|Max retries|NameResolution|Could not resolve|HTTPError|ServiceError|timed out"
)


def tool(name: str) -> str:
    path = str(TOOLS / name) if (TOOLS / name).exists() else shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: make audit and make sbom put it into {TOOLS.parent.name}")
    return path


@pytest.mark.slow
def test_what_is_installed_has_no_known_holes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "list", "--format=freeze", "--exclude-editable"]
    installed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = [line.split("+")[0] for line in installed.splitlines()]  # 2.13.0+cpu is 2.13.0 there
    (tmp_path / "installed.txt").write_text("\n".join(wanted))
    audit = [tool("pip-audit"), "--no-deps", "--disable-pip", "-r", str(tmp_path / "installed.txt"), "-f", "json"]
    asked = subprocess.run(audit, capture_output=True, text=True, check=False)
    if UNREACHABLE.search(asked.stderr):
        pytest.skip(f"the database of holes cannot be reached: {asked.stderr.strip().splitlines()[-1][:200]}")
    answers = json.loads(asked.stdout)["dependencies"]
    unknown = [d["name"] for d in answers if "skip_reason" in d]
    if len(unknown) > len(answers) / 2:
        pytest.skip(f"the database knows none of {len(unknown)} of {len(answers)} packages: a mirror without it?")
    holes = {f"{d['name']} {d['version']}": [v["id"] for v in d["vulns"]] for d in answers if d.get("vulns")}
    assert not holes, f"update these: {holes}"


@pytest.mark.slow
def test_the_list_of_a_release_has_every_dependency_with_its_version(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    command = [tool("cyclonedx-py"), "environment", "--output-format", "JSON", "--output-file", str(file)]
    subprocess.run([*command, sys.executable], check=True, capture_output=True)
    listed = {c["name"].lower(): c["version"] for c in json.loads(file.read_text())["components"]}
    assert {"torch", "numpy", "pillow", "scipy", "safetensors", "pydantic"} <= set(listed)
    assert all(listed.values())
