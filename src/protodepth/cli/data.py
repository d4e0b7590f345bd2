"""The commands ``protodepth data check | prepare | example | preview``.
Nothing heavy is imported until a command runs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from protodepth.errors import DataError
from protodepth.progress import progress_bar, working


@dataclass(frozen=True)
class DataCheck:
    """Read every file of a recording or dataset and report every fault at once.  Exit code 2 if there are any."""

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A recording's folder (settings may follow:
    FOLDER?poses=trajectory.txt), lists:lists.toml, kitti:/path, or a prepared folder.
    """
    fix: bool = False
    """Write what is safe (unit, pose convention, frames to exclude) into recording.toml."""
    depth_unit: str | None = None
    """Unit of the recording's depth: kitti, mm, cm, tum, m, or how many steps make a metre (default: what
    recording.toml says, or guessed where the values leave no doubt).
    """

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
    """Write a list of a dataset's frames, so that it opens at once: images stay where they are, depth that is slow to
    make is kept.
    """

    dataset: Annotated[str, tyro.conf.Positional]
    """argoverse2, azure_kinect, colmap, ddad, kitti, lists, nuscenes, nyu_v2, open3d, polycam, record3d, recording,
    rosbag, scannet, seven_scenes, transforms, tum, vkitti, void or waymo (docs/datasets.md, docs/own_data.md).
    """
    raw: tyro.conf.Positional[Path]
    """The folder with the original download."""
    out: tyro.conf.Positional[Path]
    """The folder to write; call again to go on where it stopped."""
    set: tuple[str, ...] = ()
    """Options of the dataset, for example --set density=500 val_share=0.1 (default: its own)."""
    workers: int = 2
    """Processes that make depth maps."""
    on: Literal["here", "ray"] = "here"
    """Who makes them: processes of this machine, or Ray (extra: cluster), that of RAY_ADDRESS or one of its own."""

    def run(self) -> None:
        from protodepth.cluster import check_workers
        from protodepth.data.manifest import prepare

        check_workers(self.on, max(self.workers, 1))
        with progress_bar() as progress:
            done = prepare(
                self.dataset,
                self.raw,
                self.out,
                options=dict(_pair(text) for text in self.set),
                workers=self.workers,
                on=self.on,
                progress=progress,
            )
        counts = ", ".join(f"{split} {n}" for split, n in done.counts.items())
        print(f"{done.out}: {counts}; {done.derived} depth maps written, {done.reused} reused")
        if done.bad or done.rejected:
            print(
                f"  left out: {len(done.bad)} bad frames, {done.rejected} with too few points (manifest.json names "
                "them)"
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

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A recording's folder or any data argument."""
    out: Path = Path("preview.png")
    """The picture to write."""
    rows: int = 4
    """Frames to show."""
    split: Literal["train", "val", "test"] = "train"
    """Which part."""
    depth_unit: str | None = None
    """Unit of a recording's depth: kitti, mm, cm, tum, m, or how many steps make a metre (default: what
    recording.toml says, or guessed where the values leave no doubt).
    """
    sample: str | None = None
    """How points are taken from dense depth, for example harris:1500 (default: the map with holes)."""

    def run(self) -> None:
        from protodepth.data.preview import preview

        given = {"depth_unit": self.depth_unit, "sampler": self.sample}
        options = {k: v for k, v in given.items() if v is not None}
        with working(f"drawing {self.rows} frames of {self.path}"):
            written = preview(self.path, self.out, rows=self.rows, split=self.split, **options)
        print(f"wrote {written}")


@dataclass(frozen=True)
class Example:
    """Write a small recording drawn from a built-in world: images, sparse depth, intrinsics, poses and ground truth."""

    out: tyro.conf.Positional[Path]
    """Folder of the recording."""
    world: str = "street_dusk"
    """room, warehouse, corridor_night, office, street, street_dusk, highway or garden."""
    frames: int = 40
    """How many frames."""
    size: str = "96x144"
    """HEIGHTxWIDTH of the frames."""
    seed: int = 0
    """Another seed is another scene."""

    def run(self) -> None:
        from protodepth.cli.options import parse_size
        from protodepth.data.example import write_example

        with working(f"drawing {self.frames} frames of {self.world}"):
            count = write_example(self.out, self.world, frames=self.frames, size=parse_size(self.size), seed=self.seed)
        print(f"wrote {count} frames of {self.world} to {self.out}")
