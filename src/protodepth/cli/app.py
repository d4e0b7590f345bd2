"""protodepth app"""

from dataclasses import dataclass

from protodepth.cli.options import DEFAULT_MODEL


@dataclass(frozen=True)
class App:
    """A local page: drop an image and its sparse depth, or pick an example, and look at depth and point cloud.

    It answers this machine only (127.0.0.1), asks nothing of the network, and removes uploads when it ends (Ctrl-C).
    """

    model: str = DEFAULT_MODEL
    """A model folder or a bundled name."""
    port: int | None = None
    """Port of the page (default: the first free one from 7860 on)."""
    colormap: str = "viridis"
    """Colours of depth: viridis, cividis, plasma, magma, turbo, gray, or any map of matplotlib."""
    open: bool = False
    """Open the page in the browser."""

    def run(self) -> None:
        import signal
        import threading
        import webbrowser

        from protodepth.app.server import running
        from protodepth.cli.options import load_model

        end = threading.Event()
        with running(load_model(self.model), port=self.port, colormap=self.colormap) as address:
            for number in (signal.SIGINT, signal.SIGTERM):  # either way uploads are removed
                signal.signal(number, lambda *_: end.set())
            print(f"protodepth app: {address} (Ctrl-C ends it)", flush=True)
            if self.open:
                webbrowser.open(address)
            end.wait()
