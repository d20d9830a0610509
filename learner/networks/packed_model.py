"""Parameters of a network in one packed vector, from which a model reads them, and copies of them.

Outside a model, parameters are one float32 vector in the *canonical* layout of `shared.network_parameters`: PyTorch's,
with weights of convolutions [out, in, y, x]. In the *packed* layout each has the order of memory that its kernels read,
so that an update copies nothing to reorder it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.host_transfer import HostTransfer
from learner.networks.linear import Affine, write_gradient
from learner.networks.model import ExtraInputs, ForwardPass, Model
from learner.team.team import ALONE, Team
from shared.network_parameters import packed_places, parameters_of
from shared.network_spec import Network


class Matrix(NamedTuple):
    """Names of the parameters of a linear layer, and the dtype in which it is computed."""

    weight: str
    bias: str
    dtype: torch.dtype


Rows = Mapping[int, slice]
"""Rows of a batch, by number of the vector that takes their gradient (`PackedModel.gradient_into`)."""
WHOLE: Rows = {0: slice(None)}
KeepGradient = Callable[[int, Tensor, Tensor], None]
"""Takes the number of a linear layer, and what its gradient follows from (`learner.networks.linear`)."""


class PackedModel(Model):
    """Base of the models that compute themselves."""

    noise = 0
    matrices: list[Matrix]
    """Linear layers, behind which no others lie."""
    keep: KeepGradient | None = None
    """Called in place of a gradient of linear layers; None: `backward` writes it."""
    takes_parts = True
    """True if a pass that learns can have rows of several vectors: linear layers alone follow the features."""

    def __init__(self, network: Network, device: torch.device, precision: str, team: Team = ALONE) -> None:
        """Parameters that are still to be set, in the memory of a team."""
        self.network = network
        # The type in which matrices are multiplied; tf32 is a way to multiply float32.
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._spec = parameters_of(network)
        self._transfer = HostTransfer(self._spec.count, device)
        self._places, size = packed_places(network)
        self._export_transfer = HostTransfer(size, device)
        self.params = self.params_bf16 = team.zeros(size, device=device)
        if self._dtype != torch.float32:
            self.params_bf16 = team.zeros(size, dtype=self._dtype, device=device)
        self.parts = [[slice(0, size)]]

    def gradient_into(self, *flats: Tensor) -> None:
        """Set the vectors that `backward` writes into; with `keep` they may end before the linear layers."""
        self._gradients = [self.views(flat) for flat in flats]

    @abstractmethod
    def forward(
        self, blocks: Tensor, stack_offset: int, extra_inputs: ExtraInputs, *, learns: bool = False, rows: Rows = WHOLE
    ) -> ForwardPass:
        """The outputs for stacks (`Model.forward`); `backward` writes a gradient for each of `rows`, in their order."""

    def keep_state(self) -> bool:
        """Write parameters that passes themselves change, if there are any; with `keep`, `backward` leaves this to its
        caller. Return True if there are."""
        return False

    def refresh(self) -> None:
        """Update the copies that the optimizer does not write itself: by default there are none."""

    def pack(self, canonical: NDArray[np.float32], packed: Tensor) -> None:
        """Copy parameters from canonical to packed layout."""
        packed.zero_()  # between parameters, too: a gradient that was not finite leaves no zeros there
        for view, part in self._pairs(packed, self._transfer.to_device(canonical)):
            view.copy_(part)

    def unpack(self, packed: Tensor, canonical: NDArray[np.float32]) -> None:
        """Copy parameters from packed to canonical layout."""
        vector = torch.empty(self._spec.count, device=packed.device)
        for view, part in self._pairs(packed, vector):
            part.copy_(view)
        self._transfer.to_host(vector, canonical)

    def export_into(self, out: NDArray[np.float32]) -> None:
        """Copy `params` in packed layout, a tenth of the time of `unpack`."""
        self._export_transfer.to_host(self.params, out)

    def take(self, exported: NDArray[np.float32]) -> None:
        """Take over parameters in packed layout."""
        self.params.copy_(self._export_transfer.to_device(exported))
        self.sync_copy()

    def sync_copy(self) -> None:
        """Update all copies of `params`."""
        if self.params_bf16 is not self.params:
            self.params_bf16.copy_(self.params)
        self.refresh()

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters in a packed vector, or in its beginning, by name, as the passes read them."""
        found = [(name, self._places[name], shape) for name, shape in self._spec.shapes]
        return {name: self._view(name, flat[place], shape) for name, place, shape in found if place.stop <= len(flat)}

    def linear_in(self, flat: Tensor) -> list[Affine]:
        """The linear layers' parts of a packed vector."""
        views = self.views(flat)
        return [Affine(views[matrix.weight], views[matrix.bias]) for matrix in self.matrices]

    def _write_linear(self, number: int, by_outputs: Tensor, inputs: Tensor) -> None:
        """Write the gradient of a linear layer, or have it kept."""
        weight, bias, _ = self.matrices[number]
        if self.keep is not None:
            self.keep(number, by_outputs, inputs)
        else:
            write_gradient(by_outputs, inputs, Affine(self._gradients[0][weight], self._gradients[0][bias]))

    def _pairs(self, packed: Tensor, canonical: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each parameter in a packed vector and in one in canonical layout, in one shape."""
        parts = canonical.split([math.prod(shape) for _, shape in self._spec.shapes])
        ordered = [self._ordered(name, view) for name, view in self.views(packed).items()]
        return [(view, part.view(view.shape)) for view, part in zip(ordered, parts, strict=True)]

    def _view(self, name: str, part: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A parameter in its shape; weights of convolutions are channels-last."""
        if len(shape) != 4 or name == "conv1.weight":  # which is cut into blocks anyway
            return part.view(shape)
        out, inputs, height, width = shape
        return part.view(out, height, width, inputs).permute(0, 3, 1, 2)

    def _ordered(self, name: str, view: Tensor) -> Tensor:
        """A view of `views`, of any shape, in the order of the canonical layout."""
        return view
