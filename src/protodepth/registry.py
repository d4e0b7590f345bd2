"""Named things that others may add: one decorator, no directory scan, duplicates raise."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from protodepth.errors import ProtoDepthError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """A table name -> thing.  Outside packages join through the entry-point group ``protodepth.<kind>s``.

    >>> colours = Registry[str]("colour")
    >>> _ = colours.register("red")("#ff0000")
    >>> colours.get("red"), colours.names()
    ('#ff0000', ('red',))
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}
        self._outside_loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        def add(item: T) -> T:
            if name in self._items:
                raise ProtoDepthError(f"{self.kind} {name!r} is registered twice: give one of them another name")
            self._items[name] = item
            return item

        return add

    def get(self, name: str) -> T:
        if name not in self._items:
            self._load_outside()
        if name not in self._items:
            raise UnknownNameError(self.kind, name, self.names())
        return self._items[name]

    def names(self) -> tuple[str, ...]:
        self._load_outside()
        return tuple(sorted(self._items))

    def _load_outside(self) -> None:
        """Entry points are read on first need, not at import: an import has no effects."""
        if self._outside_loaded:
            return
        self._outside_loaded = True
        for point in entry_points(group=f"protodepth.{self.kind}s"):
            if point.name not in self._items:
                item = point.load()
                self._items.setdefault(point.name, item)
