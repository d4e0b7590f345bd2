"""protodepth domains list | show | describe | export | import | rename | remove"""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from protodepth.cli.options import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protodepth.model import ProtoDepth


@dataclass(frozen=True)
class ListDomains:
    """The domains of a model: parameters, size on disk, what each was learned from,
    and how alike their descriptors are.
    """

    model: str = DEFAULT_MODEL
    """A model folder, a run folder or a bundled name."""

    def run(self) -> None:
        from protodepth.cli.options import load_model, model_folder
        from protodepth.training.domains import facts, similarity_matrix

        model, folder = load_model(self.model), model_folder(self.model)
        rows = [facts(model, name, folder) for name in model.domains]
        count = "1 domain" if len(rows) == 1 else f"{len(rows)} domains"
        print(f"{folder}: {model.backbone.name}, {model.overhead().backbone:,} parameters, {count}")
        if not rows:
            print("  none yet: protodepth adapt learns one, protodepth domains describe describes the base")
            return
        _table(
            ["domain", "parameters", "of base", "on disk", "learned from", "when", "statistics"],
            [
                [f.name, f"{f.parameters:,}", f"{f.percent:.1f} %", _kilobytes(f.bytes), f.source, f.when, f.samples]
                for f in rows
            ],
        )
        names, matrix = similarity_matrix(model)
        if len(names) > 1:
            print("\ncosine between descriptors")
            _table(["", *names], [[name, *(f"{v:.3f}" for v in row)] for name, row in zip(names, matrix, strict=True)])


@dataclass(frozen=True)
class ShowDomain:
    """Everything that is stored about one domain."""

    name: str
    """Name of the domain."""
    model: str = DEFAULT_MODEL
    """A model folder, a run folder or a bundled name."""

    def run(self) -> None:
        import json

        from protodepth.cli.options import load_model, model_folder
        from protodepth.training.domains import details

        print(json.dumps(details(load_model(self.model), self.name, model_folder(self.model)), indent=2))


@dataclass(frozen=True)
class DescribeBase:
    """Give the un-adapted network a descriptor and statistics from data of the kind it was trained on,
    so that it can be chosen by itself.
    """

    data: str
    """A recording's folder or a data argument such as worlds:room."""
    model: str
    """A model folder."""
    name: str | None = None
    """Name of the base domain (default: that of the data)."""
    out: Path | None = None
    """Another folder for the changed model (default: the model's own)."""

    def run(self) -> None:
        from protodepth.data.arguments import open_domain
        from protodepth.progress import working
        from protodepth.training.domains import describe_base

        with _changed(self.model, self.out) as model:
            with working(f"opening {self.data}"):
                data = open_domain(self.data)
            with working(f"describing {self.name or data.name} from {len(data.train)} frames"):
                name = describe_base(model, data, self.name, source=self.data)
        print(f"described {name} from {len(data.train)} frames")


@dataclass(frozen=True)
class ExportDomain:
    """One domain as a folder that can be mailed: it fits the base it was learned on and no other."""

    name: str
    """Name of the domain."""
    out: Path
    """The folder to write."""
    model: str = DEFAULT_MODEL
    """A model folder, a run folder or a bundled name."""

    def run(self) -> None:
        from protodepth.cli.options import load_model
        from protodepth.training.domains import folder_bytes

        model = load_model(self.model)
        _check_parcel(model, self.name, self.out)
        model.save_domain(self.name, self.out)
        print(f"wrote {self.out} ({_kilobytes(folder_bytes(self.out))})")


@dataclass(frozen=True)
class ImportDomain:
    """Add an exported domain to a model; refused if it was learned on another base."""

    folder: Path
    """The folder that export wrote."""
    model: str
    """A model folder."""
    name: str | None = None
    """Its name in this model (default: the one it was exported with)."""
    out: Path | None = None
    """Another folder for the changed model (default: the model's own)."""

    def run(self) -> None:
        with _changed(self.model, self.out) as model:
            name = model.load_domain(self.folder, name=self.name)
        print(f"added {name}; the model now has {', '.join(model.domains)}")


@dataclass(frozen=True)
class RenameDomain:
    """Give a domain another name."""

    name: str
    """Name of the domain."""
    to: str
    """Its new name."""
    model: str
    """A model folder."""
    out: Path | None = None
    """Another folder for the changed model (default: the model's own)."""

    def run(self) -> None:
        with _changed(self.model, self.out) as model:
            model.rename_domain(self.name, self.to)
        print(f"{self.name} is now {self.to}")


@dataclass(frozen=True)
class RemoveDomain:
    """Delete a domain from a model."""

    name: str
    """Name of the domain."""
    model: str
    """A model folder."""
    out: Path | None = None
    """Another folder for the changed model (default: the model's own)."""

    def run(self) -> None:
        with _changed(self.model, self.out) as model:
            model.delete_domain(self.name)
        print(f"removed {self.name}; the model now has {', '.join(model.domains) or 'no domains'}")


@contextmanager
def _changed(source: str, out: Path | None) -> "Iterator[ProtoDepth]":
    """The model, to be changed in a ``with`` block whose end writes it, all or nothing, as the only writer of its
    folder; refused at once if something else would be lost there.
    """
    from protodepth.cli.options import check_out, keep_notes, load_model, model_folder
    from protodepth.errors import ConfigError
    from protodepth.storage.folders import BUNDLED
    from protodepth.storage.locks import writing
    from protodepth.storage.replace import check_replaceable

    folder = out or model_folder(source)
    if folder.resolve().is_relative_to(BUNDLED.resolve()):
        raise ConfigError(
            f"{source!r} is bundled with the program and stays as it is: give --out FOLDER for the changed model"
        )
    with writing(folder):
        check_out(source, folder)
        check_replaceable(folder)
        model = load_model(source)
        yield model
        model.save_pretrained(folder, notes=keep_notes(source))
        print(f"wrote {folder}")


def _check_parcel(model: "ProtoDepth", name: str, out: Path) -> None:
    """A parcel may be written again with the same bits; over any other it would take away a domain."""
    from protodepth.errors import ConfigError
    from protodepth.storage.files import tensor_bytes
    from protodepth.storage.replace import described

    meta = described(out, "domain")
    weights = out / "weights.safetensors"
    if meta is None or (weights.exists() and weights.read_bytes() == tensor_bytes(model.domain(name).state_dict())):
        return
    raise ConfigError(f"{out} holds the domain {meta.get('name')!r}, which would be lost: give another --out")


def _kilobytes(size: int) -> str:
    return f"{size / 1000:.1f} kB" if size < 1e6 else f"{size / 1e6:.2f} MB"


def _table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(str(cell)) for cell in column) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
