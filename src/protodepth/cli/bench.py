"""protodepth bench"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from protodepth.cli.options import check_scale, pairs, parse_data, parse_size, positive, words

if TYPE_CHECKING:
    from protodepth.experiments.planning import Options


@dataclass(frozen=True)
class Bench:
    """The paper's tables and figures by name; 'protodepth bench list' prints them.

    Runs on the built-in worlds, or on --data.  Interrupted, it goes on with the same command; several processes may
    share one --out.  Writes report.html, report.md and results.json there,
    with the paper's printed numbers beside this run's.
    """

    experiments: tyro.conf.Positional[tuple[str, ...]]
    """Experiments by name, as bench list prints them; or all."""
    out: Path = Path("bench")
    """Folder for cells, bases and the report."""
    backbone: tuple[str, ...] = ()
    """Networks: lite kbnet voiced fusionnet uformer (default: those of the paper's table)."""
    methods: tuple[str, ...] = ()
    """Continual-learning methods (default: those of the paper's table)."""
    seeds: tuple[str, ...] = ("0",)
    """Seeds, as 0 1 2 or 0,1,2.  On the built-in worlds each draws its own scenes, and one of three bases."""
    scenes: Literal["fresh", "fixed"] = "fresh"
    """fixed: the same scenes (64 for tests) and the same base for all seeds."""
    budget: Literal["steps", "compute"] = "steps"
    """What all methods have the same of: steps, or compute (a step of Replay costs two of finetuning)."""
    sequence: tuple[str, ...] = ()
    """indoor, outdoor, mixed, for experiments that can run on several (default: those of the paper)."""
    steps: int | None = None
    """Training steps on each new domain (default: the recipe's)."""
    base_steps: int | None = None
    """Training steps of base networks, which are then trained here (default: the recipe's, or bundled networks)."""
    data: tuple[str, ...] = ()
    """D1 D2 D3 as data arguments (nyu_v2:/path scannet:/path void:/path, or D1=...);
    a fourth is the unseen one of zero-shot (default: the built-in worlds).
    """
    size: str | None = None
    """Size of the worlds, as 64x96 (default: the recipe's)."""
    frames: int | None = None
    """Training frames of each world; val and test shrink with it (default: the recipe's)."""
    preset: str | None = None
    """Preset of kbnet, voiced, fusionnet, uformer (default: the published one on the paper's datasets, else small)."""
    recipe: str = ""
    """worlds, or paper-indoor?crop=scripts (default: the paper's on its datasets, else the worlds')."""
    scaffold: str = ""
    """Data with ground truth for FusionNet's ScaffNet (default: Virtual KITTI of --data, else a world)."""
    base: tuple[str, ...] = ()
    """Models to start from, as kbnet=FOLDER (default: bundled ones, or trained here)."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change the sequences' recipe, for example --set schedule.batch_size=8; may be repeated, and 'recipe show'
    prints the names (default: the recipe as it is)."""
    set_base: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """The same for the recipes of base networks (default: as they are)."""
    tuned: Path | None = None
    """Hyper-parameters that 'protodepth tune' wrote (default: the recipe's)."""
    predictions: Path | None = None
    """foundation: folder with an outside model's maps, <frame>.npy or 16-bit <frame>.png
    (default: the experiment is left out)."""
    outside: str = "outside model"
    """foundation: the outside model's name."""
    kind: Literal["depth", "disparity"] = "depth"
    """foundation: what the maps hold."""
    scale_by: Literal["sparse", "truth"] = "sparse"
    """foundation: what the outside maps are scaled by, sparse points or ground truth."""
    scale: float | None = None
    """A rehearsal of the paper's recipes: share of the published epochs, as 0.0005 (default: all of them)."""
    images: Path | None = None
    """foundation: only write the test images there, for the outside model (default: the maps are measured)."""
    device: str | None = None
    """cpu, cuda or cuda:1 (default: a GPU if there is one)."""
    workers: int = 1
    """Cells that run at once, each in a process of its own."""
    on: Literal["here", "ray"] = "here"
    """Who runs them: processes of this machine, or Ray (extra: cluster), that of RAY_ADDRESS or one of its own."""
    dry_run: bool = False
    """Print the cells and whether they are done, with --data also frames, steps, hours and memory here, and stop."""

    def run(self) -> None:
        from protodepth.experiments.catalogue import listing

        names = words(self.experiments)
        if names in ((), ("list",)):
            print(listing())
            return
        self.start(names)

    def start(self, names: tuple[str, ...]) -> None:
        from protodepth import distributed
        from protodepth.experiments.bench import bench, overview
        from protodepth.experiments.catalogue import EXPERIMENTS
        from protodepth.experiments.foundation import write_images
        from protodepth.progress import Reporter
        from protodepth.report.results import command_line

        names, options = tuple(EXPERIMENTS) if names == ("all",) else names, self.options()
        if self.images is not None:
            print(f"wrote {write_images(self.images, options)} images into {self.images}")
        elif self.dry_run:
            print("\n".join(overview(names, self.out, options, distributed.device(self.device))))
        else:
            device = distributed.device(self.device)
            paths = bench(
                names,
                self.out,
                options,
                reporter=Reporter(),
                command=command_line(),
                device=device,
                on=self.on,
                workers=self.workers,
            )
            _print_findings(paths[2])
            print(f"wrote {', '.join(str(p) for p in paths)}")

    def options(self) -> "Options":
        from protodepth.experiments.paper_plan import PRESET, is_paper
        from protodepth.experiments.planning import Options, read_tuned

        data = parse_data(self.data)
        paper = is_paper(self.recipe, data)
        return Options(
            sequences=words(self.sequence),
            backbones=words(self.backbone),
            methods=words(self.methods),
            seeds=_parse_seeds(self.seeds),
            bases=pairs(self.base),
            predictions=str(self.predictions.resolve()) if self.predictions else "",
            outside=self.outside,
            kind=self.kind,
            scale=self.scale_by,
            share=_check_share(self.scale, paper),
            recipe=self.recipe,
            scaffold=self.scaffold,
            steps=positive("steps", self.steps),
            base_steps=positive("base-steps", self.base_steps),
            data=data,
            size=parse_size(self.size) if self.size else None,
            frames=positive("frames", self.frames),
            scenes=self.scenes,
            budget=self.budget,
            preset=self.preset or (PRESET if paper else "small"),
            changes=self.set,
            base_changes=self.set_base,
            tuned=read_tuned(self.tuned),
        )


@dataclass(frozen=True)
class BenchList:
    """Print the experiments that bench runs: where they stand in the paper, their networks, and what they compare."""

    def run(self) -> None:
        from protodepth.experiments.catalogue import listing

        print(listing())


@dataclass(frozen=True)
class BenchReal:
    """Any recordings through patterns of points: interpolation, networks, the same after adapting, and ProtoDepth-A.

    Errors are over pixels without an input point, and as ratios to the best of nearest, linear and morphological
    interpolation.  Each recording is split into blocks of time; adapting never sees the test block.  Writes
    report.html, report.md and results.json; interrupted, it goes on with the same command.
    """

    data: tyro.conf.Positional[tuple[str, ...]]
    """Folders of recordings (FOLDER?depth_unit=mm), or other data arguments."""
    out: Path = Path("bench-real")
    """Folder for the cells and the report."""
    model: tuple[str, ...] = ("any-sensor",)
    """Models: bundled names or folders."""
    patterns: tuple[str, ...] = ("500", "1500", "5%", "corners", "lidar", "holes")
    """Also: 100 clustered tof tenth, all, or any sampler such as harris:800.  Those that do not fit are left out."""
    split: Literal["train", "val", "test"] = "val"
    """The block to measure on: val while something is still chosen, test for the final table alone."""
    frames: int = 8
    """Frames of each recording, evenly spaced over the block."""
    seed: int = 0
    """Draws the points, with the frame's name."""
    adapt: bool = True
    """Leave out adapting.  Otherwise every model is adapted to every recording, and ProtoDepth-A measured over all."""
    minutes: float | None = None
    """Minutes for each adaptation (default: adapt's own)."""
    steps: int | None = None
    """Steps of each adaptation: the same on a busy machine (default: what --minutes allow)."""
    device: str | None = None
    """cpu, cuda or cuda:1 (default: a GPU if there is one)."""

    def run(self) -> None:
        from protodepth import distributed
        from protodepth.experiments.real import RealOptions, bench_real
        from protodepth.progress import Reporter
        from protodepth.report.results import command_line

        distributed.alone("bench real")
        options = RealOptions(
            data=self.data,
            models=words(self.model),
            patterns=words(self.patterns),
            split=self.split,
            frames=self.frames,
            seed=self.seed,
            adapt=self.adapt,
            minutes=self.minutes,
            steps=positive("steps", self.steps),
        )
        device = distributed.device(self.device)
        paths = bench_real(options, self.out, reporter=Reporter(), command=command_line(), device=device)
        _print_findings(paths[2])
        print(f"wrote {', '.join(str(p) for p in paths)}")


def _check_share(scale: float | None, paper: bool) -> float | None:
    """The share of the published epochs, where a recipe has published ones."""
    from protodepth.errors import ConfigError

    if scale is not None and not paper:
        raise ConfigError(f"--scale {scale:g} is for the paper's recipes: on other data give --steps and --base-steps")
    return check_scale(scale)


def _parse_seeds(values: tuple[str, ...]) -> tuple[int, ...]:
    from protodepth.errors import ConfigError

    numbers = words(values)
    if not numbers or not all(w.isdigit() for w in numbers):
        raise ConfigError(f"--seeds {' '.join(values)}: expected whole numbers, as 0 1 2")
    return tuple(int(w) for w in numbers)


def _print_findings(path: Path) -> None:
    from protodepth.storage.files import read_sealed

    for name, section in read_sealed(path, earlier=("about", "experiments"))["experiments"].items():
        for line in (*section["findings"], *section["missing"]):
            print(f"{name}: {line}")
