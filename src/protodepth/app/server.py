"""The page itself (gradio), and what keeps it small and private: this machine only, limits, nothing from outside."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protodepth.app import view
from protodepth.app.answers import (
    AUTO,
    DEPTH_FILES,
    IMAGE_FILES,
    Limits,
    Question,
    answer,
    example,
    example_names,
    intrinsics_text,
)
from protodepth.app.guard import HOST, Guard
from protodepth.app.worker import Answerer, Worker
from protodepth.errors import ProtoDepthError
from protodepth.inference.engines.runtimes import need
from protodepth.model import ProtoDepth
from protodepth.types import BASE

OWN_FILES = "my own files"


class Desk:
    """Answers questions one at a time and gives up on one that takes too long."""

    def __init__(self, model: ProtoDepth, limits: Limits, answerer: Answerer = answer) -> None:
        self.model, self.limits = model, limits
        self._worker = Worker(model, limits, answerer)

    def html(self, question: Question) -> tuple[str, str]:
        """Results and point clouds, or a message; a visitor's mistake is never an exception."""
        try:
            answer = self._worker.ask(question)
            return view.result_html(answer), view.cloud_html(answer)
        except ProtoDepthError as error:
            text = str(error)
            for path in (question.image, question.sparse):
                text = text.replace(f"{Path(path).parent}{os.sep}", "") if path else text
            return view.error_html(text), ""

    def close(self) -> None:
        self._worker.close()


def _page(desk: Desk) -> Any:
    """The page's parts and what they do."""
    gr = need("gradio", "app")
    model = desk.model
    worlds = example_names(model.backbone.depth_range)
    with gr.Blocks(title="protodepth", analytics_enabled=False, delete_cache=(60, 900)) as blocks:
        gr.Markdown(f"# protodepth\nDense depth from an image and sparse points. Network: {model.backbone.name}.")
        with gr.Row():
            with gr.Column(scale=1, min_width=280):
                chosen = gr.Dropdown([OWN_FILES, *worlds], value=worlds[0], label="Example", elem_id="pd-example")
                with gr.Column(visible=False) as files:
                    image = gr.File(label="Image", file_types=list(IMAGE_FILES), height=120, elem_id="pd-image")
                    sparse = gr.File(
                        label="Sparse depth (16-bit PNG, .npy)",
                        file_types=list(DEPTH_FILES),
                        height=120,
                        elem_id="pd-sparse",
                    )
                    unit = gr.Dropdown([AUTO, "kitti", "mm", "cm", "metres"], value=AUTO, label="Unit of the depth")
                camera = gr.Textbox(label="Intrinsics fx, fy, cx, cy (pixels)", interactive=False, elem_id="pd-camera")
                domain = gr.Dropdown(_domain_choices(model), value=AUTO, label="Domain", elem_id="pd-domain")
                button = gr.Button("Complete", variant="primary", elem_id="pd-go")
            with gr.Column(scale=3, min_width=320):
                result, cloud = gr.HTML(elem_id="pd-result"), gr.HTML(elem_id="pd-cloud")
        inputs, outputs = [chosen, image, sparse, camera, unit, domain], [result, cloud]

        def choose(name: str) -> tuple[Any, Any]:
            own = name == OWN_FILES
            text = "" if own or name not in worlds else intrinsics_text(example(name))
            return gr.Column(visible=own), gr.Textbox(value=text, interactive=own)

        def complete(name: str, a: str | None, b: str | None, K: str, u: str, d: str) -> tuple[str, str]:
            own = name == OWN_FILES
            return desk.html(
                Question(example="" if own else name, image=a, sparse=b, intrinsics=K or "", unit=u, domain=d)
            )

        hidden = {"api_visibility": "private", "show_progress": "minimal"}
        chosen.change(choose, chosen, [files, camera], **hidden)
        button.click(complete, inputs, outputs, **hidden)
        blocks.load(choose, chosen, [files, camera], **hidden).then(complete, inputs, outputs, **hidden)
    return blocks.queue(max_size=desk.limits.queue, default_concurrency_limit=1)


def _domain_choices(model: ProtoDepth) -> list[tuple[str, str]]:
    names = [(name, name) for name in model.domains]
    return [("auto: chosen for this image", AUTO), *names, ("base: the network as it is", BASE)]


@contextmanager
def running(model: ProtoDepth, *, port: int | None = None, limits: Limits = Limits()) -> Iterator[str]:
    """The page for the length of a ``with`` block; gives its address.  Uploads live in a folder that goes with it."""
    os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_DISABLE_TELEMETRY="1")  # read when gradio is imported
    gr = need("gradio", "app")
    from starlette.middleware import Middleware

    before = os.environ.get("GRADIO_TEMP_DIR")
    desk = Desk(model, limits)
    with tempfile.TemporaryDirectory(prefix="protodepth-app-", ignore_cleanup_errors=True) as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        blocks = _page(desk)
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
                app_kwargs={"middleware": [Middleware(Guard, limits=limits, folder=Path(folder))]},  # type: ignore[arg-type]
            )
            yield address
        finally:
            blocks.close(verbose=False)
            desk.close()
            if before is None:
                os.environ.pop("GRADIO_TEMP_DIR", None)
            else:
                os.environ["GRADIO_TEMP_DIR"] = before
