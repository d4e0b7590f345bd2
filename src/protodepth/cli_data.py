"""The commands ``protodepth data check | prepare | preview``.  Nothing heavy is imported until a command runs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from protodepth.errors import DataError

Progress = Callable[[str, int, int], None]


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on a terminal; elsewhere (a log file, a pipe) one plain line for each tenth of the work, on stderr."""
    if not sys.stderr.isatty():
        yield _plain_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, object] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)  # type: ignore[arg-type]

        yield show


def _plain_lines() -> Progress:
    def show(what: str, done: int, total: int) -> None:
        if done == total or (total >= 10 and done % max(1, total // 10) == 0):
            print(f"{what}: {done}/{total}", file=sys.stderr, flush=True)

    return show


@dataclass(frozen=True)
class DataCheck:
    """Read every file of a recording or dataset and report every fault at once.  Exit code 2 if there are any."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH|NAME:PATH")]
    """A recording's folder (settings may follow: FOLDER?poses=trajectory.txt), lists:lists.toml, kitti:/path, or a prepared folder."""
    fix: bool = False
    """Write what is safe (unit, pose convention, frames to exclude) into recording.toml."""
    depth_unit: str | None = None
    """Check the recording as if its depth were in this unit: kitti, mm, cm, tum, metres, or how many steps make a metre."""

    def run(self) -> None:
        from protodepth.data.check import check

        options = {"depth_unit": self.depth_unit} if self.depth_unit else {}
        with progress_bar() as progress:
            report = check(self.path, fix=self.fix, progress=progress, **options)
        print(report.text())
        if not report.ok:
            raise DataError(f"{self.path} has faults: {', '.join(f'{k} {n}' for k, n in report.counts().items())}")


@dataclass(frozen=True)
class DataPrepare:
    """Write the manifest of a dataset: where its frames are, no copied images, plus depth maps that are slow to make."""

    dataset: Annotated[str, tyro.conf.Positional]
    """kitti, nyu_v2, nuscenes, scannet, vkitti, void, waymo, lists, rosbag, ..."""
    raw: tyro.conf.Positional[Path]
    """The folder with the original download."""
    out: tyro.conf.Positional[Path]
    """The folder to write; call again to go on where it stopped."""
    set: tuple[str, ...] = ()
    """Options of the dataset as key=value, e.g. --set density=500 val_share=0.1."""
    workers: int = 2
    """Processes that make depth maps."""

    def run(self) -> None:
        from protodepth.data.manifest import prepare

        with progress_bar() as progress:
            options = dict(_pair(text) for text in self.set)
            done = prepare(self.dataset, self.raw, self.out, options=options, workers=self.workers, progress=progress)
        counts = ", ".join(f"{split} {n}" for split, n in done.counts.items())
        print(f"{done.out}: {counts}; {done.derived} depth maps written, {done.reused} reused")
        if done.bad or done.rejected:
            print(
                f"  left out: {len(done.bad)} bad frames, {done.rejected} with too few points (manifest.json names them)"
            )
        print(f"  use it: protodepth train --data {done.out} ...")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise DataError(f"--set takes key=value, got {text!r}")
    return key, value


@dataclass(frozen=True)
class DataPreview:
    """Write a contact sheet: points on the image, the neighbour warped by pose and depth, depth histograms."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH|NAME:PATH")]
    """A recording's folder or any data argument."""
    out: Path = Path("preview.png")
    """The picture to write."""
    rows: int = 4
    """Frames to show."""
    split: Literal["train", "val", "test"] = "train"
    """Which part."""
    depth_unit: str | None = None
    """Unit of a recording's depth maps: kitti, mm, cm, tum, metres, or how many steps make a metre."""
    sample: str | None = None
    """Sampler for dense depth, e.g. harris:1500."""

    def run(self) -> None:
        from protodepth.data.preview import preview

        given = {"depth_unit": self.depth_unit, "sampler": self.sample}
        options = {k: v for k, v in given.items() if v is not None}
        print(f"wrote {preview(self.path, self.out, rows=self.rows, split=self.split, **options)}")
