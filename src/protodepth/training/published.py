"""Published values of the paper's trainings, a function for each, with where it is from; choices where sources differ.

Three kinds of source: the paper (section), a published script (UnCLe's, or the networks' own repositories), our choice
where neither says anything.  Where they differ, ``CHOICES`` names the ways; the first of each is the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protodepth.errors import ConfigError, UnknownNameError

INDOOR, OUTDOOR = ("nyu_v2", "scannet", "void"), ("kitti", "waymo", "vkitti")
SEQUENCES = {
    "paper-indoor": ("nyu_v2", "scannet", "void"),
    "paper-outdoor": ("kitti", "waymo", "vkitti"),
    "paper-mixed": ("kitti", "nyu_v2", "waymo"),
}
NETWORKS = ("kbnet", "voiced", "fusionnet", "uformer", "lite")

DETAILS = "paper, supplement, Dataset Details"
TIMING = "paper, supplement, training times"
SIZES = "paper, Prototype Set Sizes"
CODE = "published code"
UNCLE = "UnCLe script"


@dataclass(frozen=True, slots=True)
class Fact:
    """A published value and where it is from."""

    value: Any
    source: str


# name -> the ways, the default first -> what each is
CHOICES: dict[str, dict[str, str]] = {
    "crop": {"paper": "the supplement's", "scripts": "the published scripts' (indoors 416x512)"},
    "batch": {"paper": "12 indoors, 8 outdoors", "methods": "4, as the scripts of the baselines"},
    "schedule": {
        "finetune": "of later domains: UnCLe's finetuning scripts; outdoors, where there is none, as readme",
        "methods": "of later domains: the template of the baselines' scripts, 60 epochs of every dataset",
        "readme": "of later domains: ProtoDepth's README, 15 epochs",
    },
    "augment": {
        "finetune": "indoors UnCLe's base and finetuning scripts; outdoors as methods",
        "methods": "as the scripts of the baselines, everywhere",
    },
    "weights": {
        "scripts": "of the script that is closest: base or finetuning; outdoors, later domains, as methods",
        "methods": "of later domains: .15/.95/2/2 for every network, as the scripts of the baselines",
        "upstream": "of the networks' own repositories, for VOID indoors and KITTI outdoors",
    },
    "objective": {"released": "sums as the networks' code computes them", "paper": "sums as the paper writes them"},
    "poses": {"network": "a pose network learns beside", "given": "poses of the data"},
    "init": {"identity": "a new domain starts as the frozen network", "official": "Kaiming, as the released code"},
    "prototype_rates": {
        "readme": "one learning rate for A, P and W",
        "worlds": "A learns at half of it, W at 3.3 times, as chosen on the drawn worlds",
    },
    "select": {
        "val": "the best checkpoint on held-out frames",
        "test": "the best on test frames, as the scripts",
        "last": "the last one",
    },
}
Choices = Mapping[str, str]


def complete(given: Choices) -> dict[str, str]:
    """Choices where paper and scripts differ, with defaults for what is not named.

    >>> complete({"crop": "scripts"})["batch"]
    'paper'
    """
    for name, way in given.items():
        if name not in CHOICES:
            raise UnknownNameError("choice of a paper recipe", name, tuple(CHOICES))
        if way not in CHOICES[name]:
            raise UnknownNameError(f"way of choice {name}", way, tuple(CHOICES[name]))
    return {name: given.get(name, next(iter(ways))) for name, ways in CHOICES.items()}


def parse(text: str) -> tuple[str, dict[str, str]]:
    """Choices in a text: ``paper-indoor?crop=scripts&select=last`` -> the recipe's name and its choices.

    >>> parse("paper-indoor?crop=scripts")
    ('paper-indoor', {'crop': 'scripts'})
    """
    name, _, query = text.partition("?")
    if name not in SEQUENCES:
        raise UnknownNameError("paper recipe", name, tuple(SEQUENCES))
    parts = [part.partition("=") for part in query.split("&") if part]
    if any(not way for _, _, way in parts):
        raise ConfigError(f"recipe {text!r}: expected name=way after the question mark, as crop=scripts")
    given = {key: way for key, _, way in parts}
    complete(given)
    return name, given


def _own(network: str) -> tuple[str, str]:
    """The network whose published values are taken, and what to add to their source."""
    if network in ("kbnet", "voiced", "fusionnet"):
        return network, ""
    return "kbnet", "our choice, as KBNet (nothing is published); "


# --- batch and crop ---------------------------------------------------------------------------------------------------


def batch_size(dataset: str, choices: Choices) -> Fact:
    """The published batch size on a dataset."""
    if choices["batch"] == "methods":
        return Fact(4, f"{UNCLE}s of EWC, LwF, Replay, ANCL, CMP")
    return Fact(12 if dataset in INDOOR else 8, TIMING)


def crop(dataset: str, network: str, first: bool, choices: Choices) -> Fact:
    """The published crop of a dataset's frames for a network."""
    if dataset in INDOOR and choices["crop"] == "scripts":
        wide = first and network == "fusionnet"
        return Fact((416, 576 if wide else 512), f"{UNCLE}s, indoors")
    sizes = {"waymo": (800, 640), "kitti": (320, 768), "vkitti": (320, 768)}
    return Fact(sizes.get(dataset, (416, 576)), DETAILS)


