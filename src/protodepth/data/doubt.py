"""Sparse depth that can be read and cannot be right: another unit, a sensor's mark for nothing, a dense map.

Millimetres read as metres give a plausible-looking map of garbage, so that such input stops with a word on what would
fit; ``force`` goes on.
"""

import logging

import numpy as np

from protodepth.data.files.images import UNITS, unit_scale
from protodepth.errors import DataError

logger = logging.getLogger("protodepth")
LEAST_INSIDE = 0.5  # share of the points in the network's range, below which the unit is wrong
MARK = 65535  # what 16-bit sensors write where they measured nothing ...
MOST_MARKS = 0.01  # ... in more than so many of the points
DENSE = 0.5  # share of the pixels with a value, above which a map is not sparse


def _share_inside(values: np.ndarray, depth_range: tuple[float, float]) -> float:
    low, high = depth_range
    return float(((values >= low) & (values <= high)).mean()) if values.size else 0.0


def fitting_units(values: np.ndarray, depth_range: tuple[float, float], unit: str = "metres") -> list[str]:
    """The units in which values, read with another one, would lie in a range; with what they would be.

    >>> fitting_units(np.array([1200.0, 2500.0]), (0.1, 8.0))
    ['mm: 1.26 to 2.44 m', 'tum: 0.25 to 0.49 m']
    """
    stored, used = values * unit_scale(unit), unit_scale(unit)
    fits = {}
    for name in ("mm", "kitti", "cm", "tum", "metres"):
        depths = stored / UNITS[name]
        if UNITS[name] != used and _share_inside(depths, depth_range) > LEAST_INSIDE:
            low, high = np.percentile(depths, [5, 95])
            fits[f"{name}: {low:.2f} to {high:.2f} m"] = _share_inside(depths, depth_range)
    return sorted(fits, key=lambda text: -round(fits[text], 1))


def reason_against(points: np.ndarray, depth_range: tuple[float, float], unit: str = "metres") -> str | None:
    """Why metres that were read as ``unit`` cannot be right; None if they can.  0 or NaN is no point."""
    values = points[np.nan_to_num(points) > 0].astype(np.float64)
    if values.size == 0:
        return None
    marks = np.isclose(values * unit_scale(unit), MARK, rtol=1e-6)
    if marks.mean() > MOST_MARKS:
        return (
            f"{100 * marks.mean():.0f} % of the sparse points hold {MARK}, which sensors write where they measured "
            "nothing: set them to 0"
        )
    inside = _share_inside(values, depth_range)
    if inside >= LEAST_INSIDE:
        return None
    low, high = np.percentile(values, [5, 95])
    fits = fitting_units(values, depth_range, unit)
    advice = f"read as {'; as '.join(fits)}" if fits else "no usual unit would fit: is this a network for such depths?"
    return (
        f"only {100 * inside:.1f} % of the sparse points lie in the network's range of {depth_range[0]:g}-"
        f"{depth_range[1]:g} m: as {unit} they go from {low:.3g} to {high:.3g} m; {advice}"
    )


def check_points(
    points: np.ndarray,
    depth_range: tuple[float, float],
    *,
    unit: str = "metres",
    bounded: bool = True,
    force: bool = False,
    remedy: str = 'give unit="mm" (or kitti, cm, tum) with whole numbers, or convert to metres; force=True goes on',
) -> None:
    """Stop at sparse depth that cannot be right, and say it where a map is dense.

    ``bounded``: of a network that has learned from points only; others take maps with holes, and only one without any
    is strange to them.
    """
    reason = None if force else reason_against(points, depth_range, unit)
    if reason is not None:
        raise DataError(f"{reason}.  {remedy}")
    density = float((np.nan_to_num(points) > 0).mean()) if points.size else 0.0
    if density > (DENSE if bounded else 0.99):
        logger.warning(
            "sparse depth has a value at %.0f %% of the pixels: it is a dense map, and the network completes points "
            "(0 where there is none)",
            100 * density,
        )
