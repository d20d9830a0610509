"""Networks that PyTorch differentiates: residual, dueling, noisy, implicit, normalized, recurrent.

Parameters stand in the order of `shared.network_parameters`. With bfloat16 the last layer of a stream, an LSTM and the
normalization of layers are computed in float32, from `params` itself, as in plain networks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.device import compute_dtype
from learner.engine.host_transfer import HostTransfer
from learner.engine.side_stream import SideStream
from learner.networks import lstm
from learner.networks.frame_blocks import PIXEL, network_input, planes_in, stack_in
from learner.networks.linear import Affine, linear
from learner.networks.model import ExtraInputs
from learner.networks.pooling import max_pool
from shared.frame_shape import BLOCK, CELL
from shared.network_parameters import packed_places, parameters_of
from shared.network_spec import CONVOLUTIONAL, COSINES, IMPALA, RESIDUALS, Network

_TINY = 1e-12
_LSTM = "lstm."
"""Prefix of the names of an LSTM's parameters."""
SIGMA = "_sigma"
"""Suffix of the names of noise scales."""


class AutogradPass(NamedTuple):
    """Result of a forward pass with its graph, for the backward pass."""

    outputs: Tensor
    state: Tensor | None = None


class AutogradModel:
    """Any network. See `learner.networks.model.Model`."""

    def __init__(self, network: Network, device: torch.device, precision: str) -> None:
        self.network = network
        self._planes = network.frames.planes
        self._dtype = compute_dtype(precision)
        self._spec = parameters_of(network)
        self._transfer = HostTransfer(self._spec.count, device)
        self._places, size = packed_places(network)
        self.params = torch.zeros(size, device=device)
        self.params_bf16 = self.params if self._dtype == torch.float32 else self.params.to(self._dtype)
        params, copies = self._views(self.params), self._views(self.params_bf16)
        self._leaves = {name: (params if _in_float32(name) else copies)[name].detach() for name in self._places}
        torso = [place.stop for name, place in self._places.items() if name.startswith(("conv", "block"))]
        self.head_offset = max(torso)
        self._noisy = self._noisy_layers()
        self.noise = sum(count for pair in self._noisy.values() for count in pair)
        self._layers = {name: self._affine(self._leaves, name) for name in self._linear_layers()}
        recurrent = [leaf for name, leaf in self._leaves.items() if name.startswith(_LSTM)]
        self._lstm = lstm.Weights(*recurrent) if recurrent else None
        self._cosines = math.pi * torch.arange(COSINES, device=device, dtype=torch.float32)
        # Where gradients go: those of linear layers by themselves, the others by PyTorch's backward pass.
        self._into: dict[str, Affine] = {}
        self._others: tuple[list[Tensor], list[Tensor]] = [], []
        self._side_stream = SideStream()
        # What power iteration found, to be kept after the backward pass, which needs all parameters as they were.
        self._iterated: list[tuple[Tensor, Tensor]] = []
        self._is_replica = False

    def replica(self) -> AutogradModel:
        """The same parameters (`ReplicableModel.replica`)."""
        other = copy.copy(self)
        other._iterated, other._is_replica = [], True
        return other

    def keep_state(self) -> None:
        """Keep what power iteration found (`ReplicableModel.keep_state`)."""
        for u, found in self._iterated:
            u.copy_(found)
        self._iterated.clear()

    def pack(self, canonical: NDArray[np.float32], packed: Tensor) -> None:
        """Copy parameters from canonical to packed layout."""
        views = self._views(packed)
        packed.zero_()  # between parameters, too: a gradient that was not finite leaves no zeros there
        for name, part in self._canonical_parts(self._transfer.to_device(canonical)).items():
            views[name].copy_(part)

    def unpack(self, packed: Tensor, canonical: NDArray[np.float32]) -> None:
        """Copy parameters from packed to canonical layout."""
        views, vector = self._views(packed), torch.empty(self._spec.count, device=packed.device)
        for name, part in self._canonical_parts(vector).items():
            part.copy_(views[name])
        self._transfer.to_host(vector, canonical)

    def export_into(self, out: NDArray[np.float32]) -> None:
        """Copy `params` in canonical layout, which leaves out the numbers between parameters."""
        self.unpack(self.params, out)

    def take(self, exported: NDArray[np.float32]) -> None:
        """Take over parameters in canonical layout."""
        self.pack(exported, self.params)
        self.sync_copy()

    def _canonical_parts(self, canonical: Tensor) -> dict[str, Tensor]:
        """The parameters in a vector [P] in canonical layout, by name and in their shapes."""
        parts = canonical.split([math.prod(shape) for _, shape in self._spec.shapes])
        return {name: part.view(shape) for (name, shape), part in zip(self._spec.shapes, parts, strict=True)}

    def sync_copy(self) -> None:
        """Update `params_bf16` from `params`."""
        if self.params_bf16 is not self.params:
            self.params_bf16.copy_(self.params)

    def refresh(self) -> None:
        """Do nothing: there are no further copies of the parameters."""

    def gradient_into(self, flat: Tensor) -> None:
        """Set the vector that `backward` writes into."""
        flat.zero_()  # what no pass writes has no gradient: the vectors of power iteration
        views = self._views(flat)
        self._into = {name: self._affine(views, name) for name in self._layers}
        alone = {id(tensor) for layer in self._layers.values() for tensor in layer}
        others = [name for name, leaf in self._leaves.items() if id(leaf) not in alone and not name.endswith(".u")]
        self._others = [self._leaves[name].requires_grad_() for name in others], [views[name] for name in others]

    def forward(
        self,
        blocks: Tensor,
        stack_offset: int,
        extra_inputs: ExtraInputs,
        settle: Callable[[], None] | None = None,
        *,
        learns: bool = False,
    ) -> AutogradPass:
        """The outputs for stacks (`Model.forward`)."""
        if not learns:
            return self._pass(blocks, stack_offset, extra_inputs, settle, learns=False)
        with torch.inference_mode(False), torch.enable_grad():
            return self._pass(blocks, stack_offset, extra_inputs, settle, learns=True)

    def backward(self, saved: AutogradPass, gradient: Tensor, side_stream: SideStream) -> None:
        """Write the gradient by the parameters (`Model.backward`)."""
        self._side_stream = side_stream
        others, into = self._others
        with torch.inference_mode(False):
            gradients = torch.autograd.grad(saved.outputs, others, gradient.clone())
        torch._foreach_copy_(into, gradients)
        if not self._is_replica:
            self.keep_state()

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters in a flat vector, by name and in their shapes."""
        found = {}
        for name, shape in self._spec.shapes:
            part = flat[self._places[name]]
            if _channels_last(name, shape):
                out, inputs, height, width = shape
                found[name] = part.view(out, height, width, inputs).permute(0, 3, 1, 2)
            else:
                found[name] = part.view(shape)
        return found

    # --- the parts

    def _pass(
        self,
        blocks: Tensor,
        stack_offset: int,
        extra_inputs: ExtraInputs,
        settle: Callable[[], None] | None,
        *,
        learns: bool,
    ) -> AutogradPass:
        if self.network.name in CONVOLUTIONAL:
            x = self._convolutions(network_input(blocks, stack_offset, self._planes, self._dtype))
        else:
            frames = planes_in(stack_in(blocks, stack_offset, self._planes))
            x = self._impala(frames.to(self._dtype, memory_format=torch.channels_last), learns)
        if self.network.pooling:
            x = max_pool(x)
        features = x.flatten(1)
        if settle is not None:
            settle()
        if extra_inputs.fractions is not None:
            features = self._embedded(features, extra_inputs.fractions)
        noise = self._scaled_noise(extra_inputs.noise, features)
        hidden, state = self._hidden("hidden", features, noise), None
        if self._lstm is not None:
            assert extra_inputs.recurrence is not None, "a recurrent network has a state"
            hidden, state = lstm.unroll(hidden, extra_inputs.recurrence, self._lstm)
        value = self._last(self.network.head, hidden, noise)
        if not self.network.dueling:
            return AutogradPass(value, state)
        advantage = self._last("advantage", self._hidden("advantage_hidden", features, noise), noise)
        return AutogradPass(value + advantage - advantage.mean(1, keepdim=True))  # Wang et al. 2016, equation 9

    def _hidden(self, name: str, features: Tensor, noise: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
        """float32[n, hidden] of features [n, features], or of one row for every fraction."""
        x = self._linear(name, features, noise.get(name)).float()
        if self.network.layer_norm:
            x = self._normed(f"{name}_norm", x)
        return x.relu()

    def _last(self, name: str, x: Tensor, noise: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
        """float32[n, outputs or 1, atoms] of hidden units [n, hidden], or of one row for every fraction."""
        y = self._linear(name, x, noise.get(name))
        return y.transpose(1, 2) if y.dim() == 3 else y.view(len(y), -1, self.network.atoms)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        """Layer normalization of float32[..., units] over the units (Ba et al. 2016, equation 4)."""
        return F.layer_norm(x, x.shape[-1:], self._leaves[f"{name}.weight"], self._leaves[f"{name}.bias"])

    def _linear(self, name: str, x: Tensor, noise: tuple[Tensor, Tensor] | None) -> Tensor:
        """A linear layer; a noisy one adds sigma * f(e_out) f(e_in)^T to its weights (Fortunato et al. 2018)."""

        def layer(name: str, x: Tensor) -> Tensor:
            into = self._into.get(name) if torch.is_grad_enabled() else None
            return linear(x, self._layers[name], into, lambda: self._side_stream)

        y = layer(name, x)
        if noise is None:
            return y
        of_inputs, of_outputs = noise
        return y + of_outputs.to(x.dtype) * layer(name + SIGMA, x * of_inputs.to(x.dtype))

    def _convolutions(self, x: Tensor) -> Tensor:
        for i, (out, kernel, stride) in enumerate(CONVOLUTIONAL[self.network.name].convolutions, start=1):
            weight, bias = self._leaves[f"conv{i}.weight"], self._leaves[f"conv{i}.bias"]
            if i == 1:  # of frames cut into blocks: learner/networks/frame_blocks.py
                k = kernel // BLOCK
                split = weight.view(out, self._planes, k, BLOCK, k, BLOCK).permute(0, 1, 3, 5, 2, 4)
                weight, stride = split.reshape(out, self._planes * CELL, k, k) * PIXEL, 1
            x = F.conv2d(x, weight, bias, stride)
            if self.network.conv_norm:  # over the channels of each place, which lie side by side in memory
                places = self._normed(f"conv{i}_norm", x.permute(0, 2, 3, 1).float())
                x = places.to(x.dtype).permute(0, 3, 1, 2)
            x = x.relu()
        return x

    def _impala(self, x: Tensor, learns: bool) -> Tensor:
        """Espeholt et al. 2018, figure 3, right: blocks of a convolution, pooling and residual parts."""
        x = x * PIXEL
        for i in range(1, len(IMPALA) + 1):
            x = max_pool(self._padded(f"block{i}.conv", x, learns))
            for j in range(1, RESIDUALS + 1):
                y = self._padded(f"block{i}.residual{j}.conv1", x.relu(), learns)
                x = x + self._padded(f"block{i}.residual{j}.conv2", y.relu(), learns)
        return x.relu()

    def _padded(self, name: str, x: Tensor, learns: bool) -> Tensor:
        weight, bias = self._leaves[f"{name}.weight"], self._leaves[f"{name}.bias"]
        if f"{name}.u" in self._leaves:
            weight = weight / self._largest_singular_value(name, weight, learns).to(weight.dtype)
        return F.conv2d(x, weight, bias, padding=1)

    def _largest_singular_value(self, name: str, weight: Tensor, learns: bool) -> Tensor:
        """u^T W v by one step of power iteration (Miyato et al. 2018, algorithm 1); what learns keeps the new u.

        u is kept among the parameters, so that it is published, saved and restored with them.
        """
        u, matrix = self._leaves[f"{name}.u"], weight.flatten(1).float()
        with torch.no_grad():
            if learns:
                v = F.normalize(matrix.t() @ u, dim=0, eps=_TINY)
                found = F.normalize(matrix @ v, dim=0, eps=_TINY)
                self._iterated.append((u, found))
                u = found
            v = F.normalize(matrix.t() @ u, dim=0, eps=_TINY)
        return torch.dot(u, matrix @ v)

    def _embedded(self, features: Tensor, fractions: Tensor) -> Tensor:
        """[n, fractions, features]: features times those of the fractions (Dabney et al. 2018b, equation 4)."""
        cosines = (fractions[..., None] * self._cosines).cos().to(self._dtype)
        embedding = F.linear(cosines, self._leaves["embedding.weight"], self._leaves["embedding.bias"]).relu()
        return features[:, None] * embedding

    # --- linear layers

    def _linear_layers(self) -> list[str]:
        """Names of the linear layers; the sigmas of a noisy one are a layer of their own."""
        streams = ("hidden", self.network.head, "advantage_hidden", "advantage")
        names = [name + part for name in streams for part in ("", SIGMA)]
        return [name for name in names if _weight(name) in self._leaves]

    @staticmethod
    def _affine(tensors: dict[str, Tensor], name: str) -> Affine:
        weight = _weight(name)
        return Affine(tensors[weight], tensors[weight.replace(".weight", ".bias")])

    # --- noise

    def _noisy_layers(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of every noisy layer."""
        found = {}
        for name, shape in parameters_of(self.network).shapes:
            if name.endswith(".weight_sigma"):
                found[name.removesuffix(".weight_sigma")] = (shape[1], shape[0])
        return found

    def _scaled_noise(self, noise: Tensor | None, features: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """f(e_in) and f(e_out) of every noisy layer, f(x) = sgn(x) sqrt|x|, a row for every row of the features."""
        if noise is None or not self._noisy:
            return {}
        scaled = noise.sign() * noise.abs().sqrt()
        rows = scaled[:, None].expand(-1, len(features) // len(noise), -1).flatten(0, 1)
        if features.dim() == 3:
            rows = rows[:, None]
        counts = [count for pair in self._noisy.values() for count in pair]
        parts = iter(rows.split(counts, -1))
        return {name: (next(parts), next(parts)) for name in self._noisy}


def _channels_last(name: str, shape: tuple[int, ...]) -> bool:
    """True if a parameter is a convolution's weight, kept channels-last; the first one is cut into blocks anyway."""
    return len(shape) == 4 and name != "conv1.weight"


def _weight(layer: str) -> str:
    """The name of a linear layer's weights."""
    return f"{layer.removesuffix(SIGMA)}.weight{SIGMA if layer.endswith(SIGMA) else ''}"


def _in_float32(name: str) -> bool:
    return name.startswith(("value.", "heads.", "advantage.", _LSTM)) or "_norm." in name or name.endswith(".u")