# --- learning rates: (rate, up to and including this epoch) -----------------------------------------------------------

Rates = tuple[tuple[float, int], ...]
BASE_RATES: dict[tuple[str, str], Fact] = {
    ("nyu_v2", "kbnet"): Fact(((1e-4, 3), (5e-5, 6), (2.5e-5, 9)), f"{UNCLE}, base NYU KBNet"),
    ("nyu_v2", "voiced"): Fact(((1e-4, 3), (5e-5, 6), (2.5e-5, 24)), f"{UNCLE}, base NYU VOICED"),
    ("nyu_v2", "fusionnet"): Fact(((5e-5, 3), (2.5e-5, 6), (1.25e-5, 9)), f"{UNCLE}, base NYU FusionNet"),
    ("kitti", "kbnet"): Fact(
        ((5e-5, 2), (1e-4, 8), (1.5e-4, 20), (1e-4, 30), (5e-5, 45), (2e-5, 60)), "KBNet's repository, KITTI script"
    ),
    ("kitti", "voiced"): Fact(((1.2e-4, 18), (0.6e-4, 24), (0.3e-4, 30)), "VOICED's repository, KITTI script"),
    ("kitti", "fusionnet"): Fact(((2e-4, 18), (1e-4, 24), (5e-5, 30)), "FusionNet's repository, KITTI script"),
}
FINETUNE_RATES: dict[str, Fact] = {
    "kbnet": Fact(((1e-4, 3), (5e-5, 9)), f"{UNCLE}, finetune indoor KBNet"),
    "voiced": Fact(((1e-4, 3), (5e-5, 9), (2e-5, 15)), f"{UNCLE}, finetune indoor VOICED"),
    "fusionnet": Fact(((2e-5, 9), (1e-5, 15)), f"{UNCLE}, finetune indoor FusionNet"),
}
VOID_RATES = Fact(((1e-4, 20), (5e-5, 60)), f"{UNCLE}, finetune VOID KBNet")
METHOD_RATES = Fact(
    ((5e-5, 2), (1e-4, 8), (2e-4, 30), (1e-4, 45), (5e-5, 60)), f"{UNCLE}s of EWC, LwF, Replay, ANCL, CMP"
)
README_RATES = Fact(((1e-4, 10), (5e-5, 15)), "ProtoDepth's README")
SCAFFNET_RATES = Fact(((1e-4, 4), (5e-5, 10)), "ScaffNet's repository, SceneNet and VKITTI scripts")


