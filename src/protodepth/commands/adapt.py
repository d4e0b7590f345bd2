"""protodepth adapt"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Adapt:
    """Learn a new domain from an unlabelled recording.  The base model and its other domains stay as they are."""

    data: str
    """The folder of a recording, or a data argument such as worlds:highway."""
    name: str
    """Name of the new domain."""
    out: Path
    """Folder of the adapted model."""
    model: str = "worlds-tiny"
    """A model folder or a bundled name."""
    steps: int = 500
    """Training steps."""
    rate: float = 3e-2
    """Learning rate of the prototypes."""
    seed: int = 0
    """Seed of the training."""

    def run(self) -> None:
        from dataclasses import replace

        from protodepth.adaptation import AdaptConfig, adapt
        from protodepth.checkpoint import check_replaceable
        from protodepth.commands.options import load_model
        from protodepth.progress import Reporter

        check_replaceable(self.out)  # before the training, not after it
        model = load_model(self.model)
        config = AdaptConfig(seed=self.seed)
        config = replace(config, schedule=replace(config.schedule, steps=self.steps, rate=self.rate))
        with Reporter().bar(f"learning {self.name}", self.steps) as advance:
            result = adapt(model, self.data, name=self.name, config=config, log=lambda step, record: advance(step))
        model.save_pretrained(self.out)
        print(result)
        print(f"wrote {self.out} with domains {', '.join(model.domains)}")
