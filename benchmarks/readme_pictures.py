"""The pictures of the README, and the lines that its commands print, made by the commands that it shows.

    python benchmarks/readme_pictures.py          # docs/pictures/predict.png and adapt.png; some six minutes
    python benchmarks/readme_pictures.py --app    # also app.png; needs the extra app, playwright and a chromium

Run it from the root of the repository after the bundled models have changed.
"""

import argparse
import io
import os
import shutil
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from protodepth.cli.main import run
from protodepth.data.files.images import read_depth, read_image
from protodepth.model import ProtoDepth
from protodepth.report import pictures

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
GAP, TITLE = 10, 24
FRAME = "000037"
Picture = np.ndarray  # h w 3, uint8


def call(text: str) -> str:
    """Run a command; returns what it printed."""
    said = io.StringIO()
    with redirect_stdout(said):
        code = run(text.split())
    assert code == 0, text
    print(f"$ protodepth {text}\n{said.getvalue()}", flush=True)
    return said.getvalue()


def turned(depth: np.ndarray, image: Picture, K: np.ndarray, size: tuple[int, int], yaw: float = 0.45) -> Picture:
    """The point cloud seen from the side: squares of a pixel's width, the nearest in front."""
    xyz, rgb = pictures.point_cloud(depth, image, K)
    middle = np.array([0, 0, np.median(xyz[:, 2])])
    turn, tilt = np.eye(3), np.eye(3)
    turn[[0, 0, 2, 2], [0, 2, 0, 2]] = np.cos(yaw), -np.sin(yaw), np.sin(yaw), np.cos(yaw)
    tilt[[1, 1, 2, 2], [1, 2, 1, 2]] = np.cos(0.25), -np.sin(0.25), np.sin(0.25), np.cos(0.25)
    x, y, z = ((xyz - middle) @ (tilt @ turn).T + 1.25 * middle).T
    height, width = size
    focal = K[0, 0] * width / image.shape[1]
    out = np.full((height, width, 3), 255, np.uint8)
    half = np.ceil(0.6 * focal * (xyz[:, 2] / K[0, 0]) / np.maximum(z, 0.1)).astype(int)
    for n in np.argsort(-z):  # painter: far points first
        u, v, h = round(width / 2 + focal * x[n] / z[n]), round(height / 2 + focal * y[n] / z[n]), half[n]
        if z[n] > 0.2 and 0 <= u < width and 0 <= v < height:
            out[max(0, v - h) : v + h, max(0, u - h) : u + h] = rgb[n]
    return out


def bar(height: int, low: float, high: float, scale: pictures.Scale) -> Picture:
    """The colours of the depth with their numbers."""
    canvas = Image.new("RGB", (70, height), "white")
    colours = pictures.palette()[np.linspace(255, 1, height - 20).astype(int)]
    canvas.paste(Image.fromarray(colours[:, None].repeat(14, 1)), (0, 10))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(15)
    for value in pictures.ticks(low, high, scale):
        y = 10 + (1 - float(pictures.share(np.array(value), low, high, scale))) * (height - 20)
        draw.text((20, y), f"{value:g} m", fill="black", font=font, anchor="lm")
    return np.asarray(canvas)


def row(parts: dict[str, Picture], name: str) -> None:
    """Pictures of one height side by side with their titles, as a PNG of few colours."""
    height = next(iter(parts.values())).shape[0]
    width = sum(p.shape[1] + GAP for p in parts.values()) - GAP
    canvas = Image.new("RGB", (width, height + TITLE), "white")
    draw, font, x = ImageDraw.Draw(canvas), ImageFont.load_default(16), 0
    for title, part in parts.items():
        draw.text((x, 2), title.strip(), fill="black", font=font)
        canvas.paste(Image.fromarray(part), (x, TITLE))
        x += part.shape[1] + GAP
    few_colours(canvas).save(PICTURES / name, optimize=True)
    print(f"wrote {PICTURES / name} ({(PICTURES / name).stat().st_size / 1000:.0f} kB)", flush=True)


