"""Networks as modules of PyTorch: a torso, and behind it hidden layers, noise, an LSTM and the head of a method.

Names, shapes and order of parameters, their initial values and the pass follow from these modules. A built-in torso
reads frames cut into blocks (learner/networks/frame_blocks.py); one of the user reads planes. With bfloat16 the last
layer of a stream, an LSTM and normalization are computed in float32, and a torso of the user as `torch.autocast` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from learner.networks import lstm
from learner.networks.frame_blocks import PIXEL, images_in, network_input
from learner.networks.initial_values import HIDDEN_GAIN, LSTM_GAIN, POLICY_GAIN, VALUE_GAIN, Draws
from learner.networks.linear import Affine, WriteGradient, WrittenLinear
from learner.networks.model import ExtraInputs
from learner.networks.own_torso import make_torso
from learner.networks.pooling import max_pool
from shared.config.sections import Initial
from shared.frame_shape import BLOCK, CELL
from shared.network_spec import CONVOLUTIONAL, COSINES, IMPALA, RESIDUALS, Network

_TINY = 1e-12
Noise = tuple[Tensor, Tensor]
"""f(e_in) and f(e_out) of a noisy layer."""
Gains = Sequence[tuple[int, float]]
"""Numbers of rows, and the gain of their orthogonal first weights."""


class BlockConvolution(nn.Conv2d):
    """A first convolution, whose stride is a block and whose kernel is whole blocks, of pixels 0..255."""

    def forward(self, x: Tensor) -> Tensor:
        """[n, outputs, y, x] of blocks [n, planes * 16, y, x]."""
        out, planes, kernel, _ = self.weight.shape
        k = kernel // BLOCK
        split = self.weight.view(out, planes, k, BLOCK, k, BLOCK).permute(0, 1, 3, 5, 2, 4)
        return F.conv2d(x, split.reshape(out, planes * CELL, k, k) * PIXEL, self.bias)


class SpectralConvolution(nn.Conv2d):
    """A convolution whose weights are divided by their largest singular value (Miyato et al. 2018).

    That is u^T W v by one step of power iteration (algorithm 1). u is a parameter, so that it is published, saved and
    restored with the others.
    """

    found: Tensor | None = None
    """The next u, to be kept after the backward pass, which needs all parameters as they were."""

    def __init__(self, inputs: int, outputs: int, kernel: int, **more: Any) -> None:
        super().__init__(inputs, outputs, kernel, **more)
        self.u = nn.Parameter(torch.empty(outputs), requires_grad=False)

    def keep(self) -> None:
        """Take over what the newest pass that learns has found."""
        if self.found is not None:
            self.u.copy_(self.found)
            self.found = None

    def forward(self, x: Tensor) -> Tensor:
        """[n, outputs, y, x] of [n, inputs, y, x]."""
        u, matrix = self.u.detach(), self.weight.flatten(1).float()
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        with torch.no_grad():
            v = F.normalize(matrix.t() @ u, dim=0, eps=_TINY)
            if learns:
                u = self.found = F.normalize(matrix @ v, dim=0, eps=_TINY)
                v = F.normalize(matrix.t() @ u, dim=0, eps=_TINY)
        return F.conv2d(x, self.weight / torch.dot(u, matrix @ v).to(self.weight.dtype), self.bias, padding=1)


class Linear(nn.Linear):
    """A linear layer; a noisy one adds sigma * f(e_out) f(e_in)^T to its weights (Fortunato et al. 2018).

    Attributes:
        gains: of the first weights; empty: those of a hidden layer.
        sigma: sigma_0 of its noise; 0: it is not noisy.
        into: take what gradients follow from (`learner.networks.linear`), by the end of the parameters' names: "", or
            "_sigma" of a noisy layer.
    """

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype, sigma: float, gains: Gains = ()) -> None:
        super().__init__(inputs, outputs, dtype=dtype)
        self.sigma, self.gains, self.into = sigma, gains, dict[str, WriteGradient]()
        if sigma:
            self.weight_sigma = nn.Parameter(torch.empty_like(self.weight))
            self.bias_sigma = nn.Parameter(torch.empty_like(self.bias))

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """[..., outputs] of [..., inputs]."""
        y = self._affine(x, "")
        if noise is None:
            return y
        of_inputs, of_outputs = noise
        return y + of_outputs.to(x.dtype) * self._affine(x * of_inputs.to(x.dtype), "_sigma")

    def _affine(self, x: Tensor, end: str) -> Tensor:
        layer = Affine(getattr(self, f"weight{end}"), getattr(self, f"bias{end}"))
        write = self.into.get(end) if torch.is_grad_enabled() else None  # None: autograd adds to its own gradients
        return F.linear(x, *layer) if write is None else WrittenLinear.apply(x, layer, write)


# --- torsos


class Convolutional(nn.Module):
    """Convolutions without a border (`shared.network_spec.CONVOLUTIONAL`), normalized or not, with ReLU."""

    def __init__(self, network: Network, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype, inputs, layers = dtype, network.frames.planes, CONVOLUTIONAL[network.name].convolutions
        self._depth, self._reads_blocks, self._normalized = len(layers), layers[0].reads_blocks, network.conv_norm
        for i, (outputs, kernel, stride) in enumerate(layers, start=1):
            kind = BlockConvolution if i == 1 and self._reads_blocks else nn.Conv2d
            self.add_module(f"conv{i}", kind(inputs, outputs, kernel, stride, dtype=dtype))
            if self._normalized:
                self.add_module(f"conv{i}_norm", nn.LayerNorm(outputs))
            inputs = outputs

    def forward(self, cells: Tensor) -> Tensor:
        """[n, channels, y, x] of uint8[n, g, g, planes * 16]."""
        x = network_input(cells, self._dtype) if self._reads_blocks else images_in(cells, self._dtype)
        for i in range(1, self._depth + 1):
            x = getattr(self, f"conv{i}")(x)
            if self._normalized:  # over the channels of each place, which lie side by side in memory
                places = getattr(self, f"conv{i}_norm")(x.permute(0, 2, 3, 1).float())
                x = places.to(x.dtype).permute(0, 3, 1, 2)
            x = x.relu()
        return x


class Residual(nn.Module):
    """x + conv2(relu(conv1(relu(x))))."""

    def __init__(self, network: Network, dtype: torch.dtype, channels: int) -> None:
        super().__init__()
        kind = SpectralConvolution if network.spectral_norm else nn.Conv2d
        self.conv1, self.conv2 = (kind(channels, channels, 3, padding=1, dtype=dtype) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, y, x] of as many."""
        return x + self.conv2(self.conv1(x.relu()).relu())


