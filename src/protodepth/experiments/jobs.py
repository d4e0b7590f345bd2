"""A cell at work in this process: where it writes, what it shows, and who holds it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from protodepth.experiments.cells import Cell, Store
from protodepth.progress import Reporter, StepCount
from protodepth.storage.locks import Lock
from protodepth.training.log import JsonLines, Log

CHECK_EVERY = 25  # steps between looks at the lock and lines of the log


@dataclass(frozen=True, slots=True)
class Job:
    """A cell that this process works on, and where."""

    cell: Cell
    store: Store
    lock: Lock
    reporter: Reporter

    @property
    def place(self) -> Path:
        return self.store.place(self.cell)

    def log(self, advance: Callable[[int], None]) -> Log:
        """Shows progress, writes the loss now and then, and stops when another process has taken over."""
        lines, count = JsonLines(self.place / "log.jsonl"), StepCount(advance)

        def each(step: int, record: dict[str, float]) -> None:
            count(step)
            if step % CHECK_EVERY == 0:
                lines(step, record)
                self.lock.check()

        return each
