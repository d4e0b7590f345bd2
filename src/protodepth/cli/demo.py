"""protodepth demo"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Demo:
    """The whole story on built-in worlds: a network meets two new domains, finetuned and with prototypes.

    Prints one table and writes report.html, results.json and pictures into --out.
    """

    out: Path = Path("demo")
    """Folder for the report."""
    sequence: Literal["outdoor", "indoor"] = "outdoor"
    """outdoor: a street, then dusk and a highway; indoor: a room, then a warehouse and a corridor at night."""
    seed: int = 0
    """Seed of the training."""
    steps: int | None = None
    """Training steps on each new domain (default: the recipe's)."""

    def run(self) -> None:
        from protodepth.experiments.demo import demo
        from protodepth.progress import Reporter
        from protodepth.report.run import print_table

        document = demo(self.out, sequence=self.sequence, seed=self.seed, steps=self.steps, reporter=Reporter())
        print_table(document)
        for line in document["findings"]:
            print(line)
        print(f"wrote {self.out / 'report.html'} and {self.out / 'results.json'} ({document['seconds']:.0f} s in all)")
