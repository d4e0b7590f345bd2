"""ProtoDepth: a frozen depth-completion network and named domains, given at test time or chosen by descriptor."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from protodepth import extras
from protodepth.backbones.base import Backbone
from protodepth.descriptors import sample_descriptor, select, similarity
from protodepth.errors import DomainError, UnknownNameError, name_taken
from protodepth.notebook import Notebook
from protodepth.prototypes import DomainPrototypes, PrototypeConfig, Values, apply, gather
from protodepth.selection import Rule, StatisticsTable, choose
from protodepth.storage import folders
from protodepth.storage.history import History
from protodepth.storage.official.prototypes import Names, load_official_prototypes
from protodepth.storage.paths import check_name
from protodepth.types import BASE, Batch, BatchPrediction, Overhead


class ProtoDepth(Notebook, nn.Module):
    """A frozen backbone with named domains.

    Domains are added, set, used, saved and deleted by explicit calls; ``forward`` never creates parameters.  The
    backbone has no gradients and stays in ``eval()`` whatever ``train()`` says.  ``predict`` is in notebook.py.
    """

    def __init__(
        self, backbone: Backbone, config: PrototypeConfig = PrototypeConfig(), *, pose: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.backbone = backbone.eval().requires_grad_(False)
        self.config = config
        self.pose = pose  # belongs to the training objective; kept here so that it travels with the model
        self.history: dict[str, History] = {}  # domain -> what it was learned from, when, how
        self.statistics = StatisticsTable()  # domain -> of its sample descriptors, to tell what is unknown
        self.rule = Rule()  # how a domain is chosen where none is given
        self._domains = nn.ModuleDict()  # by "d_<name>" (a name could be an attribute); replaced, not changed: threads
        self._active: str | None = None

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(key[2:] for key in self._domains)

    @property
    def active(self) -> str | None:
        return self._active

    def domain(self, name: str) -> DomainPrototypes:
        """The prototype sets and the descriptor of a domain."""
        if f"d_{name}" not in self._domains:
            others = self.domains or ("base (the un-adapted network; no domain was learned yet, adapt does that)",)
            raise UnknownNameError("domain", name, others)
        return cast(DomainPrototypes, self._domains[f"d_{name}"])

    def add_domain(
        self, name: str, *, base: bool = False, config: PrototypeConfig | None = None, seed: int = 0
    ) -> None:
        """A new domain that starts as the frozen network does (``base``: D_1, a descriptor and no prototypes)."""
        self.insert_domain(name, self.new_domain(config or self.config, base=base, seed=seed))

    def insert_domain(self, name: str, domain: DomainPrototypes) -> None:
        """A domain that was made elsewhere: in a file, or by ``new_domain``."""
        check_name(name)
        if f"d_{name}" in self._domains:
            raise name_taken(name)
        others = nn.ModuleDict()
        others._modules = {**self._domains._modules}  # not one by one: a thousand are read one after the other
        others[f"d_{name}"] = domain.to(self._device()).requires_grad_(name == self._active)
        self._domains = others

    def new_domain(self, config: PrototypeConfig, *, base: bool, seed: int = 0) -> DomainPrototypes:
        """Prototypes that fit this backbone, not yet part of the model."""
        specs = {s.name: s for s in self.backbone.latent_specs}
        wanted = config.layers if config.layers is not None else self.backbone.default_layers
        for layer in wanted:
            if layer not in specs:
                raise UnknownNameError(f"latent layer of {self.backbone.name}", layer, tuple(specs))
        layers = [s for s in specs.values() if s.name in wanted]
        domain = DomainPrototypes(layers, self.backbone.bottleneck.channels, config, base=base, seed=seed)
        domain.parts = extras.copy_parts(self.backbone, () if base else config.parts)
        return domain

    def set_domain(self, name: str | None) -> None:
        """Use (and train) this domain; ``"base"`` is the un-adapted network, None chooses per image by descriptor."""
        if name not in (None, BASE):
            self.domain(str(name))
        self._active = name
        self._freeze_inactive()

    @contextmanager
    def using(self, name: str | None) -> Iterator[None]:
        """``set_domain`` for the length of a ``with`` block."""
        before = self._active
        self.set_domain(name)
        try:
            yield
        finally:
            self.set_domain(before)

    def delete_domain(self, name: str) -> None:
        """Forget a domain on purpose; the others keep their bits."""
        self.domain(name)
        self._domains = nn.ModuleDict({key: d for key, d in self._domains.items() if key != f"d_{name}"})
        self.history.pop(name, None)
        self.statistics.pop(name, None)
        self.set_domain(None if self._active == name else self._active)

    def rename_domain(self, name: str, new: str) -> None:
        """Another name for a domain; the order of the domains stays."""
        self.domain(name)
        self.add_domain(new, base=True)  # refuses a name that is taken or not allowed
        kept = {f"d_{new if n == name else n}": self.domain(n) for n in self.domains if n != new}
        self._domains = nn.ModuleDict(kept)
        self.history = {new if n == name else n: value for n, value in self.history.items()}
        self.statistics = StatisticsTable({new if n == name else n: v for n, v in self.statistics.items()})
        self._active = new if self._active == name else self._active

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        """A, P, W and r of the active domain, nothing else."""
        if self._active in (None, BASE):
            raise DomainError(f"no domain is active, so nothing can be trained: set_domain one of {self.domains}")
        domain = self.domain(str(self._active))
        for name, parameter in domain.named_parameters():
            if name != "descriptor" or domain.config.learn_descriptor:
                yield parameter

    def descriptors(self, held: dict[str, DomainPrototypes] | None = None) -> tuple[tuple[str, ...], Tensor]:
        """The domains that can be chosen, and their descriptors R (k, c)."""
        chosen = {n: d.descriptor for n, d in (held or self._held()).items() if d.config.learn_descriptor}
        none = torch.empty(0, self.backbone.bottleneck.channels, device=self._device())
        return tuple(chosen), torch.stack(list(chosen.values())) if chosen else none

    def _held(self) -> dict[str, DomainPrototypes]:
        return {key[2:]: cast(DomainPrototypes, d) for key, d in self._domains.items()}  # of this moment

    def overhead(self) -> Overhead:
        """Exact counts of what each domain adds to the backbone."""
        return extras.overhead(self.backbone, self._held())

    def forward(self, batch: Batch) -> BatchPrediction:
        return self.complete(batch, self._active)

    def complete(self, batch: Batch, domain: str | None, rule: Rule | None = None) -> BatchPrediction:
        """Encode, describe (s), choose (Eq. 11) unless a domain is given, adapt (Eq. 6), decode; no state changes."""
        held, bottleneck = self._held(), self.backbone.bottleneck
        given = [held.get(name) for name in extras.answering(batch, (domain or "",) * len(batch), held)]
        latents = self.backbone.encode(extras.registered(batch, given))
        s = sample_descriptor(latents.layers[bottleneck.name], bottleneck.layout)
        names, R = self.descriptors(held)
        if domain is None and held and not names:
            raise DomainError(f"no domain has a learned descriptor to choose by: name one of {tuple(held)}")
        cosines = similarity(s, R) if names else None
        nearest = None if cosines is None else select(cosines)
        choice = choose(s, names, nearest, self.statistics, domain, rule or self.rule, self.backbone.selection)
        answering = extras.answering(batch, choice.domains, held)
        kept = [held.get(name) for name in answering]
        latents = extras.encode(self.backbone, batch, latents, kept, chosen=domain is None)
        adapted = apply(latents.layers, self._values(answering, held), self.backbone.latent_specs)
        depth = extras.decode(self.backbone, latents.with_layers(adapted), kept)
        seen: dict[str, Any] = {"descriptor": s, "context": latents.context, "distances": choice.distances}
        return BatchPrediction(depth=depth, domains=choice.domains, similarity=cosines, names=names, **seen)

    def _values(self, domains: tuple[str, ...], held: dict[str, DomainPrototypes]) -> dict[str, Values]:
        """One set for all samples (the very same arithmetic as when it is given by name), or a row for each sample."""
        kinds = tuple(dict.fromkeys(domains))
        if len(kinds) == 1:
            return {} if kinds[0] == BASE else (held.get(kinds[0]) or self.domain(kinds[0])).values()
        index = torch.tensor([kinds.index(name) for name in domains], device=self._device())
        none = self.new_domain(self.config, base=True).to(self._device())  # leaves every layer as it is
        return gather([none if n == BASE else held[n] for n in kinds], index, self.backbone.latent_specs)

    @torch.no_grad()
    def predict_batch(self, batch: Batch, domain: str | None = None, rule: Rule | None = None) -> BatchPrediction:
        """``complete`` without gradients.  Keeps no state, so several threads may call it at once."""
        return self.complete(self._fitting(batch, self._device()), domain, rule)

    def fingerprint(self) -> str:
        """sha256 of the backbone (name, configuration, weights): what its domains belong to."""
        return folders.fingerprint(self)

    def save_domain(self, name: str, folder: str | Path) -> None:
        """One domain as a folder of a few MB that fits this backbone and no other."""
        folders.save_domain(self, name, Path(folder))

    def load_domain(self, folder: str | Path, *, name: str | None = None) -> str:
        """Add a saved domain; refused if it was learned on another backbone.  Returns its name."""
        return folders.load_domain(self, Path(folder), name)

    def load_official_prototypes(self, file: str | Path, names: Names = None) -> tuple[str, ...]:
        """Add a published prototype file's domains, or those in ``names`` (a mapping renames); returns their names."""
        return load_official_prototypes(self, file, names)

    def save_pretrained(self, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
        """The whole model as a folder: configuration, backbone, pose network, domains."""
        folders.save_model(self, Path(folder), notes or {})

    @classmethod
    def from_pretrained(cls, source: str | Path, *, backbone: Backbone | None = None) -> "ProtoDepth":
        """A bundled model by name or a saved folder; ``backbone`` for networks that are not in the registry."""
        return folders.load_model(cls, source, backbone)

    def train(self, mode: bool = True) -> "ProtoDepth":
        super().train(mode).backbone.eval()
        return self

    def _freeze_inactive(self) -> None:
        for name in self.domains:
            self.domain(name).requires_grad_(name == self._active)

    def _device(self) -> torch.device:
        return next((p.device for p in self.backbone.parameters()), torch.device("cpu"))