def rates(dataset: str, network: str, first: bool, choices: Choices) -> Fact:
    """The published learning rates of a stage with the epoch at whose end each one's time is over."""
    name, note = _own(network)
    if first:
        fact = BASE_RATES.get((dataset, name))
        if fact is None:
            fact = BASE_RATES["nyu_v2" if dataset in INDOOR else "kitti", name]
            note += f"our choice: no script for {dataset} as first domain; "
    elif choices["schedule"] == "methods":
        fact, note = METHOD_RATES, note if network not in ("kbnet", "voiced", "fusionnet") else ""
    elif choices["schedule"] == "readme":
        fact = README_RATES
    elif dataset in OUTDOOR:
        fact, note = README_RATES, note + "our choice: no finetuning script outdoors; "
    else:
        fact = VOID_RATES if (dataset, name) == ("void", "kbnet") else FINETUNE_RATES[name]
    return Fact(fact.value, note + fact.source)


# --- loss weights -----------------------------------------------------------------------------------------------------

PLAIN = {"color": 0.15, "structure": 0.95, "sparse": 2.0, "smooth": 2.0}
SCRIPT_WEIGHTS: dict[str, dict[str, float]] = {  # indoors, base and finetuning alike
    "kbnet": PLAIN,
    "voiced": {"color": 0.20, "structure": 0.80, "sparse": 0.5, "smooth": 2.0, "pose_consistency": 0.1},
    "fusionnet": {
        "color": 0.20, "structure": 0.80, "sparse": 2.0, "smooth": 2.0, "prior": 0.1, "prior_threshold": 0.25,
    },
}  # fmt: skip
UPSTREAM_WEIGHTS: dict[tuple[str, str], dict[str, float]] = {
    ("void", "kbnet"): PLAIN,
    ("void", "voiced"): SCRIPT_WEIGHTS["voiced"],
    ("void", "fusionnet"): {
        "color": 0.20, "structure": 0.80, "sparse": 1.0, "smooth": 1.0, "prior": 0.1, "prior_threshold": 0.30,
    },
    ("kitti", "kbnet"): {"color": 0.15, "structure": 0.95, "sparse": 0.6, "smooth": 0.04},
    ("kitti", "voiced"): {"color": 0.20, "structure": 0.80, "sparse": 0.2, "smooth": 0.01, "pose_consistency": 0.1},
    ("kitti", "fusionnet"): {
        "color": 0.20, "structure": 0.80, "sparse": 0.1, "smooth": 0.01, "prior": 0.1, "prior_threshold": 0.30,
    },
}  # fmt: skip


def weights(dataset: str, network: str, first: bool, choices: Choices) -> Fact:
    """The published weights of the objective by the names of ``losses.ObjectiveConfig``."""
    name, note = _own(network)
    place = "void" if dataset in INDOOR else "kitti"
    if choices["weights"] == "upstream" or (first and dataset in OUTDOOR):
        return Fact(UPSTREAM_WEIGHTS[place, name], f"{note}the network's own repository, {place} script")
    if not first and (choices["weights"] == "methods" or dataset in OUTDOOR):
        return Fact(PLAIN, f"{note}{UNCLE}s of EWC, LwF, Replay, ANCL, CMP")
    return Fact(SCRIPT_WEIGHTS[name], f"{note}{UNCLE}, {'base' if first else 'finetune'} indoor")


def objective(network: str, choices: Choices) -> dict[str, Fact]:
    """What is published of the objective besides its weights."""
    name, note = _own(network)
    reduction = Fact(None, f"{note}{CODE}: each network's own")
    if choices["objective"] == "paper":
        reduction = Fact("paper", "paper, Eq. 3-5")
    poses = Fact("network", "paper, Preliminaries; trained in every stage and allowed to forget")
    if choices["poses"] == "given":
        poses = Fact("given", "our choice")
    return {
        "reduction": reduction,
        "outlier_size": Fact(7, f"{CODE}, window in pixels"),
        "outlier_threshold": Fact(1.5, f"{CODE}, metres behind the nearest point of the window"),
        "clamp_sparse": Fact(name != "voiced", f"{note}{CODE}"),
        "weight_by_absence": Fact(name == "voiced", f"{note}{CODE}"),
        "poses": poses,
        "learn_pose": Fact(choices["poses"] == "network", poses.source),
    }


