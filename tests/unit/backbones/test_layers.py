"""Convolutions with frozen weights: the slopes of PyTorch's, and nothing kept for slopes that nobody asks for."""

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from protodepth.backbones.layers import Conv, LeanConv2d, resized


def kept(call) -> set[int]:
    """Where the tensors lie that a call keeps for its backward pass."""
    places: set[int] = set()

    def note(tensor: Tensor) -> Tensor:
        places.add(tensor.untyped_storage().data_ptr())
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        call()
    return places


@pytest.mark.parametrize(("kernel", "stride", "bias"), [(3, 1, False), (3, 2, True), (1, 1, False), (7, 2, False)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_slopes_are_those_of_pytorch(kernel: int, stride: int, bias: bool, layout: torch.memory_format) -> None:
    layer = LeanConv2d(6, 5, kernel, stride, kernel // 2, bias=bias).to(memory_format=layout).requires_grad_(False)
    x, y = (torch.rand(2, 6, 9, 12).to(memory_format=layout).requires_grad_(True) for _ in range(2))
    y.data.copy_(x.data)
    ours, theirs = layer(x), F.conv2d(y, layer.weight, layer.bias, stride, kernel // 2)
    assert torch.equal(ours, theirs)
    slope = torch.rand_like(ours)
    ours.backward(slope)
    theirs.backward(slope)
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-6, atol=1e-6)  # the same kernel: rounding at most


def test_slopes_in_half_precision_arrive_in_the_kind_of_the_input() -> None:
    layer = LeanConv2d(4, 4, 3, 1, 1).requires_grad_(False)
    x, y = (torch.rand(1, 4, 8, 8).requires_grad_(True) for _ in range(2))
    y.data.copy_(x.data)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = layer(x), F.conv2d(y, layer.weight, layer.bias, padding=1)
    ours.sum().backward()
    theirs.sum().backward()
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    torch.testing.assert_close(x.grad, y.grad, rtol=0.02, atol=0.02)  # eight bits of mantissa


def test_a_frozen_layer_keeps_its_input_for_nobody() -> None:
    x = torch.rand(1, 4, 8, 8, requires_grad=True)
    layer = Conv(4, 4, activation="linear")
    assert x.untyped_storage().data_ptr() in kept(lambda: layer(x))  # its weights learn: they need it
    layer.requires_grad_(False)
    assert x.untyped_storage().data_ptr() not in kept(lambda: layer(x))
    assert not kept(lambda: layer(x.detach()))


@pytest.mark.parametrize("size", [(12, 10), (30, 41), (24, 20), (7, 39)])
def test_a_resize_by_products_is_the_antialiased_one(size: tuple[int, int]) -> None:
    x = torch.rand(2, 3, 24, 20, generator=torch.Generator().manual_seed(0))
    expected = F.interpolate(x, size=size, mode="bilinear", antialias=True, align_corners=False)
    torch.testing.assert_close(resized(x, size), expected, rtol=1e-5, atol=1e-5)
