"""Models and domains as folders: what ``ProtoDepth.save_*`` and ``load_*`` write and read, and the bundled models."""

import dataclasses
import hashlib
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from protodepth.backbones.base import Backbone, backbones, weight_bytes
from protodepth.backbones.posenet import PoseNet
from protodepth.errors import CheckpointError
from protodepth.prototypes import PrototypeConfig
from protodepth.selection import Statistics
from protodepth.storage import card, replace
from protodepth.storage import files as stored_files
from protodepth.storage.history import History
from protodepth.storage.paths import check_inside, check_name

if TYPE_CHECKING:
    from protodepth.model import ProtoDepth

logger = logging.getLogger("protodepth")
BUNDLED = Path(__file__).parents[1] / "weights"


def resolve(source: str | Path) -> Path:
    """The folder of a saved model, or of a bundled one by name."""
    replace.recover(Path(source))
    if Path(source).is_dir():
        return Path(source)
    if str(source) in bundled():
        return BUNDLED / str(source)
    known = ", ".join(bundled()) or "(none)"
    close = get_close_matches(str(source), bundled(), 1)
    meant = f" did you mean {close[0]}?" if close else ""
    raise CheckpointError(
        f"no model {str(source)!r}:{meant} expected the folder of a model (adapt, train and convert write one), "
        f"or a bundled name: {known}"
    )


def bundled() -> tuple[str, ...]:
    """The names of the models that come with the package."""
    return tuple(sorted(p.parent.name for p in BUNDLED.glob("*/config.json")))


def fingerprint(model: "ProtoDepth") -> str:
    """sha256 of a model's backbone (name, configuration, weights): which folders of domains fit it."""
    about = {"backbone": model.backbone.name, "config": model.backbone.config()}
    return stored_files.fingerprint(about, model.backbone.state_dict())


def save_domain(model: "ProtoDepth", name: str, folder: Path) -> None:
    """Write one domain of a model as a folder."""
    model.domain(name)
    with replace.replacing_folder(folder, "domain") as fresh:
        _write_domain(model, name, fresh, fingerprint(model))


def _write_domain(model: "ProtoDepth", name: str, folder: Path, backbone_sha256: str) -> None:
    """The files of a domain in a new folder.  ``backbone_sha256``: the model's fingerprint."""
    domain = model.domain(name)
    weights = stored_files.compact(domain.state_dict())
    files = {"weights.safetensors": stored_files.write_tensors(folder / "weights.safetensors", weights)}
    if name in model.statistics:  # apart from the weights: a folder without them is complete
        tensors = model.statistics[name].tensors()
        files["statistics.safetensors"] = stored_files.write_tensors(folder / "statistics.safetensors", tensors)
    meta = {
        "name": name,
        "base": domain.base,
        "config": dataclasses.asdict(domain.config),
        "latents": [dataclasses.asdict(s) for s in model.backbone.latent_specs],
        "backbone": model.backbone.name,
        "backbone_sha256": backbone_sha256,
        "sha256": files,
        "history": model.history.get(name, History()).to_json(),
    }
    stored_files.write_description(folder / "meta.json", "domain", meta)


def load_domain(
    model: "ProtoDepth", folder: Path, name: str | None = None, *, backbone_sha256: str | None = None
) -> str:
    """Add a saved domain to a model, after all checks that it fits; returns its name."""
    replace.recover(folder)
    meta = stored_files.read_description(check_inside(folder / "meta.json", folder), "domain")
    if backbone_sha256 is None:  # not as a part of a model, of which it is said once
        _say_unsealed(folder, meta)
    ours, theirs = backbone_sha256 or fingerprint(model), str(meta.get("backbone_sha256"))
    if ours != theirs:
        raise CheckpointError(
            f"domain {meta.get('name')!r} in {folder} was learned on another network ({meta.get('backbone')}, "
            f"sha256 {theirs[:12]}); this model is {model.backbone.name}, {ours[:12]}: "
            "load it into the model it was adapted from"
        )
    with _complete(folder / "meta.json"):
        name = name or "".join(meta["name"])  # a name that is no text is an error here
        sha256, history = dict(meta["sha256"]), dict(meta["history"])
        domain = model.new_domain(_prototype_config(meta["config"]), base=bool(meta["base"]))
        file = check_inside(folder / "weights.safetensors", folder)
        tensors = stored_files.read_tensors(file, sha256["weights.safetensors"])
    domain.registration = torch.zeros(3) if "registration" in tensors else None
    domain.gate = torch.zeros(2) if "gate" in tensors else None
    stored_files.load_state(domain, tensors, folder)
    statistics = _read_statistics(model, folder, sha256.get("statistics.safetensors"))
    model.insert_domain(name, domain)
    model.history.update({name: History.from_json(history)} if history else {})
    model.statistics.update({name: statistics} if statistics else {})
    return name


def _read_statistics(model: "ProtoDepth", folder: Path, sha256: str | None) -> Statistics | None:
    if sha256 is None:
        return None
    file = check_inside(folder / "statistics.safetensors", folder)
    try:
        return Statistics.from_tensors(stored_files.read_tensors(file, sha256), model.backbone.bottleneck.channels)
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{file} does not fit this network ({error}): copy the folder again") from None