class Impala(nn.Module):
    """Blocks of a convolution, pooling and residual parts (Espeholt et al. 2018, figure 3, right)."""

    def __init__(self, network: Network, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype, inputs = dtype, network.frames.planes
        for i, base in enumerate(IMPALA, start=1):
            outputs = base * network.width
            parts: dict[str, nn.Module] = {"conv": nn.Conv2d(inputs, outputs, 3, padding=1, dtype=dtype)}
            parts |= {f"residual{j}": Residual(network, dtype, outputs) for j in range(1, RESIDUALS + 1)}
            self.add_module(f"block{i}", nn.ModuleDict(parts))
            inputs = outputs

    def forward(self, cells: Tensor) -> Tensor:
        """[n, channels, y, x] of uint8[n, g, g, planes * 16]."""
        x = images_in(cells, self._dtype)
        for block in self.children():
            first, *residuals = block.children()
            x = max_pool(first(x))
            for residual in residuals:
                x = residual(x)
        return x.relu()


class Own(nn.Module):
    """A torso of the user."""

    def __init__(self, network: Network, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self._dtype, self.torso = dtype, make_torso(network.name, network.frames, seed)

    def forward(self, cells: Tensor) -> Tensor:
        """[n, features] of uint8[n, g, g, planes * 16]."""
        with torch.autocast(cells.device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            return self.torso(images_in(cells)).to(self._dtype)


# --- the whole


class NetworkModule(nn.Module):
    """A network: a torso, and a stream of layers, or with dueling two (Wang et al. 2016, figure 1)."""

    def __init__(self, network: Network, dtype: torch.dtype, seed: int = 0) -> None:
        """Parameters are computed in their dtype: `dtype`, or float32.

        Args:
            seed: of the first values of a torso of the user; the others are set by `initial_parameters`.
        """
        super().__init__()
        self._network, outputs = network, network.outputs * network.atoms
        self.torso: nn.Module = nn.Identity()
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):  # the layers draw first values, which nobody uses
            if network.own is None:
                self.torso = (Convolutional if network.name in CONVOLUTIONAL else Impala)(network, dtype)
            if network.method == "iqn":
                self.embedding = nn.Linear(COSINES, network.features, dtype=dtype)
            gains = [(outputs, VALUE_GAIN)]
            if network.value_output:
                gains = [(network.actions, POLICY_GAIN), (1, VALUE_GAIN)]
            streams = {"hidden": (network.head, gains)}
            if network.dueling:
                streams = {"hidden": ("value", [(network.atoms, VALUE_GAIN)]), "advantage_hidden": ("advantage", gains)}
            for inner, (last, rows) in streams.items():
                self._add_stream(inner, last, dtype, rows)
        if network.own is not None:
            self.torso = Own(network, dtype, seed)
        self._noisy = [layer for layer in self.children() if isinstance(layer, Linear) and layer.sigma]
        self._noises = [count for layer in self._noisy for count in reversed(layer.weight.shape)]
        self.noise = sum(self._noises)
        """Normal numbers that its noisy layers take at a time."""

    def _add_stream(self, inner: str, last: str, dtype: torch.dtype, gains: Gains) -> None:
        """Add a hidden layer and a last one with a row for each gain."""
        network = self._network
        self.add_module(inner, Linear(network.features, network.hidden, dtype, network.noisy))
        if network.layer_norm:
            self.add_module(f"{inner}_norm", nn.LayerNorm(network.hidden))
        if network.recurrent:  # of which only the parameters are read
            self.lstm = nn.LSTM(network.hidden, network.recurrent)
        inputs, rows = network.recurrent or network.hidden, sum(count for count, _ in gains)
        self.add_module(last, Linear(inputs, rows, torch.float32, network.noisy, gains))

    def parameters_by_name(self) -> dict[str, nn.Parameter]:
        """Parameters by their names in `shared.network_parameters`, in order."""
        return {canonical(name): parameter for name, parameter in self.named_parameters()}

    def forward(self, cells: Tensor, extra_inputs: ExtraInputs) -> tuple[Tensor, Tensor | None]:
        """Outputs float32[n, outputs, atoms] and the state of the LSTM (`learner.networks.model.ForwardPass`).

        Args:
            cells: uint8[n, g, g, planes * 16], stacks cut into blocks.
        """
        return self.outputs(self.features(cells), extra_inputs)

    def features(self, cells: Tensor) -> Tensor:
        """[n, features] of the torso, pooled if need be."""
        x = self.torso(cells)
        return (max_pool(x) if self._network.pooling else x).flatten(1)

    def outputs(self, features: Tensor, extra_inputs: ExtraInputs) -> tuple[Tensor, Tensor | None]:
        """The result of `forward` for features."""
        network = self._network
        if extra_inputs.fractions is not None:
            features = self._embedded(features, extra_inputs.fractions)
        noise = self._scaled_noise(extra_inputs.noise, features)
        hidden, state = self._hidden("hidden", features, noise), None
        if network.recurrent:
            assert extra_inputs.recurrence is not None, "a recurrent network has a state"
            hidden, state = lstm.unroll(hidden, extra_inputs.recurrence, lstm.Weights(*self.lstm.parameters()))
        value = self._last(network.head, hidden, noise)
        if not network.dueling:
            return value, state
        advantage = self._last("advantage", self._hidden("advantage_hidden", features, noise), noise)
        return value + advantage - advantage.mean(1, keepdim=True), None  # Wang et al. 2016, equation 9

    def _embedded(self, features: Tensor, fractions: Tensor) -> Tensor:
        """[n, fractions, features]: features times those of the fractions (Dabney et al. 2018b, equation 4)."""
        multiples = math.pi * torch.arange(COSINES, device=features.device, dtype=torch.float32)
        cosines = (fractions[..., None] * multiples).cos().to(features.dtype)
        return features[:, None] * F.linear(cosines, self.embedding.weight, self.embedding.bias).relu()

    def _hidden(self, name: str, features: Tensor, noise: dict[Linear, Noise]) -> Tensor:
        """float32[n, hidden] of features [n, features], or of one row for every fraction."""
        layer = getattr(self, name)
        x = layer(features, noise.get(layer)).float()
        if self._network.layer_norm:
            x = getattr(self, f"{name}_norm")(x)
        return x.relu()

    def _last(self, name: str, x: Tensor, noise: dict[Linear, Noise]) -> Tensor:
        """float32[n, outputs or 1, atoms] of hidden units [n, hidden], or of one row for every fraction."""
        layer = getattr(self, name)
        y = layer(x, noise.get(layer))
        return y.transpose(1, 2) if y.dim() == 3 else y.view(len(y), -1, self._network.atoms)

    def _scaled_noise(self, noise: Tensor | None, features: Tensor) -> dict[Linear, Noise]:
        """f(e_in) and f(e_out) of every noisy layer, f(x) = sgn(x) sqrt|x|, a row for every row of the features."""
        if noise is None or not self._noisy:
            return {}
        scaled = noise.sign() * noise.abs().sqrt()
        rows = scaled[:, None].expand(-1, len(features) // len(noise), -1).flatten(0, 1)
        parts = iter((rows[:, None] if features.dim() == 3 else rows).split(self._noises, -1))
        return {layer: (next(parts), next(parts)) for layer in self._noisy}


def canonical(name: str) -> str:
    """The name of a parameter of `NetworkModule` in `shared.network_parameters`, without its torso."""
    return name.removeprefix("torso.")


def initial_parameters(network: Network, seed: int, initial: Initial = "auto") -> NDArray[np.float32]:
    """Fresh parameters float32[P], drawn on the CPU, so that all devices begin alike.

    Args:
        initial: torch: weights and biases uniform in +-1/sqrt(fan-in), as PyTorch's layers begin, and those of Torch7,
            in which the DQN of 2015 was written; orthogonal: see `Draws`; auto: orthogonal for actor-critics, else
            torch. A torso of the user begins as its constructor draws it.
    """
    orthogonal = initial == "orthogonal" or (initial == "auto" and network.value_output)
    draws, module = Draws(seed, orthogonal=orthogonal), NetworkModule(network, torch.float32, seed)
    with torch.no_grad():
        for name, layer in module.named_modules():
            if not name.startswith("torso.torso"):
                _initialize(layer, canonical(name), draws)
        return torch.cat([parameter.flatten() for parameter in module.parameters_by_name().values()]).numpy()


def _initialize(layer: nn.Module, name: str, draws: Draws) -> None:
    """Draw the first values of a layer; sigma is sigma_0/sqrt(fan-in) (Fortunato et al. 2018, section 3.2)."""
    if isinstance(layer, nn.LayerNorm):
        layer.reset_parameters()
        return
    bound = 0.0
    for kind, parameter in layer.named_parameters(recurse=False):
        if isinstance(layer, nn.LSTM):
            draws.fill(parameter, f"{name}.{kind}", 1.0 / math.sqrt(layer.hidden_size), [(len(parameter), LSTM_GAIN)])
        elif isinstance(layer, Linear) and kind.endswith("_sigma"):
            parameter.fill_(layer.sigma * bound)
        elif isinstance(layer, SpectralConvolution) and kind == "u":
            draws.fill_singular_vector(parameter, layer.weight)
        else:
            bound = 1.0 / math.sqrt(parameter[0].numel()) if kind == "weight" else bound
            gains = layer.gains if isinstance(layer, Linear) else ()
            draws.fill(parameter, f"{name}.{kind}", bound, gains or [(len(parameter), HIDDEN_GAIN)])
