"""What a notebook shows of a prediction, a domain's data, an adaptation and an evaluation: one picture and a table."""

import base64
import io
import json
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from protodepth.data.frame import SPLITS, Domain
from protodepth.data.preview import contact_sheet
from protodepth.errors import DataError
from protodepth.metrics import METRICS, UNITS
from protodepth.report import pictures
from protodepth.report.results import METRIC_NAMES
from protodepth.storage.files import write_bytes
from protodepth.types import Prediction

Caption = Mapping[str, str]


def html(thing: Any) -> str:
    """What a notebook shows: the picture and the table as one piece of HTML that needs nothing from outside."""
    draw, describe = KINDS[type(thing).__name__]
    picture = base64.b64encode(draw(thing)).decode()
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in describe(thing).items())
    name = escape(type(thing).__name__)
    image = f'<img alt="{name}" style="max-width:100%" src="data:image/png;base64,{picture}">'
    return f"<figure>{image}<figcaption><table>{rows}</table></figcaption></figure>"


def show(thing: Any) -> Any:
    """The same picture as a matplotlib figure, with the table's first lines as its title.

    Where there is a screen or a notebook it is shown there, and nothing is handed back: a notebook would show it again.
    """
    import matplotlib
    from matplotlib import pyplot

    draw, describe = KINDS[type(thing).__name__]
    pixels = np.asarray(Pillow.open(io.BytesIO(draw(thing))).convert("RGB"))
    figure, axes = pyplot.subplots(figsize=(9, max(2.0, 9 * pixels.shape[0] / pixels.shape[1])), layout="constrained")
    axes.imshow(pixels)
    axes.set_axis_off()
    axes.set_title("; ".join(f"{k}: {v}" for k, v in list(describe(thing).items())[:2]), fontsize=9)
    if matplotlib.get_backend().lower() == "agg":  # nothing to show it on
        return figure
    pyplot.show()
    return None


# --- a prediction -----------------------------------------------------------------------------------------------------


