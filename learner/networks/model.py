"""What a model is: a network's parameters and how it computes, whatever network it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.side_stream import SideStream
from shared.network_spec import Network


class ExtraInputs(NamedTuple):
    """What a network takes beside frames."""

    fractions: Tensor | None = None
    """float32[n, N] in [0, 1]: at which quantiles an implicit network answers."""
    noise: Tensor | None = None
    """float32[g, k], normal: for noisy layers, a row for every n / g observations in turn; None: none."""

    @classmethod
    def from_buffers(cls, fractions: Tensor, noise: Tensor) -> ExtraInputs:
        """What lies in buffers [n, N] and [g, k], which are empty where a network takes none."""
        return cls(fractions if fractions.shape[1] else None, noise if noise.shape[1] else None)


class ForwardPass(Protocol):
    """What a forward pass leaves for the backward pass."""

    @property
    def outputs(self) -> Tensor:
        """float32[n, actions, atoms]; of an implicit network, as many atoms as fractions."""


class Model(Protocol):
    """One set of parameters, ready to compute.

    Attributes:
        master: float32[Q] in an order of the model's own, Q >= P; the truth. What lies between parameters is 0.
        shadow: the same in the arithmetic of the passes; in float32 it is `params` itself.
        cut: parameters before this one are moved first (learner/engine/optimizer.py).
        noise: normal numbers that its noisy layers take at a time.
    """

    network: Network
    params: Tensor
    params_bf16: Tensor
    head_offset: int
    noise: int

    def pack(self, canonical: NDArray[np.float32], packed: Tensor) -> None:
        """Write parameters in the order of `shared.network_spec` (float32[P]) into a vector in the model's own."""

    def unpack(self, packed: Tensor, canonical: NDArray[np.float32]) -> None:
        """The way back."""

    def sync_copy(self) -> None:
        """Bring what follows from the master up to date."""

    def refresh(self) -> None:
        """As `sync_copy`, when the shadow was written together with the master."""

    def forward(
        self,
        blocks: Tensor,
        stack_offset: int,
        extra_inputs: ExtraInputs,
        settle: Callable[[], None] | None = None,
        *,
        learns: bool = False,
    ) -> ForwardPass:
        """The outputs for stacks.

        Args:
            blocks: uint8[n, 21, 21, k * 16] (learner/networks/fused.py), of which the stack begins with frame `first`.
            settle: called before parameters behind the convolutions are read; until it returns they may still change.
            learns: whether a backward pass follows.
        """

    def gradient_into(self, flat: Tensor) -> None:
        """From now on, have `backward` write into a vector [Q] of the shadow's dtype, in the model's own order."""

    def backward(self, saved: Any, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient of sum(gradient * outputs) by the parameters; whole after `side_stream.settle()`.

        Args:
            past: what was left by a pass that `learns`, with the same parameters.
            gradient: float32[n, actions, atoms].
        """
