"""Operations of PyTorch on a GPU, by name: how many kernels they start, and what they do not do as a CPU does.

A kernel costs two or three microseconds.
"""

from typing import Any

VIEWS = {
    *("alias", "as_strided", "detach", "expand", "permute", "select", "slice", "squeeze", "t", "transpose"),
    *("unsqueeze", "view", "_reshape_alias", "_unsafe_view", "empty", "empty_strided", "empty_like"),
}
"""Operations that start nothing."""
KERNELS = {"convolution": 2}
"""Operations that start more than one: cuDNN's convolution leaves the bias to PyTorch. Libraries may start one more
each to reorder data or to add the results of several blocks."""


def kernels_of(name: str, args: Any) -> int:
    """Number of kernels of an operation with these arguments."""
    if name == "convolution_backward":
        return sum(args[-1])
    return 0 if name in VIEWS else KERNELS.get(name, 1)


SYNCHRONIZING = {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_pin_memory", "is_nonzero"}
"""Operations whose result the CPU needs."""
NONDETERMINISTIC = {"index_put", "index_add", "index_add_", "scatter_add", "scatter_add_", "cumsum"}
NONDETERMINISTIC |= {"bincount", "put_", "kthvalue"}
"""Operations that PyTorch refuses on a GPU when it is to compute the same bits every time, or may."""
RANDOM = {"bernoulli_", "exponential_", "geometric_", "multinomial", "normal_", "random_", "uniform_", "rand", "randn"}
"""Operations that draw numbers; a graph would repeat them."""


def is_nondeterministic(name: str) -> bool:
    """True for `NONDETERMINISTIC`, and for backward passes that add in an order which the hardware chooses."""
    is_pooling = name.startswith(("adaptive", "avg_pool", "max_pool"))
    return name in NONDETERMINISTIC or (name.endswith("_backward") and is_pooling)
