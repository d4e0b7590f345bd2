"""protodepth tune"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tune:
    """Choose hyper-parameters of methods on val frames, the same number of trials for each; 'bench --tuned' uses them.

    Writes tuned.toml and every trial into --out; interrupted, it goes on with the same command.
    """

    sequence: tuple[str, ...]
    """Which worlds: indoor, outdoor, mixed."""
    out: Path = Path("tuning")
    """Folder for the trials."""
    backbone: tuple[str, ...] = ("lite",)
    """Networks."""
    methods: tuple[str, ...] = ("finetune", "ewc", "lwf", "replay", "ancl", "cmp", "protodepth")
    """Methods to tune."""
    trials: int = 8
    """Distinct trials of each method.  The first is the recipe as it is, with the values of --tuned.  If the best
    value lies at the edge of its range, the range is widened, for up to six trials more.
    """
    domains: int = 3
    """How many domains of the sequence the trials are judged on:
    2 leaves the third untouched, 3 sees confusion among all of them.
    """
    data: tuple[str, ...] = ()
    """D1 D2 D3 as data arguments, as for bench (default: the built-in worlds)."""
    tuned: Path | None = None
    """A tuned file whose values the trials start from, as one chosen with another network
    (default: the recipe's)."""
    seed: int = 0
    """Seed of the trials."""
    steps: int | None = None
    """Training steps on each new domain, the same in every trial (default: tuned too, 100 to 1500)."""
    base_steps: int | None = None
    """Training steps of base networks, which are then trained here (default: the recipe's, or bundled networks)."""
    size: str | None = None
    """Size of the worlds, as 64x96 (default: the recipe's)."""
    frames: int | None = None
    """Training frames of each world (default: the recipe's)."""
    preset: str = "small"
    """Preset of kbnet, voiced, fusionnet and uformer."""
    base: tuple[str, ...] = ()
    """Models to start from, as kbnet=FOLDER (default: bundled ones, or trained here)."""
    device: str | None = None
    """cpu, cuda or cuda:1 (default: a GPU if there is one)."""

    def run(self) -> None:
        from protodepth import distributed
        from protodepth.cli.options import pairs, parse_data, parse_size, positive, words
        from protodepth.errors import UnknownNameError
        from protodepth.experiments.planning import Options, read_tuned
        from protodepth.experiments.tuning import tune
        from protodepth.progress import Reporter
        from protodepth.training import recipes

        for name in words(self.sequence):
            if name not in recipes.SEQUENCES:
                raise UnknownNameError("sequence", name, recipes.SEQUENCES)
        options = Options(
            sequences=words(self.sequence),
            backbones=words(self.backbone),
            methods=words(self.methods),
            seeds=(self.seed,),
            steps=positive("steps", self.steps),
            base_steps=positive("base-steps", self.base_steps),
            size=parse_size(self.size) if self.size else None,
            frames=positive("frames", self.frames),
            preset=self.preset,
            bases=pairs(self.base),
            data=parse_data(self.data),
            tuned=read_tuned(self.tuned),
        )
        device = distributed.device(self.device)
        chosen = tune(self.trials, self.out, options, domains=self.domains, reporter=Reporter(), device=device)
        for (sequence, backbone, method), values in chosen.items():
            print(f"{sequence} {backbone} {method:<12}{values or 'the recipe as it is'}")
        print(f"wrote {self.out / 'tuned.toml'}: use it with 'protodepth bench ... --tuned {self.out / 'tuned.toml'}'")
