"""Kernels that an update starts on a GPU: each costs two or three microseconds, however little it computes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from learner.engine.side_stream import SideStream
from tests.support.played_ring import PlayedRing, make_test_engine, small_config

VIEWS = {
    "alias",
    "as_strided",
    "detach",
    "expand",
    "permute",
    "select",
    "slice",
    "squeeze",
    "t",
    "transpose",
    "unsqueeze",
    "view",
    "_reshape_alias",
    "_unsafe_view",
    "empty",
    "empty_strided",
    "empty_like",
}
"""Operations that start nothing."""
KERNELS = {"convolution": 2}
"""Operations that start more than one: cuDNN's convolution leaves the bias to PyTorch. Libraries may start one more
each to reorder data or to add the results of several blocks."""


class Count(TorchDispatchMode):
    """Counts the kernels that the operations within would start on a GPU, by operation."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "convolution_backward":
            inputs, weight, bias = args[-1]
            self.kernels[name] += inputs + weight + bias
        elif name not in VIEWS:
            self.kernels[name] += KERNELS.get(name, 1)
        return func(*args, **(kwargs or {}))


def _kernels(optimizer: str, precision: str) -> Counter[str]:
    """Kernels of one update of the Nature network, as it runs on a GPU; not the first of a chunk."""
    config = small_config(network="nature", optimizer=optimizer)
    played = PlayedRing(config)
    played.play(4 * played.run_schedule.round_ticks)
    engine = make_test_engine(played, config, precision)
    engine.begin_round(4, played.ticks)
    engine.run(1)
    engine._optimizer._compiled = False
    engine._side_stream = SideStream()
    with torch.no_grad(), Count() as count:
        engine._update(engine._source.minibatch(0, 1), sampled=False)
    return count.kernels


@pytest.mark.parametrize(("optimizer", "precision", "most"), [("rmsprop", "fp32", 52), ("adam", "fp32", 48)])
def test_an_update_starts_few_kernels(optimizer: str, precision: str, most: int) -> None:
    kernels = _kernels(optimizer, precision)
    assert kernels["convolution"] == 2 * 3  # the counting sees what is there
    assert kernels.total() <= most, kernels
