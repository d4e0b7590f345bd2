"""Published prototype files: read them, and add their domains to a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from protodepth.errors import CheckpointError, DomainError, UnknownNameError
from protodepth.storage.history import History
from protodepth.storage.official.read import detect, read_official

if TYPE_CHECKING:
    from protodepth.model import ProtoDepth
    from protodepth.prototypes import DomainPrototypes

Names = Mapping[str, str] | Sequence[str] | None  # stored names to load, or stored name -> new name
# -- prototypes

LAYERS = {
    **{f"i{n}": f"skip{n}_image" for n in (2, 3, 4)},
    **{f"d{n}": f"skip{n}_depth" for n in (2, 3, 4)},
    "latent": "latent",
}
KINDS = {"linear": "A", "token_pools": "P", "key_pools": "W"}


@dataclass(frozen=True, slots=True)
class OfficialDomain:
    """Prototypes of one domain in the paper's notation: layer -> {A (c), P (N, c), W (c, c)}, and the descriptor."""

    name: str
    layers: dict[str, dict[str, Tensor]]
    descriptor: Tensor | None

    @property
    def sizes(self) -> tuple[int, int]:
        """(N_I, N_z)"""
        return self.layers["latent"]["P"].shape[0], self.layers["skip2_depth"]["P"].shape[0]


def _read_prototypes(path: str | Path) -> list[OfficialDomain]:
    """The domains of an official prototype file, in its order.

    The file's W is the transpose of the paper's (its keys are P W^T).  Descriptors are stored as ``selector_<i>``:
    i is the place in the stored list of names, so they are bound by that list.
    """
    content = read_official(path)
    layout = detect(content)
    if layout is None or layout.network != "prototypes":
        kind = f"a {layout.network} checkpoint" if layout else "none of the published files"
        raise CheckpointError(f"{path} is {kind}, expected a prototype file (with token_pools and dataset_uids)")
    names = _stored_names(content, path)
    return [_read_domain(content, name, i, path) for i, name in enumerate(names)]


def _stored_names(content: Mapping[str, Any], path: str | Path) -> list[str]:
    in_pools = list(content["latent_token_pools_state_dict"]) if "latent_token_pools_state_dict" in content else []
    names = content.get("dataset_uids")
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(in_pools):
        raise CheckpointError(
            f"{path} lists the domains {names} but has prototypes for {in_pools}: "
            "the list says whose each descriptor is, so the two must agree"
        )
    return [str(name) for name in names]


def _read_domain(content: Mapping[str, Any], name: str, index: int, path: str | Path) -> OfficialDomain:
    layers: dict[str, dict[str, Tensor]] = {}
    for theirs, ours in LAYERS.items():
        layers[ours] = {}
        for kind, letter in KINDS.items():
            state = content.get(f"{theirs}_{kind}_state_dict", {})
            if name not in state:
                raise CheckpointError(f"{path} has no {theirs}_{kind} for domain {name!r}: the file is incomplete")
            layers[ours][letter] = state[name]
        layers[ours]["A"] = layers[ours]["A"].reshape(-1)
        layers[ours]["W"] = layers[ours]["W"].mT.contiguous()
    descriptor = content.get(f"selector_{index}")
    return OfficialDomain(name, layers, None if descriptor is None else descriptor.detach().reshape(-1))


def load_official_prototypes(model: "ProtoDepth", path: str | Path, names: Names = None) -> tuple[str, ...]:
    """Add the domains of an official prototype file to a model: all that are asked for, or none.

    ``names`` picks some of the stored names, or (a mapping) picks and renames them.  Returns the names added.
    """
    stored = {d.name: d for d in _read_prototypes(path)}
    chosen = tuple(stored) if names is None else names
    wanted = dict(chosen) if isinstance(chosen, Mapping) else {n: n for n in chosen}
    for name in wanted:
        if name not in stored:
            raise UnknownNameError(f"domain in {path}", name, tuple(stored))
    fresh = [(ours, theirs, _as_domain(model, stored[theirs], path)) for theirs, ours in wanted.items()]
    added: list[str] = []
    try:
        for ours, theirs, domain in fresh:
            model.insert_domain(ours, domain)
            added.append(ours)
            model.history[ours] = History(origin="official prototypes", file=Path(path).name, stored_as=theirs)
    except DomainError:
        for name in added:
            model.delete_domain(name)
        raise
    return tuple(added)


def _as_domain(model: "ProtoDepth", stored: OfficialDomain, path: str | Path) -> "DomainPrototypes":
    image_size, depth_size = stored.sizes
    config = replace(
        model.config,
        image_size=image_size,
        depth_size=depth_size,
        init="official",
        use_global=True,
        use_projection=True,
        stop_gradient=True,
        projection_rank=None,
        layers=tuple(stored.layers),
        learn_descriptor=stored.descriptor is not None,
    )
    domain = model.new_domain(config, base=False)
    state = {f"sets.{layer}.{letter}": t for layer, part in stored.layers.items() for letter, t in part.items()}
    if stored.descriptor is not None:
        state["descriptor"] = stored.descriptor
    expected = domain.state_dict()
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{path}, domain {stored.name!r}: {name} has shape {tuple(tensor.shape)}, this model needs "
                f"{tuple(expected[name].shape)}: the prototypes belong to another network or size"
            )
    domain.load_state_dict({**expected, **state})
    return domain
