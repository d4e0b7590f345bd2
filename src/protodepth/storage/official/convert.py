"""An official checkpoint of KBNet, VOICED, ScaffNet or FusionNet becomes a normal model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protodepth.backbones.base import Backbone, backbones
from protodepth.backbones.posenet import PoseNet, Rotation
from protodepth.errors import CheckpointError, ConfigError, UnknownNameError
from protodepth.model import ProtoDepth
from protodepth.storage.official.prototypes import load_official_prototypes
from protodepth.storage.official.read import ConversionReport, PublishedFile, detect, load_parts, read_official

__all__ = ["Converted", "convert", "convert_with_report", "load_official_prototypes"]

NETWORKS = ("kbnet", "voiced", "fusionnet", "scaffnet")


@dataclass(frozen=True, slots=True)
class Converted:
    """A model and the account of what was read."""

    model: ProtoDepth
    reports: tuple[ConversionReport, ...]  # depth network, then pose network

    def __str__(self) -> str:
        return "\n".join(map(str, self.reports))


def convert(
    network: str,
    checkpoint: str | Path,
    *,
    preset: str,
    pose: str | Path | None = None,
    rotation: Rotation | None = None,
    depth_range: Sequence[float] | None = None,
) -> ProtoDepth:
    """A published checkpoint as a model without domains.

    ``preset`` is ``void`` (indoor) or ``kitti`` (outdoor); ``pose`` the checkpoint of the pose network, ``rotation``
    how it writes rotations if not as usual for the network (upstream VOICED: ``exponential``); ``depth_range`` the
    limits that the network was trained with, if they are not the preset's.

    Example: ``convert("kbnet", "kbnet-void.pth", preset="void").save_pretrained("kbnet-void/")``
    """
    return convert_with_report(
        network, checkpoint, preset=preset, pose=pose, rotation=rotation, depth_range=depth_range
    ).model


def convert_with_report(
    network: str,
    checkpoint: str | Path,
    *,
    preset: str,
    pose: str | Path | None = None,
    rotation: Rotation | None = None,
    depth_range: Sequence[float] | None = None,
) -> Converted:
    """:func:`convert`, with what was loaded, missing, unexpected and ignored."""
    if network not in NETWORKS:
        raise UnknownNameError("published network", network, NETWORKS)
    kind = backbones.get(network)
    if preset not in kind.presets or preset == "small":
        raise UnknownNameError(f"{network} preset", preset, tuple(p for p in kind.presets if p != "small"))
    _check_options(pose, rotation, depth_range)
    content = read_official(checkpoint)
    options, notes = _backbone_options(network, preset, _recognised(network, content, checkpoint), checkpoint)
    if depth_range is not None:
        options["depth_range"] = tuple(depth_range)
    backbone = kind(**options)
    report = load_parts(backbone, content, _keys(kind), str(checkpoint))
    for note in notes:
        report = report.with_note(note)
    if pose is None:
        return Converted(ProtoDepth(backbone), (report,))
    motion, pose_report = _convert_pose(pose, backbone, rotation)
    return Converted(ProtoDepth(backbone, pose=motion), (report, pose_report))


def _check_options(pose: str | Path | None, rotation: Rotation | None, depth_range: Sequence[float] | None) -> None:
    if rotation is not None and pose is None:
        raise ConfigError("a rotation is that of a pose network: give its checkpoint too (pose=, --pose)")
    if depth_range is not None and not (len(depth_range) == 2 and 0 < depth_range[0] < depth_range[1] < float("inf")):
        raise ConfigError(
            f"depth range {tuple(depth_range)}: expected nearest and farthest in metres, 0 < nearest < farthest"
        )


def _keys(kind: type[Backbone]) -> dict[str, str]:
    keys: dict[str, str] = getattr(kind, "official_keys")  # noqa: B009  every published network has it
    return keys


def _recognised(network: str, content: dict[str, Any], path: str | Path) -> PublishedFile:
    """The file's layout, or an error that says what the file is instead."""
    layout = detect(content)
    if layout is None:
        keys = ", ".join(list(content)[:6]) or "nothing"
        raise CheckpointError(
            f"{path} is none of the published checkpoints (it holds {keys}): expected one of {network}"
        )
    if layout.network == "fusionnet" and network == "scaffnet":
        return layout  # a FusionNet file carries its ScaffNet
    if layout.network == network:
        return layout
    hint = {
        "pose": "give it as the pose network (pose=, --pose) beside the depth network's file",
        "prototypes": "convert the network first, then load_official_prototypes adds these domains",
        "scaffnet": "a FusionNet file has both networks; to convert this one alone, say scaffnet",
    }.get(layout.network, f"convert it as {layout.network}")
    raise CheckpointError(f"{path} is a {layout.network} checkpoint ({layout.detail}), expected {network}: {hint}")


def _backbone_options(
    network: str, preset: str, layout: PublishedFile, path: str | Path
) -> tuple[dict[str, Any], list[str]]:
    """Constructor arguments of the preset, made to fit what the file shows, and what to tell about it."""
    options = dict(backbones.get(network).presets[preset])
    if network == "kbnet":
        return {**options, "coordinates": "official"}, _kbnet_notes(preset, layout, path)
    if network == "voiced":
        return options, []
    if layout.variant == "spp" and preset.endswith("_nospp"):
        raise CheckpointError(
            f"{path} has a spatial pyramid pool: use --preset {preset.removesuffix('_nospp')}, not {preset}"
        )
    if layout.variant == "nospp" and not preset.endswith("_nospp"):
        options = dict(backbones.get(network).presets[f"{preset}_nospp"])
        return options, [f"no spatial pyramid pool in the file: read as preset {preset}_nospp"]
    return options, []


def _kbnet_notes(preset: str, layout: PublishedFile, path: str | Path) -> list[str]:
    family = preset.split("_")[0]
    if layout.variant and layout.variant != family:
        raise CheckpointError(
            f"{path}: {layout.detail}: this is a {layout.variant} checkpoint, use --preset {layout.variant}"
        )
    notes = ["K is scaled as the published network does (1/2 at levels 1, 2 and 3)"]
    if family == "void":
        notes.append("void and void_train differ only in window sizes, which a file does not show: the preset decides")
    return notes


def _convert_pose(path: str | Path, backbone: Backbone, rotation: Rotation | None) -> tuple[PoseNet, ConversionReport]:
    content = read_official(path)
    layout = detect(content)
    if layout is None or layout.network != "pose":
        what = f"a {layout.network} checkpoint ({layout.detail})" if layout else "not a published pose network"
        raise CheckpointError(f"{path} is {what}, expected the checkpoint of a pose network")
    options = {**backbone.default_pose, "kind": layout.variant}
    if rotation is not None:
        options["rotation"] = rotation
    net = PoseNet(**options)
    report = load_parts(net, content, PoseNet.official_keys, str(path))
    return net, report.with_note(f"{layout.variant}, rotation {net.rotation}")
