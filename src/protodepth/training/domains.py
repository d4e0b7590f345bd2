"""What is known about the domains of a model: sizes, origin, likeness; and describing the base."""

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protodepth.data.arguments import without_folders
from protodepth.data.frame import Domain
from protodepth.descriptors import similarity
from protodepth.errors import DomainError
from protodepth.methods.statistics import describe
from protodepth.model import ProtoDepth
from protodepth.selection import fit_gaussians


@dataclass(frozen=True, slots=True)
class Facts:
    """One line of ``protodepth domains list``."""

    name: str
    parameters: int  # prototypes and descriptor
    percent: float  # of the backbone's parameters
    bytes: int  # of its folder; 0 if it is not on disk
    source: str
    when: str
    samples: str  # how many frames its statistics are from


def facts(model: ProtoDepth, name: str, folder: Path | None = None) -> Facts:
    overhead, history = model.overhead(), model.history.get(name, {})
    count = overhead.domains[name] + overhead.descriptors[name]
    statistics = model.statistics.get(name)
    return Facts(
        name,
        count,
        100 * count / overhead.backbone,
        folder_bytes(folder / "domains" / name) if folder else 0,
        source_of(history),
        str(history.get("when", "-"))[:16].replace("T", " "),
        f"{statistics.count} + {len(statistics.samples)} frames" if statistics else "none",
    )


def source_of(history: dict[str, Any]) -> str:
    """What a domain was learned from, in a word."""
    data = history.get("data", {})
    recipe = history.get("recipe", {})
    return str(history.get("source") or recipe.get("data") or data.get("world") or data.get("dataset") or "-")


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def similarity_matrix(model: ProtoDepth) -> tuple[tuple[str, ...], list[list[float]]]:
    """Cosines between the descriptors of the domains that can be chosen."""
    names, R = model.descriptors()
    return names, similarity(R, R).tolist() if names else []


def details(model: ProtoDepth, name: str, folder: Path | None = None) -> dict[str, Any]:
    """Everything about one domain, JSON-able."""
    domain, overhead = model.domain(name), model.overhead()
    names, matrix = similarity_matrix(model)
    found: dict[str, Any] = {
        "name": name,
        "base": domain.base,
        "parameters": {**overhead.layers[name], "descriptor": overhead.descriptors[name]},
        "percent_of_backbone": round(overhead.percent[name], 3),
        "bytes": folder_bytes(folder / "domains" / name) if folder else None,
        "backbone": {"name": model.backbone.name, "sha256": model.fingerprint()},
        "prototypes": dataclasses.asdict(domain.config),
        "history": model.history.get(name, {}),
    }
    if name in names:
        found["similarity"] = {n: round(v, 5) for n, v in zip(names, matrix[names.index(name)], strict=True)}
    if name in model.statistics and all(n in model.statistics for n in names):
        gaussians = fit_gaussians(tuple(model.statistics[n] for n in names))
        own, index = model.statistics[name], names.index(name)
        distances = gaussians.distances(own.mean[None].to(gaussians.means.device))[0].tolist()
        found["statistics"] = {
            "frames": own.count,
            "left_out": len(own.samples),
            "unknown_beyond": round(float(gaussians.thresholds()[index]), 3),
            "distance_of_mean": {n: round(v, 3) for n, v in zip(names, distances, strict=True)},
        }
    return found


def describe_base(model: ProtoDepth, data: Domain, name: str | None = None, *, source: str = "") -> str:
    """Learn the base's descriptor and statistics from data; returns its name.
    An adapted domain is refused, the base is replaced.
    """
    name = name or data.name
    if name in model.domains and not model.domain(name).base:
        raise DomainError(f"{name!r} is an adapted domain with a learned descriptor: describe is for the base network")
    others = [n for n in model.domains if model.domain(n).base and n != name]
    if others:
        raise DomainError(f"the base is described already, as {others[0]!r}: give --name {others[0]} to do it again")
    describe(model, name, data.train, data.val)
    told = {"source": without_folders(source) or data.name, "data": without_folders(data.identity)}
    when = datetime.now(UTC).isoformat(timespec="seconds")
    history = model.history.get(name) or {"source": told["source"], "when": when}
    model.history[name] = {**history, "described": {**told, "when": when}}
    return name
