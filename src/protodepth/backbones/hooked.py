"""Any network as a backbone, unchanged: its latent layers are outputs of its own modules, reached by forward hooks.

``encode`` runs the frozen network once and records the taps.  ``decode`` runs it again and puts each adapted latent in
the place of the tap's output.  What deeper encoder stages make of an adapted skip is overwritten by their own taps, so
a skip is adapted only on its way to the decoder, as long as the stages below it are tapped too.
"""

import copy
import difflib
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from protodepth.backbones.base import Backbone
from protodepth.errors import ConfigError, TapError
from protodepth.types import Batch, Depth, Latents, LatentSpec, Modality

Call = Callable[[Any, Batch], Depth]
Hook = Callable[[nn.Module, Any, Any], Any]
TapLayout = Literal["bchw", "bnc", "bhwc"]

# Hooks belong to the module, not to a thread: while one thread records, another's pass would be recorded as well.
_RUNNING = threading.RLock()


@dataclass(frozen=True, slots=True)
class Tap:
    """One latent layer of a network: the output of the module at ``path``.

    ``path`` is what ``named_modules`` calls it, e.g. ``"encoder.layer2"``.  If the module returns several things, say
    which: ``"encoder[0]"``, ``"backbone[feature_maps][2]"``.  ``layout`` is guessed if not given: four sides are a map
    (bchw), three a list of positions (bnc); maps with channels last are ``"bhwc"``.

    >>> Tap("encoder.layers.2[0]").name
    'encoder_layers_2_0'
    """

    path: str
    modality: Modality = Modality.FUSED
    layout: TapLayout | None = None
    bottleneck: bool = False

    @property
    def name(self) -> str:
        """Letters, digits and underscores."""
        name = re.sub(r"\W+", "_", self.path).strip("_")
        return f"{name}_tap" if hasattr(nn.ModuleDict, name) else name  # prototype sets live in a ModuleDict

    @property
    def module(self) -> str:
        return self.path.split("[")[0]

    @property
    def keys(self) -> tuple[int | str, ...]:
        keys = re.findall(r"\[([^\]]+)\]", self.path)
        return tuple(int(k) if re.fullmatch(r"-?\d+", k) else k for k in keys)

    def read(self, output: Any) -> Tensor:
        """The tapped tensor as bchw or bnc; a copy, because later modules may work in place."""
        tensor = _pick(output, self.keys, self.path)
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise TapError(f"tap {self.path!r} gives a {_describe(tensor)}, expected one floating-point tensor")
        layout = self.layout or {4: "bchw", 3: "bnc"}.get(tensor.ndim)
        if layout is None or tensor.ndim != len(layout):
            raise TapError(
                f"tap {self.path!r} gives a {_describe(tensor)}, which is no {layout or 'bchw or bnc'} layer"
            )
        return tensor.flatten(1, 2).clone() if layout == "bhwc" else tensor.clone()

    def write(self, output: Any, value: Tensor) -> Any:
        """``output`` with the tapped tensor replaced."""
        before = _pick(output, self.keys, self.path)
        return _put(output, self.keys, value.clone().reshape(before.shape))


