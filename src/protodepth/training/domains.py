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
from protodepth.storage.history import History


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
    """What ``domains list`` says of one domain: parameters, bytes, origin, statistics."""
    overhead, history = model.overhead(), model.history.get(name, History())
    count = overhead.domains[name] + overhead.descriptors[name]
    statistics = model.statistics.get(name)
    return Facts(
        name,
        count,
        100 * count / overhead.backbone,
        folder_bytes(folder / "domains" / name) if folder else 0,
        history.learned_from or "-",
        (history.when or "-")[:16].replace("T", " "),
        f"{statistics.count} + {len(statistics.samples)} frames" if statistics else "none",
    )


def folder_bytes(folder: Path) -> int:
    """Size of a domain's folder on the disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def similarity_matrix(model: ProtoDepth) -> tuple[tuple[str, ...], list[list[float]]]:
    """Cosines between the descriptors of the domains that can be chosen."""
    names, R = model.descriptors()
    return names, similarity(R, R).tolist() if names else []


def details(model: ProtoDepth, name: str, folder: Path | None = None) -> dict[str, Any]:
    """Everything about one domain, JSON-able."""
    domain, overhead = model.domain(name), model.overhead()
    names, matrix = similarity_matrix(model)
    facts_of_domain: dict[str, Any] = {
        "name": name,
        "base": domain.base,
        "parameters": {**overhead.layers[name], "descriptor": overhead.descriptors[name]},
        "percent_of_backbone": round(overhead.percent[name], 3),
        "bytes": folder_bytes(folder / "domains" / name) if folder else None,
        "backbone": {"name": model.backbone.name, "sha256": model.fingerprint()},
        "prototypes": dataclasses.asdict(domain.config),
        "history": model.history.get(name, History()).to_json(),
    }
    if name in names:
        facts_of_domain["similarity"] = {n: round(v, 5) for n, v in zip(names, matrix[names.index(name)], strict=True)}
    gaussians = model.statistics.gaussians(names)
    if name in names and gaussians is not None:
        own, index = model.statistics[name], names.index(name)
        distances = gaussians.distances(own.mean[None].to(gaussians.means.device))[0].tolist()
        facts_of_domain["statistics"] = {
            "frames": own.count,
            "left_out": len(own.samples),
            "unknown_beyond": round(float(gaussians.thresholds()[index]), 3),
            "distance_of_mean": {n: round(v, 3) for n, v in zip(names, distances, strict=True)},
        }
    return facts_of_domain


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
    when, source = datetime.now(UTC).isoformat(timespec="seconds"), without_folders(source) or data.name
    described = History(source=source, data=without_folders(data.identity), when=when)
    history = model.history.get(name) or History(source=source, when=when)
    model.history[name] = dataclasses.replace(history, described=described)
    return name