# --- augmentation -----------------------------------------------------------------------------------------------------


def augmentation(dataset: str, network: str, first: bool, choices: Choices) -> dict[str, Fact]:
    """The published ranges of augmentation by the names of ``data.augment.AugmentConfig``."""
    name, note = _own(network)
    indoors = dataset in INDOOR and choices["augment"] == "finetune"
    source = f"{note}{UNCLE}, {'base' if first else 'finetune'} indoor"
    if not indoors:
        source = f"{note}{UNCLE}s of EWC, LwF, Replay, ANCL, CMP"
        if first and dataset in OUTDOOR:
            source = f"our choice, nothing is known for {dataset} as first domain: as the {UNCLE}s of the baselines"
    values: dict[str, Any] = {"brightness": (0.5, 1.5), "contrast": (0.5, 1.5), "saturation": (0.5, 1.5), "hue": 0.1}
    values |= {"flip_horizontal": True, "flip_vertical": indoors, "crop_bottom": not indoors}
    low = 0.7 if (name, first, indoors) == ("voiced", False, True) else 0.6
    values["resize"] = (low, 1.1) if indoors else (0.6, 1.0)
    if indoors:
        removed = {("voiced", True): (0.1, 0.2), ("voiced", False): (0.0, 0.0)}.get((name, first), (0.6, 0.7))
        values |= {
            "crop_pad": (0.9, 1.0),
            "rotation": 0.0 if (name, first) == ("kbnet", False) else 25.0,
            "remove_patches": (0.001, 0.005),
            "remove_points": removed,
        }
    return {key: Fact(value, source) for key, value in values.items()}


# --- network, prototypes, buffers, selection --------------------------------------------------------------------------


def depth_range(sequence: str) -> Fact:
    """The published depth range of the output head."""
    ranges = {"paper-indoor": (0.1, 8.0), "paper-outdoor": (1.5, 100.0)}
    if sequence in ranges:
        return Fact(ranges[sequence], f"{UNCLE}s")
    return Fact((0.1, 100.0), "our choice: rooms and streets share one head")


def set_sizes(sequence: str) -> Fact:
    """What is published of the prototype set sizes of a sequence: (N image, N depth)."""
    if sequence == "paper-indoor":
        return Fact((10, 5), SIZES)
    if sequence == "paper-outdoor":
        return Fact((25, 10), f"{SIZES}; supplement, Outdoor Prototype Set Sizes")
    return Fact((25, 10), "our choice: as outdoors, two of the three datasets are")


def _fisher_values() -> dict[str, Fact]:
    """What EWC and ANCL have in common: penalties on a Fisher."""
    return {
        "strength": Fact(1.0, f"{UNCLE}s, w_ewc"),
        "fisher_mode": Fact("uncle", f"{CODE} of UnCLe; w_ewc = 1 is on its scale, docs/ambiguities.md B2"),
        "batch_size": Fact(4, f"{UNCLE}s of EWC and ANCL, on which its Fisher depends"),
        "samples": Fact(256, "our choice: frames of a domain at most; published: one epoch"),
        "anchors": Fact("last", f"{CODE} of UnCLe"),
    }


