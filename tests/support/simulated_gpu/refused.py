"""Operations that a GPU does not do as a CPU does, by name."""

from __future__ import annotations

SYNCHRONIZING = {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_pin_memory", "is_nonzero"}
"""Operations whose result the CPU needs."""
NONDETERMINISTIC = {
    "index_put",
    "scatter_add",
    "scatter_add_",
    "index_add",
    "index_add_",
    "cumsum",
    "bincount",
    "put_",
    "kthvalue",
}
"""Operations that PyTorch refuses on a GPU when it is to compute the same bits every time, or may."""
RANDOM = {"bernoulli_", "exponential_", "geometric_", "multinomial", "normal_", "random_", "uniform_", "rand", "randn"}
"""Operations that draw numbers; a graph would repeat them."""


def adds_in_any_order(name: str) -> bool:
    """True for backward passes that add in an order which the hardware chooses."""
    return name.endswith("_backward") and name.startswith(("adaptive", "avg_pool", "max_pool"))