def save_model(model: "ProtoDepth", folder: Path, notes: dict[str, Any]) -> None:
    """Write a model with its domains and its card as a folder, all or nothing."""
    edited = replace.card_is_edited(folder)
    with replace.replacing_folder(folder, "model") as fresh:
        sha256 = {}
        for file, part in (("backbone.safetensors", model.backbone), ("pose.safetensors", model.pose)):
            if part is not None:
                sha256[file] = stored_files.write_tensors(fresh / file, stored_files.compact(part.state_dict()))
        whole = fingerprint(model) if model.domains else ""  # once, not for every domain
        for name in model.domains:
            _write_domain(model, name, fresh / "domains" / name, whole)
        text = card.card(model, notes).encode()
        sha256[replace.CARD] = hashlib.sha256(text).hexdigest()  # says later whether somebody edited the card
        if not edited:
            stored_files.write_bytes(fresh / replace.CARD, text)
        meta = {
            "backbone": model.backbone.name,
            "backbone_config": model.backbone.config(),
            "pose_config": model.pose.config() if isinstance(model.pose, PoseNet) else None,
            "prototypes": dataclasses.asdict(model.config),
            "domains": list(model.domains),
            "sha256": sha256,
            "notes": notes,
        }
        stored_files.write_description(fresh / "config.json", "model", meta)


def check_nothing_lost(folder: Path, names: Collection[str]) -> None:
    """Refuse to write a model with these domains over one that has others too."""
    known = replace.domain_names(replace.described(folder, "model") or {})
    lost = [name for name in known if name not in names]
    if lost:
        raise CheckpointError(
            f"{folder} has the domain {lost[0]!r}, which would be lost: move that folder away, or give another --out"
        )


def _read_model(
    folder: Path, backbone: Backbone | None
) -> tuple[Backbone, PrototypeConfig, nn.Module | None, list[str]]:
    """Backbone, default prototype configuration, pose network and names of the domains of a saved model."""
    meta = stored_files.read_description(check_inside(folder / "config.json", folder), "model")
    _say_unsealed(folder, meta)
    if backbone is None and meta.get("backbone") == "hooked":
        raise CheckpointError(
            f"{folder} holds a network of your own that was wrapped: give from_pretrained(folder, "
            "backbone=wrap(module, taps, call))"
        )
    with _complete(folder / "config.json"):
        network = backbone or _built(meta, folder / "backbone.safetensors")
        config, sha256 = _prototype_config(meta["prototypes"]), dict(meta["sha256"])
        pose = PoseNet(**meta["pose_config"]) if meta.get("pose_config") else None
        names = [check_name(name) for name in meta["domains"]]
        for name in names:
            check_inside(folder / "domains" / name, folder)
        parts = [("backbone.safetensors", network), *([("pose.safetensors", pose)] if pose else [])]
        tensors = [stored_files.read_tensors(check_inside(folder / f, folder), sha256[f]) for f, _ in parts]
    for (file, part), state in zip(parts, tensors, strict=True):
        stored_files.load_state(part, state, folder / file)
    return network, config, pose, names


def _built(meta: dict[str, Any], file: Path) -> Backbone:
    """The network that a description asks for, if the file of its weights is as large: else it only takes memory."""
    build = partial(backbones.get(meta["backbone"]), **meta["backbone_config"])
    wanted, stored = weight_bytes(build), file.stat().st_size if file.exists() else 0
    if wanted > 8 * stored + 2**20:  # weights may be stored in fewer bits
        raise CheckpointError(
            f"{file} has {stored} bytes, and the network described beside it needs {wanted}: copy the folder again"
        )
    return build()


def load_model(kind: type["ProtoDepth"], source: str | Path, backbone: Backbone | None) -> "ProtoDepth":
    """A model with its domains, from a folder or a bundled name."""
    folder = resolve(source)
    network, config, pose, names = _read_model(folder, backbone)
    model = kind(network, config, pose=pose)
    whole = fingerprint(model) if names else None  # once, not for every domain
    for name in names:
        if load_domain(model, folder / "domains" / name, backbone_sha256=whole) != name:
            raise CheckpointError(f"{folder / 'domains' / name} holds a domain of another name: rename the folder")
    return model


def _say_unsealed(folder: Path, meta: dict[str, Any]) -> None:
    if meta["format_version"] < stored_files.FORMAT_VERSION:
        logger.warning(
            "%s was written by an earlier version, its settings have no checksum: they are taken as they are", folder
        )


@contextmanager
def _complete(path: Path) -> Iterator[None]:
    """What is missing or of the wrong kind in a description is one clear error."""
    try:
        yield
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CheckpointError(
            f"{path} is incomplete, damaged or of another version ({reason}): copy the folder again"
        ) from None


def _prototype_config(values: dict[str, Any]) -> PrototypeConfig:
    layers, parts = values["layers"], tuple(values.get("parts", ()))
    return PrototypeConfig(**{**values, "layers": None if layers is None else tuple(layers), "parts": parts})
