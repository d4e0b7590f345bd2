"""``recording.toml``: what a recording may say of itself."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from protodepth.data.files import images
from protodepth.errors import DataError, UnknownNameError


def _unit(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    try:
        images.unit_scale(text)
    except UnknownNameError as error:
        raise ValueError(str(error)) from None
    return text


Unit = Annotated[str, pydantic.BeforeValidator(_unit)]
Listed = pydantic.BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value)


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=pydantic.ConfigDict(extra="forbid"))
class Settings:
    """What ``recording.toml`` may say; arguments of ``load_recording`` win over it."""

    name: str = ""  # of the domain; default: the folder's name
    depth_unit: Unit | None = None  # kitti, mm, cm, tum, metres, or the number of steps in a metre
    truth_unit: Unit | None = None  # default: as depth_unit
    sampler: str | None = None  # for dense depth, e.g. "harris:1500"; also written ``sample``
    stride: int | None = pydantic.Field(None, ge=1)  # frames between neighbours; default: from the motion
    fps: float | None = pydantic.Field(None, gt=0)  # used for the stride when there are no poses
    withhold: float = pydantic.Field(0.0, ge=0, lt=1)  # share of sparse points held out as ground truth
    seed: int = 0
    min_depth: float = pydantic.Field(0.1, ge=0)  # evaluation counts ground truth between these, in metres
    max_depth: float = pydantic.Field(100.0, gt=0)
    image: str = "image"
    sparse: str = "sparse"
    depth: str = "depth"
    ground_truth: str = "ground_truth"
    intrinsics: str | None = None  # default: intrinsics.{txt,json,yaml,yml,npy}, camera_info.yaml or intrinsics/
    poses: str | None = None  # default: poses.txt if there
    pose_convention: Literal["camera_to_world", "world_to_camera", "opengl"] = "camera_to_world"
    skip_static: bool = True
    exclude: Annotated[tuple[str, ...], Listed] = ()  # ids of frames not to use
    splits: Annotated[tuple[float, float, float], Listed] = (
        0.7,
        0.1,
        0.2,
    )  # train, val, test: blocks of time in this order
    gap: int | None = pydantic.Field(None, ge=0)  # frames between blocks; default: twice the stride, at least 2 %


def read_settings(folder: Path, **given: Any) -> Settings:
    """``recording.toml`` (if there) under the given values; a wrong field is an error with file and field."""
    path = folder / "recording.toml"
    values: dict[str, Any] = {}
    if path.exists():
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} is not valid TOML ({error})") from None
    settings = make_settings(values, str(path))
    given = _one_name({k: v for k, v in given.items() if v is not None})
    return make_settings({**_one_name(values), **given}, f"options for {folder}") if given else settings


def _one_name(values: dict[str, Any]) -> dict[str, Any]:
    """``sample``, as many a recording.toml has it, is the field ``sampler``; where both are given the field wins."""
    if "sample" not in values:
        return values
    return {"sampler": values["sample"], **{k: v for k, v in values.items() if k != "sample"}}


def make_settings(values: dict[str, Any], where: str) -> Settings:
    """A recording's settings from plain values; a wrong field is an error that names it and lists the fields."""
    try:
        return Settings(**_one_name(values))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        known = ", ".join(Settings.__dataclass_fields__)
        name = ".".join(str(p) for p in first["loc"])
        if first["type"] == "unexpected_keyword_argument":
            raise DataError(f"{where}: {UnknownNameError('field', name, Settings.__dataclass_fields__)}") from None
        problem = f"{name!r} {first['msg'].lower()}, got {first['input']!r}"
        raise DataError(f"{where}: {problem}; the fields are: {known}") from None