def draw_prediction(p: Prediction) -> bytes:
    """The image (if it is known) beside depth in colour with its colour bar."""
    depth = Pillow.open(io.BytesIO(pictures.depth_picture(p.depth))).convert("RGB")
    if p.image is None:
        return pictures.png(np.asarray(depth))
    factor = max(1, -(-480 // p.depth.shape[1]))
    image = Pillow.fromarray(pictures.enlarge(pictures.as_uint8(p.image), factor))
    both = Pillow.new("RGB", (image.width + 8 + depth.width, max(image.height, depth.height)), "white")
    both.paste(image, (0, 0))
    both.paste(depth, (image.width + 8, 0))
    return pictures.png(np.asarray(both))


def prediction_facts(p: Prediction) -> Caption:
    low, middle, high = np.percentile(p.depth, [1, 50, 99])
    alike = ", ".join(f"{n} {v:.3f}" for n, v in sorted(p.similarity.items(), key=lambda pair: -pair[1]))
    far = {} if p.excess is None else {"distance": f"{p.excess:.2f} of that at which a frame is unknown"}
    return {
        "domain": p.domain + (" (the frame is unlike every known domain)" if p.unknown else ""),
        "similarity": alike or "none to compare with (no domain has a descriptor yet)",
        **far,
        "depth": f"{low:.2f} .. {high:.2f} m, median {middle:.2f} m",
        "size": f"{p.depth.shape[0]}x{p.depth.shape[1]}",
    }


def cloud(p: Prediction, path: str | Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Points and colours of a prediction that knows its image and camera; written as .ply if a path is given."""
    if p.image is None or p.intrinsics is None:
        raise DataError("this prediction does not know its image and camera: those of model.predict do")
    if path is not None:
        if Path(path).suffix != ".ply":
            raise DataError(f"a point cloud is written as .ply, got {Path(path).name}")
        pictures.save_ply(path, p.depth, p.image, p.intrinsics)
    return pictures.point_cloud(p.depth, p.image, p.intrinsics)


def save(p: Prediction, folder: str | Path) -> list[Path]:
    """depth.npy (metres), depth_color.png, prediction.json and, where image and camera are known, cloud.ply."""
    folder, buffer = Path(folder), io.BytesIO()
    if folder.suffix in (".png", ".jpg", ".npy", ".ply", ".json"):
        raise DataError(f"save writes several files into a folder, got {folder.name}: give a folder")
    np.save(buffer, p.depth.astype(np.float32))
    record = {"domain": p.domain, "unknown": p.unknown, "similarity": p.similarity, "distance": p.distance}
    contents = {
        "depth.npy": buffer.getvalue(),
        "depth_color.png": pictures.depth_picture(p.depth),
        "prediction.json": json.dumps({**record, "excess": p.excess}, indent=2).encode(),
    }
    for name, content in contents.items():
        write_bytes(folder / name, content)
    written = [folder / name for name in contents]
    if p.image is not None and p.intrinsics is not None:
        written.append(folder / "cloud.ply")
        pictures.save_ply(written[-1], p.depth, p.image, p.intrinsics)
    return written


# --- data, adaptation, evaluation -------------------------------------------------------------------------------------


def domain_facts(domain: Domain) -> Caption:
    counts = ", ".join(f"{len(domain.split(s))} {s}" for s in SPLITS)
    known = {k: str(v) for k, v in domain.identity.items() if isinstance(v, str | int | float)}
    rules = f"{domain.rules.min_depth:g} .. {domain.rules.max_depth:g} m"
    return {"domain": domain.name, "frames": counts, "judged depth": rules, **known}


def draw_adaptation(result: Any) -> bytes:
    """Error at hidden points over the steps, and before and after at those of frames that judge."""
    figure = _new_figure()
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    steps, errors = zip(*result.curve, strict=True) if result.curve else ((0, result.steps), result.chosen)
    left.plot(steps, errors, marker="o", markersize=3)
    left.axvline(result.best_step, linestyle=":", color="grey")
    left.set(xlabel="step", ylabel="error at hidden points (mm)", title=f"kept step {result.best_step}")
    right.bar(["before", "after"], [result.before, result.after], color=["#999999", "#1b7f79"])
    right.set(title=f"frames that judge ({result.judged})", ylabel="mm")
    return _as_png(figure)


def adaptation_facts(result: Any) -> Caption:
    return {
        "domain": result.name,
        "error at held-out points": f"{result.before:.1f} -> {result.after:.1f} mm "
        f"({result.change} +- {100 * result.spread:.1f} %): {'helped' if result.helped else 'did not help'}",
        "learned": f"{result.steps} steps on {result.frames} frames in {result.seconds:.0f} s",
        "interpolation": ", ".join(f"{n} {v:.1f} mm" for n, v in result.interpolation.items()) or "not measured",
    }


def draw_evaluation(result: Any) -> bytes:
    """MAE of every frame in order, and the mean."""
    figure = _new_figure()
    axes = figure.subplots()
    errors = [row["mae"] for row in result.images]
    axes.bar(range(len(errors)), errors, color="#1b7f79")
    axes.xaxis.get_major_locator().set_params(integer=True)  # there is no frame 0.25
    axes.axhline(result.mean["mae"], linestyle=":", color="black")
    axes.set(xlabel="frame", ylabel="MAE (mm)", title=f"mean {result.mean['mae']:.1f} mm")
    return _as_png(figure)


def evaluation_facts(result: Any) -> Caption:
    chosen = ", ".join(f"{name} {result.chosen.count(name)}" for name in dict.fromkeys(result.chosen))
    means = {METRIC_NAMES[name]: f"{result.mean[name]:.2f} {UNITS[name]}" for name in METRICS}
    bad = {"left out": f"{len(result.bad_frames)} frames that cannot be read"} if result.bad_frames else {}
    return {"frames": str(len(result.images)), **means, "domain": chosen, **bad}


def _new_figure() -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(8, 3), dpi=100, layout="constrained")


def _as_png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


# Adaptation and Evaluation stand above this room: known by name.
KINDS: dict[str, tuple[Callable[[Any], bytes], Callable[[Any], Caption]]] = {
    "Prediction": (draw_prediction, prediction_facts),
    "Domain": (contact_sheet, domain_facts),
    "Adaptation": (draw_adaptation, adaptation_facts),
    "Evaluation": (draw_evaluation, evaluation_facts),
}
