"""The page itself (gradio), and what keeps it small and private: this machine only, limits, nothing from outside."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protodepth.app import view
from protodepth.app.answers import AUTO, DEPTH_FILES, IMAGE_FILES, Limits, Question, answer, intrinsics_text
from protodepth.app.downloads import Downloads, Shelf
from protodepth.app.examples import example, example_names, first_example
from protodepth.app.guard import HOST, Guard
from protodepth.app.worker import Answerer, Worker
from protodepth.errors import ConfigError, ProtoDepthError
from protodepth.inference.engines.runtimes import need
from protodepth.model import ProtoDepth
from protodepth.report import pictures as picture_files
from protodepth.types import BASE


class Desk:
    """Answers questions one at a time and gives up on one that takes too long."""

    def __init__(
        self,
        model: ProtoDepth,
        limits: Limits,
        answerer: Answerer = answer,
        colormap: str = picture_files.DEPTH_COLORMAP,
    ) -> None:
        picture_files.palette(colormap)  # a name that does not exist is refused before the page starts
        self.model, self.limits, self.colormap = model, limits, colormap
        self.shelf = Shelf(colormap)
        self._worker = Worker(model, limits, answerer)

    def html(self, question: Question) -> tuple[str, str]:
        """Results and point clouds, or a message; a visitor's mistake is never an exception."""
        try:
            answer = self._worker.ask(question)
            return view.result_html(answer, self.shelf.put(answer), self.colormap), view.cloud_html(answer)
        except ProtoDepthError as error:
            text = str(error)
            for path in (question.image, question.sparse):
                text = text.replace(f"{Path(path).parent}{os.sep}", "") if path else text
            return view.error_html(text), ""

    def close(self) -> None:
        self._worker.close()


class Page:
    """The page's parts and what they do."""

    def __init__(self, desk: Desk) -> None:
        self.gr, self.desk = need("gradio", "app"), desk
        self.names = example_names(desk.model.backbone.depth_range)
        self.first = first_example(desk.model)

    def blocks(self) -> Any:
        gr = self.gr
        with gr.Blocks(title="protodepth", analytics_enabled=False, delete_cache=(60, 900)) as blocks:
            gr.Markdown(
                "# protodepth\nDense depth from an image and sparse points. "
                f"Network: {self.desk.model.backbone.name}. Pick an example, or drop your own files.",
                elem_classes=["pd-head"],
            )
            self.chosen = gr.State(self.first)  # the example; "" = the visitor's files
            self.examples = gr.HTML(
                view.examples_html(self.names, self.first), js_on_load=view.on_example(), elem_id="pd-examples"
            )
            with gr.Row():
                with gr.Column(scale=1, min_width=280):
                    self.inputs()
                with gr.Column(scale=3, min_width=320):
                    self.result = gr.HTML(view.wait_html(self.first), elem_id="pd-result")
                    self.cloud = gr.HTML(elem_id="pd-cloud")
            self.wire(blocks)
        return blocks.queue(max_size=self.desk.limits.queue, default_concurrency_limit=1)

    def inputs(self) -> None:
        """The left column: files, camera, unit, domain."""
        gr = self.gr
        with gr.Row():
            self.image = gr.File(
                label="Your image", file_types=list(IMAGE_FILES), height=120, min_width=130, elem_id="pd-image"
            )
            self.sparse = gr.File(
                label="Its sparse depth", file_types=list(DEPTH_FILES), height=120, min_width=130, elem_id="pd-sparse"
            )
        numbers = intrinsics_text(example(self.first))
        self.camera = gr.Textbox(
            numbers, label="Camera: fx, fy, cx, cy (pixels)", interactive=False, elem_id="pd-camera"
        )
        self.unit = gr.Dropdown(
            [AUTO, "kitti", "mm", "cm", "metres"], value=AUTO, label="Unit of your sparse depth", elem_id="pd-unit"
        )
        self.domain = gr.Dropdown(_domain_choices(self.desk.model), value=AUTO, label="Domain", elem_id="pd-domain")
        self.button = gr.Button("Complete", variant="primary", elem_id="pd-go")

    def wire(self, blocks: Any) -> None:
        hidden = {"api_visibility": "private", "show_progress": "minimal"}
        given = [self.chosen, self.image, self.sparse, self.camera, self.unit, self.domain]
        shown = [self.result, self.cloud]
        gr = self.gr

        def pick(event: gr.EventData) -> tuple[Any, ...]:  # type: ignore[name-defined]
            return self.pick(str(event.world))

        picked = [self.chosen, self.examples, self.image, self.sparse, self.camera, *shown]
        self.examples.click(pick, None, picked, **hidden).then(self.complete, given, shown, **hidden)
        for file in (self.image, self.sparse):
            owned = [self.chosen, self.examples, self.camera]
            file.upload(self.own, [self.chosen, self.camera], owned, **hidden).then(
                self.complete, given, shown, **hidden
            )
            file.clear(self.complete, given, shown, **hidden)
        for choice in (self.unit, self.domain):
            choice.change(self.complete, given, shown, **hidden)
        self.camera.submit(self.complete, given, shown, **hidden)
        self.button.click(self.complete, given, shown, **hidden)
        blocks.load(self.complete, given, shown, **hidden)

    def pick(self, name: str) -> tuple[Any, ...]:
        """Another example: its files and its camera, and nothing of the results before."""
        name = name if name in self.names else self.first
        camera = self.gr.Textbox(value=intrinsics_text(example(name)), interactive=False)
        return name, view.examples_html(self.names, name), None, None, camera, view.wait_html(name), ""

    def own(self, chosen: str, camera: str) -> tuple[Any, ...]:
        """A file of the visitor's: the example and its camera go."""
        text = "" if chosen else camera
        return "", view.examples_html(self.names), self.gr.Textbox(value=text, interactive=True)

    def complete(
        self, chosen: str, image: str | None, sparse: str | None, K: str, unit: str, domain: str
    ) -> tuple[str, str]:
        return self.desk.html(
            Question(example=chosen, image=image, sparse=sparse, intrinsics=K or "", unit=unit, domain=domain)
        )