class HookedBackbone(Backbone):
    """A network with taps; made by :func:`wrap`.  Passes through it take turns: one thread at a time."""

    name = "hooked"  # not in the registry: a network of the user's own cannot be built from a configuration

    def __init__(
        self,
        module: nn.Module,
        taps: Sequence[Tap],
        call: Call,
        depth_range: tuple[float, float],
        example: Batch | None = None,
    ) -> None:
        super().__init__()
        self.module, self.call = module, call
        self.taps = _with_bottleneck(taps)
        self.depth_range = (float(depth_range[0]), float(depth_range[1]))
        _check_paths(module, self.taps)
        layers = self._probe(_example(module) if example is None else example)
        self.latent_specs = tuple(_spec(tap, layers[tap.name]) for tap in self.taps)
        self.default_layers = tuple(tap.name for tap in self.taps)

    def config(self) -> dict[str, Any]:
        """Taps and range.  Not enough to build the network, but part of what a domain is bound to."""
        return {"taps": [asdict(tap) for tap in self.taps], "depth_range": list(self.depth_range)}

    def encode(self, batch: Batch) -> Latents:
        inputs = Batch(image=batch.image, sparse_depth=batch.sparse_depth, intrinsics=batch.intrinsics)
        return Latents(self._record(inputs), {"batch": inputs})

    def decode(self, latents: Latents) -> Depth:
        def replace(taps: Sequence[Tap]) -> Hook:
            def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
                for tap in taps:
                    output = tap.write(output, latents.layers[tap.name])
                return output

            return hook

        return self._run(latents.context["batch"], replace)

    def check(self, batch: Batch) -> dict[str, float]:
        """Prove that the taps work: the largest change of depth in metres when noise is added to each of them.

        A :class:`TapError` says what is wrong: replaying the recorded latents does not reproduce the network, or a tap
        does not change the output.  Depth outside ``depth_range`` is a :class:`ConfigError`.
        """
        with _probing(self.module), torch.no_grad():
            plain, latents = self._run(batch), self.encode(batch)
            self._check_range(plain)
            replayed = self.decode(latents)
            if not torch.allclose(replayed, plain, rtol=1e-6, atol=1e-6):
                raise TapError(
                    f"replaying the taps changes the output by up to {float((replayed - plain).abs().max()):.3g} m: "
                    "the network is random or keeps state between passes, so its taps cannot be adapted"
                )
            changes = {tap.name: self._change(tap, latents, plain) for tap in self.taps}
        smallest = 1e-6 * float(plain.abs().max())  # float32 rounding
        idle = [tap.path for tap in self.taps if not changes[tap.name] > smallest]
        if idle:
            raise TapError(
                f"the output does not depend on tap {', '.join(map(repr, idle))}: nothing reads it, "
                "or all that read it are overwritten by other taps; remove it, "
                "or tap where its features enter the decoder"
            )
        return changes

    def _change(self, tap: Tap, latents: Latents, plain: Depth) -> float:
        X = latents.layers[tap.name]
        noise = torch.randn(X.shape, generator=torch.Generator().manual_seed(0)).to(X)
        moved = self.decode(latents.with_layers({tap.name: X + noise * X.std().clamp(min=1e-3)}))
        return float((moved - plain).abs().max())

    def _check_range(self, depth: Depth) -> None:
        (low, high), span = self.depth_range, (float(depth.min()), float(depth.max()))
        if not (low * (1 - 1e-5) <= span[0] and span[1] <= high * (1 + 1e-5)):
            raise ConfigError(
                f"the network answers {span[0]:g} to {span[1]:g} m, outside its depth_range {low:g}-{high:g} m: "
                "give the range to wrap(), or scale and clamp in call()"
            )

    def _probe(self, example: Batch) -> dict[str, Tensor]:
        try:
            with _probing(self.module), torch.no_grad():
                return self._record(example)
        except (RuntimeError, ValueError) as error:
            raise ConfigError(
                f"the network did not accept an example of {example.size[0]} x {example.size[1]} pixels ({error}): "
                "give wrap() an example= batch that it accepts, or prepare the input in call()"
            ) from error

    def _record(self, batch: Batch) -> dict[str, Tensor]:
        layers: dict[str, Tensor] = {}

        def watch(taps: Sequence[Tap]) -> Hook:
            def hook(_module: nn.Module, _args: Any, output: Any) -> None:
                for tap in taps:
                    if tap.name in layers:
                        raise TapError(f"tap {tap.path!r} runs more than once in a pass: tap a module that runs once")
                    layers[tap.name] = tap.read(output)

            return hook

        self._run(batch, watch)
        for tap in self.taps:
            if tap.name not in layers:
                raise TapError(f"tap {tap.path!r} did not run: call() does not use this module, or not as module(...)")
        return {tap.name: layers[tap.name] for tap in self.taps}

    def _run(self, batch: Batch, hook: Callable[[Sequence[Tap]], Hook] | None = None) -> Depth:
        hooks: dict[str, Hook] = {}
        if hook is not None:
            for path in {tap.module: None for tap in self.taps}:
                hooks[path] = hook([tap for tap in self.taps if tap.module == path])
        with _hooks(self.module, hooks):
            depth = self.call(self.module, batch)
        expected = (len(batch), 1, *batch.size)
        if not isinstance(depth, Tensor) or tuple(depth.shape) != expected:
            raise ConfigError(
                f"call(module, batch) returned a {_describe(depth)}, expected a tensor {expected} of depth in metres"
            )
        return depth