def few_colours(picture: Image.Image) -> Image.Image:
    """At most 256 colours, mixed where one is missing: without that a depth map has steps that are not in it."""
    palette = picture.quantize(256, method=Image.Quantize.MEDIANCUT)
    return picture.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG)


def fit(picture: Picture, height: int) -> Picture:
    width = round(picture.shape[1] * height / picture.shape[0])
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.NEAREST))


def predict_picture() -> None:
    call("data example room --world room --frames 3 --size 480x640")
    call(
        "predict --image room/image/000000.png --sparse room/sparse/000000.png --intrinsics room/intrinsics.txt "
        "--depth-unit mm --out result"
    )
    image, points = read_image(Path("room/image/000000.png")), read_depth(Path("room/sparse/000000.png"), "mm")
    depth, K = read_depth(Path("result/depth.png"), "kitti"), np.loadtxt("room/intrinsics.txt")
    low, high, scale = pictures.limits([depth])
    seen = turned(depth, image, K, (240, 320))
    dense = fit(pictures.colorize(depth, low, high, scale=scale), 240)
    shown = fit(pictures.sparse_overlay(image, points, low, high, scale=scale), 240)
    count = int((points > 0).sum())
    parts = {
        "image": fit(image, 240),
        f"{count} sparse points": shown,
        "depth.png": dense,
        " ": bar(240, low, high, scale),
    }
    row({**parts, "cloud.ply, turned": seen}, "predict.png")


def adapt_picture() -> None:
    call("data example my_recording --world warehouse --size 480x640")
    call("adapt --data my_recording --name warehouse --out my_model")
    for domain in ("base", "warehouse"):
        call(f"evaluate --model my_model --data my_recording --domain {domain}")
    call("domains list --model my_model")
    model = ProtoDepth.from_pretrained("my_model")
    image, K = read_image(Path(f"my_recording/image/{FRAME}.png")), np.loadtxt("my_recording/intrinsics.txt")
    points, truth = (read_depth(Path(f"my_recording/{kind}/{FRAME}.png"), "mm") for kind in ("sparse", "ground_truth"))
    maps = [model.predict(image, points, K, domain=d).depth for d in ("base", "warehouse")]
    low, high, scale = pictures.limits([truth])
    shown = fit(pictures.sparse_overlay(image, points, low, high, scale=scale), 200)
    known = truth > 0
    titles = [
        f"{name}: {1000 * np.abs(depth - truth)[known].mean():.0f} mm"
        for name, depth in zip(("frozen network", "adapted, without labels"), maps, strict=True)
    ]
    coloured = [fit(pictures.colorize(d, low, high, scale=scale), 200) for d in (*maps, truth)]
    parts = dict(zip((*titles, "ground truth"), coloured, strict=True))
    row({"image and sparse points": shown, **parts, " ": bar(200, low, high, scale)}, "adapt.png")


def app_picture(model: str = "my_model") -> None:
    from playwright.sync_api import sync_playwright

    from protodepth.app.answers import Limits
    from protodepth.app.server import running

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with (
        running(ProtoDepth.from_pretrained(model), limits=Limits(seconds=300)) as address,
        sync_playwright() as p,
    ):
        browser = p.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1320, "height": 1040})
        page.set_default_timeout(300_000)
        page.goto(address)
        page.click("[data-world=warehouse]")
        page.wait_for_selector(".pd-result[data-frame=warehouse]")
        page.wait_for_timeout(5000)  # the clouds are drawn by a script
        picture = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    few_colours(picture.convert("RGB")).save(PICTURES / "app.png", optimize=True)
    print(f"wrote {PICTURES / 'app.png'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--app", action="store_true", help="also a screenshot of protodepth app")
    parser.add_argument("--model", help="only the screenshot, of the page with this model")
    given = parser.parse_args()
    if given.model:
        app_picture(given.model)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        predict_picture()
        adapt_picture()
        if given.app:
            app_picture()
        os.chdir(PICTURES)


if __name__ == "__main__":
    main()