def _domain_choices(model: ProtoDepth) -> list[tuple[str, str]]:
    names = [(name, name) for name in model.domains]
    return [("auto: chosen for this image", AUTO), *names, ("base: the network as it is", BASE)]


@contextmanager
def running(
    model: ProtoDepth,
    *,
    port: int | None = None,
    limits: Limits = Limits(),
    colormap: str = picture_files.DEPTH_COLORMAP,
) -> Iterator[str]:
    """The page for the length of a ``with`` block; gives its address.  Uploads live in a folder that goes with it."""
    if port is not None and not 0 < port < 2**16:
        raise ConfigError(f"port {port}: expected a number from 1 to 65535, or none for the first free one")
    os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_DISABLE_TELEMETRY="1")  # read when gradio is imported
    gr = need("gradio", "app")
    from starlette.middleware import Middleware

    before = os.environ.get("GRADIO_TEMP_DIR")
    desk = Desk(model, limits, colormap=colormap)
    with tempfile.TemporaryDirectory(prefix="protodepth-app-", ignore_cleanup_errors=True) as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        blocks = Page(desk).blocks()
        try:
            _, address, _ = blocks.launch(
                server_name=HOST,
                server_port=port,
                share=False,
                quiet=True,
                prevent_thread_lock=True,
                max_file_size=limits.file_bytes,
                enable_monitoring=False,
                ssr_mode=False,
                footer_links=[],
                theme=gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
                css=view.style(),
                app_kwargs={
                    "middleware": [
                        Middleware(Guard, limits=limits, folder=Path(folder)),  # type: ignore[arg-type]
                        Middleware(Downloads, shelf=desk.shelf),  # type: ignore[arg-type]
                    ]
                },
            )
            yield address
        finally:
            blocks.close(verbose=False)
            desk.close()
            if before is None:
                os.environ.pop("GRADIO_TEMP_DIR", None)
            else:
                os.environ["GRADIO_TEMP_DIR"] = before