def wrap(
    module: nn.Module,
    taps: Sequence[Tap | str],
    call: Call,
    *,
    depth_range: tuple[float, float] = (0.1, 100.0),
    example: Batch | None = None,
) -> HookedBackbone:
    """Any network as a backbone.

    ``call(module, batch)`` runs it and returns depth (b, 1, h, w) in metres; ``taps`` are its latent layers, paths or
    :class:`Tap`; the last is the bottleneck unless another is marked.  ``example`` is a batch the network accepts, to
    learn the channels from (default: one random frame of 128 x 160).  Follow with ``check(batch)``.

    >>> net = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 2, 2), nn.Softplus())
    >>> wrapped = wrap(net, taps=["1"], call=lambda net, b: net(torch.cat([b.image, b.sparse_depth], 1)) + 0.1)
    >>> wrapped.bottleneck
    LatentSpec(name='1', channels=8, modality=<Modality.FUSED: 'fused'>, layout='bchw', bottleneck=True)
    """
    listed = [Tap(tap) if isinstance(tap, str) else tap for tap in taps]
    return HookedBackbone(module, listed, call, depth_range, example)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where a network could be tapped."""

    path: str
    layout: TapLayout
    channels: int
    stride: float  # pixels of the image per position, along a side

    def __str__(self) -> str:
        return f"{self.path:<48} {self.layout:<5} {self.channels:>5} channels   stride {self.stride:.3g}"


def candidate_taps(module: nn.Module, batch: Batch, call: Call, *, levels: int | None = None) -> tuple[Candidate, ...]:
    """All modules that run once in a pass and give a map or a list of positions, in the order they finish.

    ``levels`` leaves out what is nested deeper: 2 keeps ``encoder.layer2`` and drops ``encoder.layer2.conv``.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Upsample(scale_factor=2), nn.Conv2d(8, 1, 1))
    >>> b = Batch(image=torch.rand(1, 3, 8, 8), sparse_depth=torch.ones(1, 1, 8, 8), intrinsics=torch.eye(3)[None])
    >>> print(*candidate_taps(net, b, lambda net, b: net(b.image)), sep="\\n")  # doctest: +NORMALIZE_WHITESPACE
    0 bchw 8 channels stride 2
    1 bchw 8 channels stride 1
    2 bchw 1 channels stride 1
    """
    candidates: dict[str, Candidate] = {}
    runs: dict[str, int] = {}

    def watch(path: str) -> Hook:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            runs[path] = runs.get(path, 0) + 1
            for key, tensor in _tensors(path, output):
                candidate = _candidate(key, tensor, batch)
                if candidate is not None:
                    candidates[key] = candidate

        return hook

    paths = [path for path, _ in module.named_modules() if path]
    hooks = {path: watch(path) for path in paths if levels is None or path.count(".") < levels}
    with _probing(module), torch.no_grad(), _hooks(module, hooks):
        call(module, batch)
    return tuple(c for c in candidates.values() if runs[c.path.split("[")[0]] == 1)


def _candidate(path: str, tensor: Tensor, batch: Batch) -> Candidate | None:
    if not tensor.is_floating_point() or tensor.ndim not in (3, 4) or tensor.shape[0] != len(batch):
        return None
    height, width = batch.size
    if tensor.ndim == 3:
        return Candidate(path, "bnc", tensor.shape[2], math.sqrt(height * width / tensor.shape[1]))

    def skewness(h: int, w: int) -> float:  # 0 if (h, w) has the proportions of the image
        return abs(math.log(height * w / (width * h)))

    _, a, b, c = tensor.shape
    if skewness(a, b) < skewness(b, c):
        return Candidate(path, "bhwc", c, height / a)
    return Candidate(path, "bchw", a, height / b)


def _tensors(path: str, output: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested tuples, lists and dictionaries, with the path of a tap on it."""
    if isinstance(output, Tensor):
        yield path, output
    elif isinstance(output, Mapping):
        for key, value in output.items():
            yield from _tensors(f"{path}[{key}]", value)
    elif isinstance(output, (tuple, list)):
        for i, value in enumerate(output):
            yield from _tensors(f"{path}[{i}]", value)


