"""Interface of a model: a network's parameters and its passes."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.side_stream import SideStream
from shared.network_spec import Network


class Recurrence(NamedTuple):
    """Inputs of a recurrent network, whose rows are m sequences one after the other, each by tick."""

    state: Tensor
    """float32[m, 2, units]: output and cell before the first tick."""
    start: Tensor
    """float32[n]: 1 where an episode begins; its row is read with a state of zeros."""


class ExtraInputs(NamedTuple):
    """Inputs of a network beside frames."""

    fractions: Tensor | None = None
    """float32[n, N] in [0, 1]: at which quantiles an implicit network answers."""
    noise: Tensor | None = None
    """float32[g, k], normal: for noisy layers, a row for every n / g observations in turn; None: none."""
    recurrence: Recurrence | None = None
    """Inputs of a recurrent network; None: the network is not recurrent."""

    @classmethod
    def from_buffers(cls, fractions: Tensor, noise: Tensor, recurrence: Recurrence | None = None) -> ExtraInputs:
        """Contents of buffers [n, N] and [g, k], which are empty where a network takes none."""
        return cls(fractions if fractions.shape[1] else None, noise if noise.shape[1] else None, recurrence)


class ForwardPass(NamedTuple):
    """Result of a forward pass."""

    outputs: Tensor
    """float32[n, outputs, atoms]; of an implicit network, as many atoms as fractions."""
    state: Tensor | None = None
    """float32[m, 2, units] after the last tick of each sequence; None: it is not recurrent, or learns in parts."""
    saved: Any = None
    """Input of the backward pass of the same model: activations, and their graph if PyTorch differentiates."""


class Model(Protocol):
    """One set of parameters, ready to compute.

    Attributes:
        params: float32[Q] in packed layout, Q >= P; the optimizer moves them. Numbers between parameters are 0.
        params_bf16: a copy in the arithmetic of the passes; in float32 it is `params` itself.
        parts: parts of the parameters, which members of a learner move, each as places in the packed vector.
        noise: normal numbers that its noisy layers take at a time.
    """

    network: Network
    params: Tensor
    params_bf16: Tensor
    parts: list[list[slice]]
    noise: int

    def pack(self, canonical: NDArray[np.float32], packed: Tensor) -> None:
        """Copy parameters float32[P], in the order of `shared.network_parameters`, into a packed vector [Q]."""

    def unpack(self, packed: Tensor, canonical: NDArray[np.float32]) -> None:
        """Copy a packed vector [Q] into one in canonical layout."""

    def export_into(self, out: NDArray[np.float32]) -> None:
        """Copy `params` into float32[Q] for the same model of another process."""

    def take(self, exported: NDArray[np.float32]) -> None:
        """Take over the parameters that `export_into` has copied."""

    def sync_copy(self) -> None:
        """Update all copies of `params`."""

    def refresh(self) -> None:
        """Update those copies of `params` that the optimizer does not write itself."""

    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False
    ) -> ForwardPass:
        """The outputs for stacks.

        Args:
            blocks: uint8[n, g, g, k * 16] (learner/networks/frame_blocks.py).
            stack_offset: first plane of the stack.
            learns: True if a backward pass follows.
        """

    def gradient_into(self, flat: Tensor) -> None:
        """Set the vector [Q], in packed layout and the dtype of `params_bf16`, that `backward` writes into."""

    def backward(self, saved: ForwardPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient of sum(gradient * outputs) by the parameters; whole after `side_stream.settle()`.

        Args:
            saved: the result of a pass that `learns`, with the same parameters.
            gradient: float32[n, outputs, atoms].
        """
