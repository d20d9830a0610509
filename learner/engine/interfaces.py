"""The two interfaces of the engine: a source of a round's data, and an update rule.

The engine asks the source for the minibatches of a round in order. For each minibatch it computes the network's
outputs, asks the rule for the gradient by these outputs, and takes an optimizer step. The engine reads only the
network's inputs of a minibatch.

Sources: `learner.replay.replay_source.ReplaySource` draws transitions of many rounds, and
`learner.rollout.rollout_source.RolloutSource` holds the steps of the newest one. Rules:
`learner.losses.td_learning.TDLearning`, and every `learner.rollout.on_policy_method.OnPolicyMethod`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learner.networks.model import ExtraInputs, Model
from shared.config.sections import MOST_GRAPH_UPDATES

CHUNK_UPDATES = MOST_GRAPH_UPDATES
"""Most updates of a chunk, and of a CUDA graph. It fixes the shape in which target values are computed, so it touches
their last bits."""


class Minibatch(Protocol):
    """The data of one update; the buffers behind it stay at their addresses, since CUDA graphs refer to them."""

    @property
    def blocks(self) -> Tensor:
        """uint8[n, g, g, k * 16]: planes of frames, of which the first stack is the network's input."""

    @property
    def extra_inputs(self) -> ExtraInputs:
        """The network's inputs beside frames."""

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Copies of its contents by name, for a report."""


M = TypeVar("M", bound=Minibatch)
M_contra = TypeVar("M_contra", bound=Minibatch, contravariant=True)


class RoundSource(Generic[M]):
    """The data of a round, in chunks of some updates each. Chunks are counted from the beginning of the round.

    Example, a round of 20 updates in chunks of 8:

        source.begin_round(round_, window_end, 20)
        source.load(0)                         # the second chunk is prepared from here on
        source.minibatch(0, 0) ... source.minibatch(0, 7)
        source.load(1)
        source.minibatch(1 % source.buffers, 0) ...
        source.finish_round(20)
    """

    chunk_updates: int
    """Updates of a chunk; the last chunk of a round may need fewer."""
    buffers: int
    """Buffers that chunks lie in, in turn."""
    device_bytes: int
    """Memory of a GPU that the source holds during the whole run."""

    def capture(self) -> None:
        """Capture CUDA graphs of its computations. Called before any other thread works."""

    def begin_round(self, round_: int, window_end: int, updates: int) -> None:
        """Begin a round of `updates` updates on the ticks before `window_end`."""

    def prefetch(self, round_: int, window_end: int) -> None:
        """Begin to prepare `begin_round` in parallel with other work. A second call for the same round does nothing."""

    def load(self, number: int) -> None:
        """Wait for chunk `number`, which follows `number - 1`; begin to prepare the next. Called once for each chunk.

        It lies in buffer `number` % `buffers`.
        """
        raise NotImplementedError

    def minibatch(self, buffer: int, index: int) -> M:
        """The data of update `index` of the chunk in a buffer."""
        raise NotImplementedError

    def finish_round(self, done: int) -> None:
        """Take in the results of the round's first `done` updates, all that were done."""

    def settle(self) -> None:
        """Wait for all preparation under way."""

    def store(self, out: Mapping[str, NDArray[np.float32]]) -> None:
        """Write those vectors of its state that `out` names."""

    def load_state(self, state: Mapping[str, NDArray[np.float32]] | None) -> None:
        """Take over what `store` wrote. None: reset all state, such as priorities, to that of a new run."""


class UpdateOutput(NamedTuple):
    """The result of an update rule for one minibatch of n samples."""

    gradient: Tensor
    """float32[n, outputs, atoms]: of the mean of the losses, or of their sum (`UpdateRule.mean_gradient`)."""
    metrics: Mapping[str, Tensor]
    """Tensors by name: float32[n], averaged over all samples of a round; or a scalar, averaged over the first updates
    of its chunks."""


class UpdateRule(Protocol[M_contra]):
    """Computation of a loss, and of its gradient by the outputs of the network."""

    mean_gradient: bool
    """True if `learn` gives the gradient of the minibatch's mean loss, False for that of the sum of the losses."""

    @property
    def networks(self) -> Mapping[str, Model]:
        """Networks beside the one that learns, by the name of their state in a snapshot.

        Where a snapshot lacks one, it equals the network that learns.
        """

    def learn(self, outputs: Tensor, minibatch: M_contra, *, costly_metrics: bool) -> UpdateOutput:
        """Loss gradient and metrics.

        Args:
            outputs: float32[n, outputs, atoms] of the network that learns.
            minibatch: the data that they were computed from.
            costly_metrics: compute the metrics that cost more, too, as in the first update of a chunk.
        """

    def update_target(self) -> None:
        """Copy the network that learns into the target network, if there is one."""

    def anneal(self, value_between: Callable[[float, float | None], float]) -> None:
        """Begin a round, in which the annealed settings of the rule have other values.

        Args:
            value_between: gives the value during the round of a setting, by its first and its last one.
        """