def _pick(output: Any, keys: tuple[int | str, ...], path: str) -> Any:
    for key in keys:
        try:
            output = output[key]
        except (LookupError, TypeError):
            raise TapError(f"tap {path!r}: [{key}] is not in the module's output, a {_describe(output)}") from None
    return output


def _put(output: Any, keys: tuple[int | str, ...], value: Tensor) -> Any:
    if not keys:
        return value
    inner = _put(output[keys[0]], keys[1:], value)
    if not isinstance(output, tuple):
        changed = copy.copy(output)
        changed[keys[0]] = inner
        return changed
    items = list(output)
    items[cast(int, keys[0])] = inner
    return type(output)(*items) if hasattr(output, "_fields") else tuple(items)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} tensor of shape {tuple(value.shape)}".removeprefix("torch.")
    if isinstance(value, Mapping):
        return f"{type(value).__name__} with keys {list(value)}"
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, (tuple, list)) else type(value).__name__


def _with_bottleneck(taps: Sequence[Tap]) -> tuple[Tap, ...]:
    """Exactly one tap is the bottleneck: the one that says so, or the last."""
    names = [tap.name for tap in taps]
    if not taps or len(set(names)) < len(names):
        raise TapError(f"taps must be at least one and different, got {[tap.path for tap in taps]}")
    marked = [tap for tap in taps if tap.bottleneck]
    if len(marked) > 1:
        raise TapError(f"one tap is the bottleneck, not several: {[tap.path for tap in marked]}")
    if marked:
        return tuple(taps)
    last = taps[-1]
    return (*taps[:-1], Tap(last.path, last.modality, last.layout, bottleneck=True))


def _check_paths(module: nn.Module, taps: Sequence[Tap]) -> None:
    known = [path for path, _ in module.named_modules(remove_duplicate=False) if path]
    for tap in taps:
        if tap.module not in known:
            close = difflib.get_close_matches(tap.module, known, 3) or known[:8]
            raise TapError(
                f"the network has no module {tap.module!r}; near it: {', '.join(close)}. "
                "candidate_taps(module, batch, call) lists all"
            )


def _spec(tap: Tap, X: Tensor) -> LatentSpec:
    channels, layout = (X.shape[1], "bchw") if X.ndim == 4 else (X.shape[2], "bnc")
    return LatentSpec(tap.name, channels, tap.modality, cast(Literal["bchw", "bnc"], layout), tap.bottleneck)


def _example(module: nn.Module) -> Batch:
    """One random frame with a few points."""
    height, width = 128, 160
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(1, 3, height, width, generator=generator)
    points = (torch.rand(1, 1, height, width, generator=generator) - 0.95).clamp(min=0) * 40
    K = torch.tensor([[[100.0, 0, width / 2], [0, 100.0, height / 2], [0, 0, 1]]])
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    return Batch(image=image, sparse_depth=points, intrinsics=K).to(device)


@contextmanager
def _hooks(module: nn.Module, hooks: Mapping[str, Hook]) -> Iterator[None]:
    """Forward hooks on submodules for the length of a ``with`` block, whatever happens in it."""
    with _RUNNING:
        handles = []
        try:
            for path, hook in hooks.items():
                handles.append(module.get_submodule(path).register_forward_hook(hook))
            yield
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def _probing(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, then each submodule's own mode again: a probe must not move the statistics of batch norms."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
