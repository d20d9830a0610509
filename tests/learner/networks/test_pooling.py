"""The pooling with a backward pass of one order: values and gradients are PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from learner.networks.pooling import MaxPool, max_pool


@pytest.mark.parametrize("side", [160, 127, 84, 42, 21, 11, 3])
def test_values_and_gradients_are_those_of_the_library(side: int) -> None:
    generator = torch.Generator().manual_seed(side)
    x = torch.randint(-3, 4, (2, 3, side, side), generator=generator).double()  # with many equal maxima
    by_outputs = torch.randn(2, 3, (side + 1) // 2, (side + 1) // 2, generator=generator).double()
    x.requires_grad_()
    ours, theirs = MaxPool.apply(x), F.max_pool2d(x, 3, 2, 1)
    assert torch.equal(ours, theirs)
    gradients = (torch.autograd.grad(pooled, x, by_outputs)[0] for pooled in (ours, theirs))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_on_eleven_places_it_is_adaptive_pooling_to_six() -> None:
    x = torch.randn(2, 5, 11, 11, generator=torch.Generator().manual_seed(0))
    assert torch.equal(max_pool(x), F.adaptive_max_pool2d(x, 6))
