"""protodepth evaluate"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from protodepth.cli.options import DEFAULT_MODEL

if TYPE_CHECKING:
    from protodepth.data.frame import Domain
    from protodepth.model import ProtoDepth
    from protodepth.training.evaluate import Evaluation
    from protodepth.types import Batch, BatchPrediction


@dataclass(frozen=True)
class Evaluate:
    """Errors of a model on data: MAE and RMSE in mm, iMAE and iRMSE in 1/km.

    Without ground truth a fifth of a recording's sparse points is hidden from the network and judges.
    Several processes share the frames: torchrun --nproc_per_node=2 -m protodepth evaluate ...
    """

    data: str
    """The folder of a recording, or a data argument such as worlds:street, kitti:/path, lists:/path/lists.toml."""
    model: str = DEFAULT_MODEL
    """A model folder, a run folder or a bundled name."""
    domain: str | None = None
    """The domain to use; base is the un-adapted network (default: chosen for each frame, as predict does)."""
    agnostic: bool = False
    """Choose the domain for each frame, as without --domain; the two together are refused."""
    split: str = "test"
    """Which part of the data."""
    depth_unit: str | None = None
    """Unit of a recording's depth PNGs: kitti (value/256), mm, cm, tum, m, or how many steps make a metre (default:
    what recording.toml says, or guessed where the values leave no doubt).
    """
    sample: str | None = None
    """For a recording with dense depth/: how points are taken from it, as adapt was told (default:
    the map with holes).
    """
    out: Path | None = None
    """Also write the errors of every frame into this JSON file."""
    device: str | None = None
    """cpu, cuda or cuda:1 (default: a GPU if there is one)."""

    def run(self) -> None:
        from protodepth import distributed
        from protodepth.cli.options import load_model
        from protodepth.data.frame import SPLITS
        from protodepth.errors import ConfigError, UnknownNameError
        from protodepth.progress import working
        from protodepth.training.evaluate import beside_interpolation

        if self.split not in SPLITS:
            raise UnknownNameError("split", self.split, SPLITS)
        if self.agnostic and self.domain is not None:
            raise ConfigError("--agnostic and --domain contradict each other: give one")
        with distributed.together(self.device) as device:
            model = load_model(self.model, str(device))
            with working(f"opening {self.data}"):
                data = self.labelled()
            if self.domain not in (None, "base"):
                model.domain(str(self.domain))
            result = self.measure(model, data)
            recorded = data.identity.get("dataset") == "recording"
            table = beside_interpolation(result, data.split(self.split), data.rules) if recorded else {}
            if distributed.leads():
                self.show(data, result)
                self.show_interpolation(table)

    def labelled(self) -> "Domain":
        """The data, and a word if its own sparse points have to judge."""
        from protodepth import distributed
        from protodepth.training import judging

        given = {"depth_unit": self.depth_unit, "sampler": self.sample}
        options = {key: value for key, value in given.items() if value is not None}
        data, judged_by_points = judging.labelled(self.data, self.split, **options)
        if judged_by_points and distributed.leads():
            print("no ground truth: a fifth of the sparse points is hidden from the network and judges")
        return data

    def show_interpolation(self, table: "dict[str, dict[str, float]]") -> None:
        """MAE and RMSE of the network and of interpolation on the same pixels."""
        if table:
            print("beside interpolation, on the same pixels (MAE, RMSE in mm):")
        for name, errors in table.items():
            print(f"  {name:<14}{errors['mae']:>10.2f}{errors['rmse']:>10.2f}")

    def measure(self, model: "ProtoDepth", data: "Domain") -> "Evaluation":
        """Errors of every frame, with a bar."""
        from protodepth import distributed
        from protodepth.inference.memory import check_size
        from protodepth.progress import Reporter
        from protodepth.training.evaluate import evaluate

        frames, done = data.split(self.split), 0
        with Reporter(quiet=not distributed.leads()).bar("evaluating", len(frames)) as advance:

            def predict(batch: "Batch") -> "BatchPrediction":
                nonlocal done
                check_size(batch.size, model)
                out = model.predict_batch(batch, self.domain)
                done += len(batch)
                advance(done)
                return out

            return evaluate(predict, frames, data.rules)

    def show(self, data: "Domain", result: "Evaluation") -> None:
        """Print the errors, and write those of every image."""
        from protodepth.metrics import METRICS, UNITS
        from protodepth.storage.files import write_json

        print(
            f"{data.name} {self.split}: {len(result.images)} frames, "
            f"{'domain chosen for each' if self.domain is None else f'domain {self.domain}'}"
        )
        if result.bad_frames:
            print(
                f"  {len(result.bad_frames)} frames cannot be read and are left out: "
                f"{next(iter(result.bad_frames.values()))}"
            )
        for name in METRICS:
            print(f"  {name:<6}{result.mean[name]:>10.2f} {UNITS[name]}")
        if self.domain is None:
            for name in dict.fromkeys(result.chosen):
                print(f"  chosen {name}: {result.chosen.count(name)}")
        if self.out is not None:
            write_json(
                self.out,
                {
                    "mean": result.mean,
                    "images": result.images,
                    "bad_frames": result.bad_frames,
                    "rules": {"min": data.rules.min_depth, "max": data.rules.max_depth, "crop": data.rules.crop},
                },
            )
            print(f"wrote {self.out}")
