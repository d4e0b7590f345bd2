"""Ablations leave out exactly the layers of a modality."""

from protodepth.experiments import (
    ablations,
)


def test_ablations_leave_out_exactly_the_layers_of_a_modality():
    found = ablations.ablations("kbnet", "small")
    sets = {name: set(found[name]["layers"]) for name in ("no-image", "no-depth", "no-bottleneck")}
    everything = set.union(*sets.values())
    assert everything - sets["no-bottleneck"] == {"latent"}
    assert all("image" in layer for layer in everything - sets["no-image"])
    assert all("depth" in layer for layer in everything - sets["no-depth"])
    assert len(everything) == 7  # as published: the finest pair of skips has none
