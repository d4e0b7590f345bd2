"""What ``adapt`` keeps beside the model's folder until the new domain is written, so that a killed one goes on."""

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protodepth import config
from protodepth.errors import CheckpointError, ConfigError
from protodepth.storage import files
from protodepth.training.schedule import Schedule

OURS = re.compile(r"plan\.json|state\.json|state-\d+\.safetensors|\.rescue-\w+|\..+\.[0-9a-f]{8}\.tmp")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The folder of one adaptation.  ``about`` says what it is of: anything else found there is not gone on with."""

    folder: Path
    about: str

    @classmethod
    def beside(cls, out: Path, name: str, about: dict[str, Any]) -> "Unfinished":
        out = out.resolve()
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()
        return cls(out.with_name(f".{out.name}.{name}.adapting"), digest)

    def schedule(self) -> Schedule | None:
        """The schedule that was begun with; None if there is nothing to go on with.  What is of other settings goes."""
        try:
            stored = files.read_sealed(self.folder / "plan.json", earlier=()) if self.folder.is_dir() else {}
            if stored.get("about") == self.about:
                return config.from_dict(Schedule, stored["schedule"], str(self.folder / "plan.json"))
        except (CheckpointError, ConfigError, LookupError):  # damaged: learning begins again
            pass
        self._clear()
        return None

    def begin(self, schedule: Schedule) -> None:
        if not (self.folder / "plan.json").exists():
            files.write_sealed(self.folder / "plan.json", {"about": self.about, "schedule": config.to_dict(schedule)})

    def remove(self) -> None:
        """When all is written; what a failing disk keeps is cleared by the next start."""
        with contextlib.suppress(OSError):
            self._clear()

    def _clear(self) -> None:
        """Only what is ours, a plan and states, and first what names a state:
        whatever a kill or a failing disk leaves of them is never gone on with.
        """
        folders = [f for f in (self.folder / "state", self.folder) if f.is_dir()]
        mine = [p for folder in folders for p in folder.iterdir() if OURS.fullmatch(p.name)]
        for path in sorted(mine, key=lambda p: (p.name != "state.json", p.name == "plan.json")):
            path.unlink()
        for folder in folders:
            if not any(folder.iterdir()):
                folder.rmdir()
