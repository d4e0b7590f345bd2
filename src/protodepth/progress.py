"""What a long command shows: a bar with the time left on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]  # called with what is done, how much of it, of how much


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


@contextmanager
def working(what: str, *, after: float = 2.0, every: float = 10.0) -> Iterator[None]:
    """For a step whose length nobody knows: a spinner on a terminal; elsewhere a line on stderr once it has taken
    ``after`` seconds, another every ``every`` seconds, and one at its end.  A short step says nothing there.
    """
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(what):
            yield
        return
    started, ended = time.monotonic(), threading.Event()

    def speak() -> None:
        pause = after
        while not ended.wait(pause):
            print(f"{what}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            pause = every

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if time.monotonic() - started >= after:
        print(f"{what}: done in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


class Reporter:
    """Lines and bars on standard error, so that standard output stays for results."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty() and not quiet

    def line(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        """Yields ``advance_to(n)``."""
        if self.quiet:
            yield lambda n: None
        elif self.terminal:
            yield from self._rich(label, total)
        else:
            yield self._plain(label, total)

    def _rich(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(label, total=total)
            yield lambda n: progress.update(task, completed=n)

    def _plain(self, label: str, total: int) -> Callable[[int], None]:
        started, last = time.monotonic(), [0.0]
        before: list[int] = []  # what an earlier run had done took no time of this one

        def advance(n: int) -> None:
            now = time.monotonic()
            if not before:
                before.append(n - 1)
            if n >= total or now - last[0] >= 10:
                last[0] = now
                left = (now - started) / max(n - before[0], 1) * (total - n)
                self.line(
                    f"{label}: {n}/{total}" + (f", {left:.0f} s left" if n < total else f" in {now - started:.0f} s")
                )

        return advance


class StepCount:
    """Steps of several trainings, one after another, as one count for a bar;
    a training that is resumed starts where it was.
    """

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.advance, self.before, self.last = advance, 0, 0

    def __call__(self, step: int) -> None:
        if step <= self.last:
            self.before += self.last
        self.last = step
        self.advance(self.before + step)
