"""Networks as modules of PyTorch: a torso, and behind it hidden layers, noise, an LSTM and the head of a method.

Names, shapes and order of parameters, their initial values and the pass follow from these modules. A built-in torso
reads frames cut into blocks (learner/networks/frame_blocks.py); one of the user reads planes. With bfloat16 the last
layer of a stream, an LSTM and normalization are computed in float32, and a torso of the user as `torch.autocast` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from learner.engine.side_stream import SideStream
from learner.networks import lstm
from learner.networks.frame_blocks import PIXEL, planes_in
from learner.networks.initial_values import HIDDEN_GAIN, LSTM_GAIN, POLICY_GAIN, VALUE_GAIN, Draws
from learner.networks.linear import Affine, linear
from learner.networks.model import ExtraInputs
from learner.networks.own_torso import make_torso
from learner.networks.pooling import max_pool
from shared.config.sections import Initial
from shared.frame_shape import BLOCK, CELL
from shared.network_spec import CONVOLUTIONAL, COSINES, IMPALA, RESIDUALS, Network

_TINY = 1e-12
Noise = tuple[Tensor, Tensor]
"""f(e_in) and f(e_out) of a noisy layer."""


class Layer(nn.Module):
    """Weights and a bias, whose first values do not depend on the dtype."""

    gains: Sequence[tuple[int, float]] = ()
    """Numbers of rows and their gains, of orthogonal first weights; default: that of hidden layers for all."""

    def __init__(self, dtype: torch.dtype, *shape: int) -> None:
        super().__init__()
        self.weight, self.bias = _parameter(dtype, *shape), _parameter(dtype, shape[0])

    @property
    def bound(self) -> float:
        """Bound of uniform first values: 1/sqrt(fan-in)."""
        return 1.0 / math.sqrt(math.prod(self.weight.shape[1:]))

    def initialize(self, name: str, draws: Draws) -> None:
        """Draw the first values."""
        draws.fill(self.weight, f"{name}.weight", self.bound, self.gains or [(len(self.weight), HIDDEN_GAIN)])
        draws.fill(self.bias, f"{name}.bias", self.bound)


class Convolution(Layer):
    """A convolution of 3x3 with a border of 1, or of another kernel, stride and border."""

    def __init__(
        self, dtype: torch.dtype, inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, padding: int = 1
    ) -> None:
        super().__init__(dtype, outputs, inputs, kernel, kernel)
        self._stride, self._padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """[n, outputs, y, x] of [n, inputs, y, x]."""
        return F.conv2d(x, self.weight, self.bias, self._stride, self._padding)


class BlockConvolution(Convolution):
    """A first convolution, whose stride is a block and whose kernel is whole blocks, of pixels 0..255."""

    def forward(self, x: Tensor) -> Tensor:
        """[n, outputs, y, x] of blocks [n, planes * 16, y, x]."""
        out, planes, kernel, _ = self.weight.shape
        k = kernel // BLOCK
        split = self.weight.view(out, planes, k, BLOCK, k, BLOCK).permute(0, 1, 3, 5, 2, 4)
        return F.conv2d(x, split.reshape(out, planes * CELL, k, k) * PIXEL, self.bias)


class SpectralConvolution(Convolution):
    """A convolution whose weights are divided by their largest singular value (Miyato et al. 2018).

    That is u^T W v by one step of power iteration (algorithm 1). u is a parameter, so that it is published, saved and
    restored with the others.
    """

    def __init__(self, dtype: torch.dtype, inputs: int, outputs: int) -> None:
        super().__init__(dtype, inputs, outputs)
        self.u = _parameter(torch.float32, outputs)
        self.u.requires_grad_(False)
        self.found: Tensor | None = None
        """The next u, to be kept after the backward pass, which needs all parameters as they were."""

    def initialize(self, name: str, draws: Draws) -> None:
        """Draw the first values."""
        super().initialize(name, draws)
        draws.fill_singular_vector(self.u, self.weight)

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


class Linear(Layer):
    """A linear layer; a noisy one adds sigma * f(e_out) f(e_in)^T to its weights (Fortunato et al. 2018).

    Attributes:
        into, sigma_into: tensors for gradients, which `learner.networks.linear` writes; None: no backward pass follows.
    """

    into: Affine | None = None
    sigma_into: Affine | None = None
    side_stream: Callable[[], SideStream] = SideStream
    """Stream for those gradients; by default its own thread."""

    def __init__(
        self, dtype: torch.dtype, inputs: int, outputs: int, sigma: float, gains: Sequence[tuple[int, float]] = ()
    ) -> None:
        """`sigma`: sigma_0 of noise; 0: the layer is not noisy."""
        super().__init__(dtype, outputs, inputs)
        self.gains, self._sigma = gains, sigma
        self.noisy = sigma > 0
        if self.noisy:
            self.weight_sigma, self.bias_sigma = _parameter(dtype, outputs, inputs), _parameter(dtype, outputs)

    def initialize(self, name: str, draws: Draws) -> None:
        """Draw the first values; sigma is sigma_0/sqrt(fan-in) (section 3.2)."""
        super().initialize(name, draws)
        if self.noisy:
            self.weight_sigma.fill_(self._sigma * self.bound)
            self.bias_sigma.fill_(self._sigma * self.bound)

    def forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        """[..., outputs] of [..., inputs]."""
        y = self._affine(x, Affine(self.weight, self.bias), self.into)
        if noise is None:
            return y
        of_inputs, of_outputs = noise
        sigma = Affine(self.weight_sigma, self.bias_sigma)
        return y + of_outputs.to(x.dtype) * self._affine(x * of_inputs.to(x.dtype), sigma, self.sigma_into)

    def _affine(self, x: Tensor, layer: Affine, into: Affine | None) -> Tensor:
        return linear(x, layer, into if torch.is_grad_enabled() else None, self.side_stream)


class Norm(nn.Module):
    """Layer normalization over the last dimension, in float32 (Ba et al. 2016, equation 4)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(units)), nn.Parameter(torch.zeros(units))

    def forward(self, x: Tensor) -> Tensor:
        """float32[..., units] of float32[..., units]."""
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias)