def method_values(choices: Choices) -> dict[str, dict[str, Fact]]:
    """Every setting of each method but its seed, by the names of its configuration."""
    buffers = {
        "size": Fact(64, f"{UNCLE}s of Replay and CMP, replay_dataset_size"),
        "fixed_batch": Fact(False, f"{UNCLE}s of Replay and CMP; docs/ambiguities.md B6"),
    }
    prompts = "paper, supplement, Transformer Experiments"
    return {
        "replay": buffers,
        "cmp": buffers | {
            "mode": Fact("farthest", "our choice, docs/ambiguities.md B9"),
            "threshold": Fact(0.9935, f"{CODE} of UnCLe; of mode=threshold alone"),
        },
        "ewc": _fisher_values() | {"gamma": Fact(1.0, "our choice, docs/ambiguities.md B3")},
        "ancl": _fisher_values() | {
            "gamma": Fact(1.0, "our choice; alpha is in its place"),
            "auxiliary_strength": Fact(1.0, f"{UNCLE}s, w_ancl"),
            "alpha": Fact(0.5, f"{CODE} of ANCL's authors"),
        },
        "lwf": {
            "weight": Fact(1.0, f"{UNCLE}s, w_lwf; of squared metres"),
            "space": Fact("depth", f"{CODE} of UnCLe"),
        },
        "l2p": {
            "prompts": Fact(20, prompts),
            "chosen": Fact(5, prompts),
            "key_weight": Fact(0.5, prompts),
            "length": Fact(5, "our choice, docs/ambiguities.md B10"),
            "first": Fact(True, "our choice: D1 has prompts too, learned before anything is measured"),
        },
        "protodepth": {
            "descriptor_weight": Fact(1.0, "ProtoDepth's README, w_agnostic"),
            "separation": Fact(0.5, "ProtoDepth's README, w_kk; docs/ambiguities.md 7"),
            "factors": _prototype_rates(choices),
        },
    }  # fmt: skip


def _prototype_rates(choices: Choices) -> Fact:
    """Factors of the learning rate of a domain's A and of what its keys are made from (W, or U and V, or K)."""
    if choices["prototype_rates"] == "readme":
        return Fact(dict.fromkeys(("A", "W", "U", "V", "K"), 1.0), "ProtoDepth's README: one rate")
    return Fact({"A": 0.5, **dict.fromkeys(("W", "U", "V", "K"), 3.3)}, "our choice, on val scenes of the drawn worlds")


# --- ScaffNet, which FusionNet looks at -------------------------------------------------------------------------------


def scaffnet(sequence: str) -> dict[str, Fact]:
    """How FusionNet's ScaffNet learns, before FusionNet does: data, batch, crop, rates, and the range of its head."""
    source = "ScaffNet's repository, SceneNet and VKITTI scripts"
    indoors = sequence == "paper-indoor"
    spans = {"paper-indoor": (0.1, 10.0), "paper-outdoor": (1.5, 80.0)}
    return {
        "data": Fact("worlds:office?train=600&size=192x256", "our choice: SceneNet has no reader here")
        if indoors
        else Fact("vkitti", source + "; a drawn world where VKITTI is not among the data"),
        "batch": Fact(12, source),
        "crop": Fact((192, 256) if indoors else (320, 768), source),
        "rates": SCAFFNET_RATES,
        "depth_range": Fact(spans[sequence], source) if sequence in spans else depth_range(sequence),
        "objective": Fact("normalised L1 to exact depth", source),
        "augment": Fact(None, "our choice: nothing is known"),
    }


def selection(choices: Choices) -> Fact:
    """How the published checkpoint was selected: (split, steps between two looks), or None for the last one."""
    if choices["select"] == "last":
        return Fact(None, "our choice: nothing is chosen")
    if choices["select"] == "test":
        return Fact(("test", 5000), f"{UNCLE} and ProtoDepth code: the test lists are given as validation")
    return Fact(("val", 5000), "every 5000 steps and the 3-of-4 rule: published code; held-out frames: our choice")


CAPS: dict[str, dict[str, Fact]] = {
    **{d: {"caps": Fact((0.2, 5.0), DETAILS), "crop": Fact(None, DETAILS)} for d in INDOOR},
    "kitti": {
        "caps": Fact((0.001, 100.0), DETAILS),
        "crop": Fact((240, 1216), f"{DETAILS} (released code: none, kitti:PATH?eval_crop=none)"),
    },
    "vkitti": {"caps": Fact((0.001, 100.0), DETAILS), "crop": Fact((240, 1216), DETAILS)},
    "waymo": {"caps": Fact((0.001, 80.0), DETAILS), "crop": Fact((768, 1920), f"{CODE} (the paper names none)")},
}
