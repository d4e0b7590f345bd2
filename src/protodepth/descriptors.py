"""Domain descriptors: which prototype set fits an image whose domain nobody names (Eq. 9, 11).

Legend   s sample descriptor (b, c)   r descriptor of the domain being learned (c)   R descriptors of k domains (k, c)
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from protodepth.types import Float, Int


def sample_descriptor(bottleneck: Tensor, layout: str) -> Float[Tensor, "b c"]:
    """s: global average pooling of the un-adapted bottleneck, over pixels (b c h w) or tokens (b n c)."""
    return bottleneck.mean(dim=(2, 3)) if layout == "bchw" else bottleneck.mean(dim=1)


def similarity(s: Float[Tensor, "b c"], R: Float[Tensor, "k c"]) -> Float[Tensor, "b k"]:
    r"""Cosines of sample and domain descriptors, :math:`\frac{s}{\|s\|} \cdot \frac{r_k}{\|r_k\|}`."""
    return cosine_similarity(s[:, None], R[None], dim=-1)


def descriptor_loss(
    s: Float[Tensor, "b c"], r: Float[Tensor, "c"], others: Float[Tensor, "j c"], separation: float
) -> Float[Tensor, ""]:
    r"""Eq. 9, batch mean: :math:`1 - \cos(s, r) + \frac{1}{w_{jk}} \sum_{j \ne k} \cos(r_j, r)`.

    :math:`1/w_{jk}` is ``separation`` divided by the number of other domains, whose descriptors are frozen.

    >>> s, r = torch.tensor([[1.0, 0.0]]), torch.tensor([2.0, 0.0])
    >>> float(descriptor_loss(s, r, torch.tensor([[0.0, 3.0]]), separation=0.5))
    0.0
    """
    pull = 1 - similarity(s, r[None]).mean()
    if len(others) == 0:
        return pull
    return pull + separation * similarity(others.detach(), r[None]).mean()


def select(similarity: Float[Tensor, "b k"]) -> Int[Tensor, "b"]:
    r"""Eq. 11, per sample: :math:`k^* = \arg\max_k \cos(s, r_k)`."""
    return torch.argmax(similarity, dim=-1)
