"""The page itself (gradio), and what keeps it small and private: this machine only, limits, nothing from outside."""

import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protodepth.app import view
from protodepth.app.answers import (
    AUTO,
    DEPTH_FILES,
    IMAGE_FILES,
    Answer,
    Limits,
    Question,
    answer,
    example,
    example_names,
    intrinsics_text,
)
from protodepth.errors import DataError, ProtoDepthError
from protodepth.inference.engines.runtimes import need
from protodepth.model import ProtoDepth
from protodepth.types import BASE

HOST = "127.0.0.1"
OWN_FILES = "my own files"
# The page may load from itself only; a sandboxed frame inside shows the point clouds.
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'self'; object-src 'none'; base-uri 'self'"
)
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """Middleware: refuses other hosts (a page elsewhere could point its name at this machine)
    and large or unsized bodies.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], limit: int) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self.refusal(scope)
        if refusal is not None:
            code, text = refusal
            await send({"type": "http.response.start", "status": code, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": text.encode()})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff")]
                message["headers"] = [*message.get("headers", []), *headers, (b"referrer-policy", b"no-referrer")]
            await send(message)

        await self.app(scope, receive, guarded)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        if headers.get(b"host", b"").rsplit(b":", 1)[0] not in (HOST.encode(), b"localhost"):
            return 400, "this page answers to its own address only"
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return None
        length = headers.get(b"content-length", b"")
        if not length.isdigit():
            return 411, "the length of the request is needed"
        return (413, "the request is too large") if int(length) > self.limit else None


class Desk:
    """Answers questions one at a time and gives up on one that takes too long."""

    def __init__(self, model: ProtoDepth, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self._pool = ThreadPoolExecutor(max_workers=1)

    def ask(self, question: Question) -> Answer:
        task = self._pool.submit(answer, self.model, question, self.limits)
        try:
            return task.result(timeout=self.limits.seconds)
        except TookTooLong:
            task.cancel()
            raise DataError(f"this took longer than {self.limits.seconds:g} s: try a smaller image") from None

    def html(self, question: Question) -> tuple[str, str]:
        """Results and point clouds, or a message; a visitor's mistake is never an exception."""
        try:
            answer = self.ask(question)
            return view.result_html(answer), view.cloud_html(answer)
        except ProtoDepthError as error:
            text = str(error)
            for path in (question.image, question.sparse):
                text = text.replace(f"{Path(path).parent}{os.sep}", "") if path else text
            return view.error_html(text), ""

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def page(desk: Desk) -> Any:
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
                domain = gr.Dropdown(domain_choices(model), value=AUTO, label="Domain", elem_id="pd-domain")
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


def domain_choices(model: ProtoDepth) -> list[tuple[str, str]]:
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
        blocks = page(desk)
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
                app_kwargs={"middleware": [Middleware(Guard, limit=2 * limits.file_bytes)]},  # type: ignore[arg-type]
            )
            yield address
        finally:
            blocks.close(verbose=False)
            desk.close()
            if before is None:
                os.environ.pop("GRADIO_TEMP_DIR", None)
            else:
                os.environ["GRADIO_TEMP_DIR"] = before
