"""protodepth adapt"""

import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protodepth.model import ProtoDepth
    from protodepth.training.log import Log
    from protodepth.training.task import AdaptConfig, Task


@dataclass(frozen=True)
class Adapt:
    """Learn a new domain from an unlabelled recording.  The base model and its other domains stay as they are.

    The network learns from sparse points that it is not shown and, as far as the poses warp, from its neighbours.  The
    step with the least error at hidden points is kept, and hidden points of other frames say whether it helped; if it
    did not, nothing is written unless --force is given.
    """

    data: str
    """The folder of a recording, or a data argument such as worlds:highway; settings may follow:
    FOLDER?stride=3&sample=fast:500.
    """
    name: str
    """Name of the new domain."""
    out: Path
    """Folder of the adapted model; if it holds one already, the domain is added to it."""
    model: str | None = None
    """A model folder or a bundled name (default: the model in --out, or any-sensor if there is none yet)."""
    minutes: float = 5.0
    """How long it may take: steps and crops follow from it and from the recording."""
    steps: int | None = None
    """Training steps (default: as many as --minutes allow)."""
    objective: Literal["hidden", "paper"] = "hidden"
    """What teaches: points hidden from the network with a photometric term that does not believe bad poses,
    or the paper's (Eq. 1).
    """
    rate: float | None = None
    """Learning rate of the prototypes (default: as the objective needs it)."""
    seed: int = 0
    """Seed of the training."""
    poses: Literal["auto", "given", "network"] = "auto"
    """Camera motion: whichever warps better of poses.txt and an estimate from the sparse depth (auto),
    poses.txt as it is (given), or, with
    --objective paper, the model's pose network."""
    depth_unit: str | None = None
    """Unit of a recording's depth PNGs: kitti (value/256), mm, cm, tum, m, or how many steps make a metre (default:
    what recording.toml says, or guessed where the values leave no doubt).
    """
    sample: str | None = None
    """For a recording with dense depth/: how points are taken from it, for example harris:1500 (default:
    the map with holes).
    """
    register: bool = True
    """Leave the picture where it is.  Otherwise adapt looks whether it lies on the depth, moves it there if not, and
    the domain keeps the place.
    """
    own_parts: bool = True
    """Learn prototypes alone, as the paper does.  Otherwise the domain also learns copies of parts of the network."""
    withhold: float = 0.2
    """Share of the sparse points that is hidden from the network in the frames that judge."""
    dry_run: bool = False
    """Only check the data and say what would be done and how long it would take."""
    force: bool = False
    """Write the model even if adapting did not help."""
    device: str | None = None
    """cpu, cuda or cuda:1 (default: a GPU if there is one)."""
    rerun: Path | None = None
    """Also write a Rerun recording, FILE.rrd (extra: viz): losses, and held-out frames before and after."""

    def run(self) -> None:
        from protodepth import distributed
        from protodepth.storage.locks import writing
        from protodepth.storage.paths import check_name

        distributed.alone("adapt")
        check_name(self.name)  # before a folder is made by it
        with writing(self.out):
            self.learn()

    def learn(self) -> None:
        """As the only writer of --out: its domains are those that were read, until the new one is beside them."""
        from protodepth.cli.options import keep_notes, load_model, start_of
        from protodepth.errors import DomainError
        from protodepth.inference.memory import check_size
        from protodepth.progress import Reporter
        from protodepth.storage.replace import check_replaceable, check_room
        from protodepth.training.adapt import carry_out, make_plan
        from protodepth.training.task import prepare
        from protodepth.training.unfinished import Unfinished
        from protodepth.training.watch import first

        start = start_of(self.model, self.out, self.name)
        check_replaceable(self.out)  # before the training, not after it
        check_room(self.out, self.name)
        started, reporter = time.monotonic(), Reporter()
        model, config = load_model(start, self.device), self.config()
        options: dict[str, Any] = {"depth_unit": self.depth_unit, "sampler": self.sample}
        options = {key: value for key, value in options.items() if value is not None}
        about = {"data": self.data, "options": options, "config": asdict(config), "base": model.fingerprint()}
        unfinished = Unfinished.beside(self.out, self.name, about)
        task = prepare(model, self.data, self.name, config, options)
        height, width = first(task.parts.learn).sparse_depth.shape
        check_size((height, width), model)
        if self.dry_run:
            print(make_plan(task, config, time.monotonic() - started))
            return
        begun = unfinished.schedule()
        if begun is not None:
            reporter.line(f"going on with {self.name}, which was interrupted")
        plan = make_plan(task, replace(config, schedule=begun or config.schedule), time.monotonic() - started)
        unfinished.begin(plan.schedule)
        reporter.line(str(plan))
        with self.recording(model, task) as watch, reporter.bar(f"learning {self.name}", plan.steps) as advance:

            def log(step: int, record: dict[str, Any]) -> None:
                advance(step)
                watch(step, record)

            result = carry_out(
                model, task, plan, config, log=log, say=reporter.line, folder=unfinished.folder / "state"
            )
        if not result.helped and not self.force:
            unfinished.remove()
            raise DomainError(
                "adapting did not help; nothing was written (--force writes it all the same).\n"
                f"  protodepth data check {self.data} says whether depth, poses and intrinsics agree"
            )
        model.save_pretrained(self.out, notes=keep_notes(start))
        unfinished.remove()
        print(result)
        print(f"wrote {self.out} with domains {', '.join(model.domains)}")

    @contextmanager
    def recording(self, model: "ProtoDepth", task: "Task") -> "Iterator[Log]":
        """What records each step; after the block the frames that judge follow, by the base and in the new domain."""
        from protodepth.training.log import silent

        if self.rerun is None:
            yield silent
            return
        from protodepth.inference.rerun import RerunFile

        with RerunFile(self.rerun, ["base", self.name], training=True) as file:
            yield file.add_step
            for frame in (case.frame for case in task.verdict):
                arrays = (frame.image, frame.sparse_depth, frame.intrinsics)
                file.add(frame, {name: model.predict(*arrays, domain=name) for name in ("base", self.name)})
        print(f"wrote {self.rerun}")

    def config(self) -> "AdaptConfig":
        from protodepth.training.task import AdaptConfig

        return AdaptConfig(
            objective=self.objective,
            minutes=self.minutes,
            steps=self.steps,
            rate=self.rate,
            poses=self.poses,
            register=self.register,
            own_parts=self.own_parts,
            withhold=self.withhold,
            seed=self.seed,
            force=True,  # whether it is written is decided here
        )
