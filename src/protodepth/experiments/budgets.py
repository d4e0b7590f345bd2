"""Equal steps or equal compute: what a step of each method costs, in steps of finetuning."""

from typing import Literal

Budget = Literal["steps", "compute"]
# KBNet on both sequences, from benchmarks/worlds_results.json; a test compares.  EWC, LwF, Replay, ProtoDepth: mean of
# "times finetuning" in `bench training-time`; ANCL (an auxiliary network) and CMP: seconds of their whole training
# over finetuning's; L2P the same with Uformer, for it also learns prompts for D_1.  protodepth-own: CPU seconds of 500
# steps with lite over those of finetuning at the same rate, both worlds of benchmarks/worlds_own_parts.json.
STEP_COSTS = {
    "finetune": 1.0,
    "ewc": 1.11,
    "lwf": 1.27,
    "replay": 2.06,
    "ancl": 2.12,
    "cmp": 1.84,
    "l2p": 1.46,
    "protodepth": 0.72,
    "protodepth-own": 1.41,
}


def steps_of(method: str, steps: int, budget: Budget) -> int:
    """Steps of a method where finetuning has ``steps``: the same number, or as many as take the same time.

    >>> steps_of("finetune", 500, "compute"), steps_of("replay", 500, "steps")
    (500, 500)
    """
    return steps if budget == "steps" else max(1, round(steps / STEP_COSTS.get(method, 1.0)))
