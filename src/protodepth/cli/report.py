"""protodepth report"""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class MakeReport:
    """One HTML page from the results of one or several runs."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders with a results.json (written by demo, train or bench)."""
    out: Path = Path("report.html")
    """The page."""

    def run(self) -> None:
        from protodepth.errors import DataError
        from protodepth.progress import working
        from protodepth.report.run import report_from_runs

        if not self.runs:
            raise DataError("give at least one run folder: protodepth report RUN... --out report.html")
        with working(f"writing {self.out}"):
            report_from_runs(list(self.runs), self.out)
        print(f"wrote {self.out}")
