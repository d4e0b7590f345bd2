"""Rows of ``bench real`` made by hand: two recordings, three settings, one network."""

from typing import Any

from protodepth.report import real_page


def row(recording: str, pattern: str, role: str, predictor: str, mae: float | None, **more: Any) -> dict[str, Any]:
    errors = {"mae": mae, "rmse": None if mae is None else 2 * mae}
    errors |= dict.fromkeys(real_page.REGIONS, mae)
    label = {"recording": recording, "pattern": pattern, "role": role, "predictor": predictor}
    return {**label, "mean": errors, "points": 500.0, "seconds": 0.05, "frames": [], **more}


def rows() -> list[dict[str, Any]]:
    choice = {"frames": 4, "right": 0.75, "flagged": 0.25, "chosen": {"desk": 3, "car": 1}}
    return [
        row("desk", "500", "classical", "linear", 40.0),
        row("desk", "500", "classical", "nearest", 50.0),
        row("desk", "500", "base", "net", 30.0),
        row("desk", "500", "adapted", "net", 24.0),
        row("desk", "500", "agnostic", "net", 33.0, choice=choice),
        row("desk", "holes", "classical", "linear", 100.0),
        row("desk", "holes", "classical", "nearest", 80.0),
        row("desk", "holes", "base", "net", 88.0),
        row("desk", "holes", "adapted", "net", 88.0),
        row("car", "lidar", "classical", "linear", 400.0),
        row("car", "lidar", "classical", "nearest", 500.0),
        row("car", "lidar", "base", "net", 300.0),
        row("car", "lidar", "adapted", "net", 270.0),
    ]


def document() -> dict[str, Any]:
    told = {"size": [48, 64], "dense": True, "measured": ["a", "b"], "split": "time blocks", "frames": None}
    adapted = {"model": "net", "recording": "desk", "steps": 90, "best_step": 60, "before": 31.0, "after": 25.0}
    adapted |= {"gain": 0.19, "helped": True, "seconds": 61.0}
    choice = {"frames": 9, "right": 1.0, "flagged": 0.0, "flagged_unseen": 0.5, "chosen": {"desk": 9}}
    return {
        "options": {"split": "val"},
        "patterns": {"500": "500 random points", "holes": "a dense map with holes", "lidar": "a sweep"},
        "recordings": {"desk": told, "car": told | {"dense": False}},
        "rows": rows(),
        "adapted": [adapted],
        "choices": [{"model": "net", "recording": "desk", **choice}],
        "missing": [],
        "seconds": 75.0,
    }