class LSTM(nn.Module):
    """An LSTM in float32 with the parameters of PyTorch's."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self._units = units
        gates, float32 = 4 * units, torch.float32
        self.weight_ih_l0, self.weight_hh_l0 = _parameter(float32, gates, inputs), _parameter(float32, gates, units)
        self.bias_ih_l0, self.bias_hh_l0 = _parameter(float32, gates), _parameter(float32, gates)

    def initialize(self, name: str, draws: Draws) -> None:
        """Draw the first values."""
        for each, parameter in self.named_parameters():
            draws.fill(parameter, f"{name}.{each}", 1.0 / math.sqrt(self._units), [(len(parameter), LSTM_GAIN)])

    def forward(self, x: Tensor, extra_inputs: ExtraInputs) -> tuple[Tensor, Tensor]:
        """Outputs and state (`lstm.unroll`)."""
        assert extra_inputs.recurrence is not None, "a recurrent network has a state"
        return lstm.unroll(x, extra_inputs.recurrence, lstm.Weights(*self.parameters()))


class Embedding(Layer):
    """The embedding of quantile fractions (Dabney et al. 2018b, equation 4)."""

    def __init__(self, dtype: torch.dtype, features: int) -> None:
        super().__init__(dtype, features, COSINES)

    def forward(self, features: Tensor, fractions: Tensor) -> Tensor:
        """[n, fractions, features]: features [n, features] times those of the fractions [n, fractions]."""
        multiples = math.pi * torch.arange(COSINES, device=features.device, dtype=torch.float32)
        cosines = (fractions[..., None] * multiples).cos().to(features.dtype)
        return features[:, None] * F.linear(cosines, self.weight, self.bias).relu()


# --- torsos


class Convolutional(nn.Module):
    """Convolutions without a border (`shared.network_spec.CONVOLUTIONAL`), normalized or not, with ReLU."""

    def __init__(self, network: Network, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype, inputs, layers = dtype, network.frames.planes, CONVOLUTIONAL[network.name].convolutions
        self._reads_blocks, self._normalized = layers[0].reads_blocks, network.conv_norm
        for i, (outputs, kernel, stride) in enumerate(layers, start=1):
            kind = BlockConvolution if i == 1 and self._reads_blocks else Convolution
            self.add_module(f"conv{i}", kind(dtype, inputs, outputs, kernel, stride=stride, padding=0))
            if self._normalized:
                self.add_module(f"conv{i}_norm", Norm(outputs))
            inputs = outputs

    def forward(self, cells: Tensor) -> Tensor:
        """[n, channels, y, x] of uint8[n, g, g, planes * 16]."""
        cut = cells.permute(0, 3, 1, 2).to(self._dtype, memory_format=torch.channels_last)
        x = cut if self._reads_blocks else _pixels(cells, self._dtype)
        for layer in self.children():
            if isinstance(layer, Norm):  # over the channels of each place, which lie side by side in memory
                x = layer(x.permute(0, 2, 3, 1).float()).to(x.dtype).permute(0, 3, 1, 2).relu()
            else:
                x = layer(x)
                x = x if self._normalized else x.relu()
        return x


class Residual(nn.Module):
    """x + conv2(relu(conv1(relu(x))))."""

    def __init__(self, network: Network, dtype: torch.dtype, channels: int) -> None:
        super().__init__()
        kind = SpectralConvolution if network.spectral_norm else Convolution
        self.conv1, self.conv2 = kind(dtype, channels, channels), kind(dtype, channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """[n, channels, y, x] of as many."""
        found: Tensor = x + self.conv2(self.conv1(x.relu()).relu())
        return found


class Impala(nn.Module):
    """Blocks of a convolution, pooling and residual parts (Espeholt et al. 2018, figure 3, right)."""

    def __init__(self, network: Network, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype, inputs = dtype, network.frames.planes
        for i, base in enumerate(IMPALA, start=1):
            outputs = base * network.width
            parts: dict[str, nn.Module] = {"conv": Convolution(dtype, inputs, outputs)}
            parts |= {f"residual{j}": Residual(network, dtype, outputs) for j in range(1, RESIDUALS + 1)}
            self.add_module(f"block{i}", nn.ModuleDict(parts))
            inputs = outputs

    def forward(self, cells: Tensor) -> Tensor:
        """[n, channels, y, x] of uint8[n, g, g, planes * 16]."""
        x = _pixels(cells, self._dtype)
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
            features: Tensor = self.torso(planes_in(cells))
        return features.to(self._dtype)


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
        if network.own is not None:
            self.torso: nn.Module = Own(network, dtype, seed)
        else:
            self.torso = (Convolutional if network.name in CONVOLUTIONAL else Impala)(network, dtype)
        if network.method == "iqn":
            self.embedding = Embedding(dtype, network.features)
        gains = [(network.actions, POLICY_GAIN), (1, VALUE_GAIN)] if network.value_output else [(outputs, VALUE_GAIN)]
        if network.dueling:
            self._add_stream("hidden", network.head, dtype, [(network.atoms, VALUE_GAIN)])
            self._add_stream("advantage_hidden", "advantage", dtype, gains)
        else:
            self._add_stream("hidden", network.head, dtype, gains)
        self._noisy = [layer for layer in self.children() if isinstance(layer, Linear) and layer.noisy]
        self._noises = [count for layer in self._noisy for count in reversed(layer.weight.shape)]
        self.noise = sum(self._noises)
        """Normal numbers that its noisy layers take at a time."""

    def _add_stream(self, inner: str, last: str, dtype: torch.dtype, gains: Sequence[tuple[int, float]]) -> None:
        """Add a hidden layer and a last one with a row for each gain."""
        network = self._network
        self.add_module(inner, Linear(dtype, network.features, network.hidden, network.noisy))
        if network.layer_norm:
            self.add_module(f"{inner}_norm", Norm(network.hidden))
        if network.recurrent:
            self.lstm = LSTM(network.hidden, network.recurrent)
        inputs, rows = network.recurrent or network.hidden, sum(count for count, _ in gains)
        self.add_module(last, Linear(torch.float32, inputs, rows, network.noisy, gains))

    def parameters_by_name(self) -> dict[str, nn.Parameter]:
        """Parameters by their names in `shared.network_parameters`, in order."""
        return {canonical(name): parameter for name, parameter in self.named_parameters()}

    def forward(
        self, cells: Tensor, extra_inputs: ExtraInputs, settle: Callable[[], None] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs float32[n, outputs, atoms] and the state of the LSTM (`learner.networks.model.ForwardPass`).

        Args:
            cells: uint8[n, g, g, planes * 16], stacks cut into blocks.
            settle: called before parameters behind the torso are read.
        """
        network, x = self._network, self.torso(cells)
        features = (max_pool(x) if network.pooling else x).flatten(1)
        if settle is not None:
            settle()
        if extra_inputs.fractions is not None:
            features = self.embedding(features, extra_inputs.fractions)
        noise = self._scaled_noise(extra_inputs.noise, features)
        hidden, state = self._hidden("hidden", features, noise), None
        if network.recurrent:
            hidden, state = self.lstm(hidden, extra_inputs)
        value = self._last(network.head, hidden, noise)
        if not network.dueling:
            return value, state
        advantage = self._last("advantage", self._hidden("advantage_hidden", features, noise), noise)
        return value + advantage - advantage.mean(1, keepdim=True), None  # Wang et al. 2016, equation 9

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
            if isinstance(layer, Layer | LSTM):
                layer.initialize(canonical(name), draws)
        return torch.cat([parameter.flatten() for parameter in module.parameters_by_name().values()]).numpy()


def _parameter(dtype: torch.dtype, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=dtype))


def _pixels(cells: Tensor, dtype: torch.dtype) -> Tensor:
    """Planes dtype[n, planes, side, side] in 0..1 of uint8[n, g, g, planes * 16]."""
    return planes_in(cells).to(dtype, memory_format=torch.channels_last) * PIXEL
