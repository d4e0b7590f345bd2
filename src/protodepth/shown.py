"""Objects that show themselves.  What draws them stands above them in the house, so it is looked up when asked."""

from importlib import import_module
from typing import Any


class Shown:
    """A picture of itself: in a notebook as the last line of a cell, and anywhere by ``show()``."""

    __slots__ = ()

    def show(self) -> Any:
        """Draw with matplotlib, in a window or below the cell; returns the figure."""
        return import_module("protodepth.report.show").show(self)

    def _repr_html_(self) -> str:
        return str(import_module("protodepth.report.show").html(self))
