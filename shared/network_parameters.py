"""Names and shapes of a network's parameters, without torch.

Parameters travel as one flat float32 vector, in the order of their names here, which are those of PyTorch's layers.
The scribe turns it back into named tensors for checkpoints. The networks in `learner/` are built to these shapes, which
a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from shared.network_spec import COSINES, IMPALA, PLAIN_NETWORKS, RESIDUALS, Network

Shapes = Iterator[tuple[str, tuple[int, ...]]]

ALIGNED = 64
"""In packed layout, parameters of networks that are not plain begin at multiples of so many: kernels for matrices want
addresses that are multiples of 16 bytes."""


@dataclass(frozen=True)
class ParameterSpec:
    """Ordered (name, shape) pairs of one network."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def count(self) -> int:
        """Number of float32 parameters."""
        return sum(prod(shape) for _, shape in self.shapes)

    def split(self, flat: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Named views of a flat vector float32[count]."""
        views, offset = {}, 0
        for name, shape in self.shapes:
            views[name] = flat[offset : offset + prod(shape)].reshape(shape)
            offset += prod(shape)
        return views


def parameters_of(network: Network) -> ParameterSpec:
    """The parameters of a network: convolutions, the embedding of fractions, and a stream or, dueling, two.

    A stream of a recurrent network has an LSTM before its last layer.
    """
    shapes = [*(_convolutions(network) if network.name in PLAIN_NETWORKS else _impala(network))]
    features, hidden = network.torso.features, network.hidden
    if network.method == "iqn":
        shapes += _layer("embedding", (features, COSINES))
    outputs = network.outputs * network.atoms
    streams = [("hidden", network.head, network.atoms if network.dueling else outputs)]
    if network.dueling:
        streams.append(("advantage_hidden", "advantage", outputs))
    for inner, last, count in streams:
        shapes += _linear(network, inner, (hidden, features))
        if network.layer_norm:
            shapes += _layer(f"{inner}_norm", (hidden,))
        if network.recurrent:
            shapes += _lstm(network.recurrent, hidden)
        shapes += _linear(network, last, (count, network.recurrent or hidden))
    return ParameterSpec(tuple(shapes))


def aligned_places(spec: ParameterSpec) -> tuple[dict[str, slice], int]:
    """Places of the parameters of a network that is not plain in a packed vector, by name, and the vector's length.

    Numbers between the parameters stay 0.
    """
    places, offset = {}, 0
    for name, shape in spec.shapes:
        places[name] = slice(offset, offset + prod(shape))
        offset = -(-places[name].stop // ALIGNED) * ALIGNED
    return places, offset


def packed_count(network: Network) -> int:
    """Length of a vector in packed layout (`learner.networks.model.Model.params`)."""
    spec = parameters_of(network)
    return spec.count if network.plain else aligned_places(spec)[1]


def _layer(name: str, shape: tuple[int, ...]) -> Shapes:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def _linear(network: Network, name: str, shape: tuple[int, int]) -> Shapes:
    yield from _layer(name, shape)
    if network.noisy:
        yield f"{name}.weight_sigma", shape
        yield f"{name}.bias_sigma", shape[:1]


def _lstm(units: int, inputs: int) -> Shapes:
    """Gates in the order of PyTorch: input, forget, cell, output."""
    yield "lstm.weight_ih_l0", (4 * units, inputs)
    yield "lstm.weight_hh_l0", (4 * units, units)
    yield "lstm.bias_ih_l0", (4 * units,)
    yield "lstm.bias_hh_l0", (4 * units,)


def _convolutions(network: Network) -> Shapes:
    channels = network.frames.planes
    for i, (out, kernel, _) in enumerate(PLAIN_NETWORKS[network.name].convolutions, start=1):
        yield from _layer(f"conv{i}", (out, channels, kernel, kernel))
        if network.conv_norm:
            yield from _layer(f"conv{i}_norm", (out,))
        channels = out


def _impala(network: Network) -> Shapes:
    channels = network.frames.planes
    for i, base in enumerate(IMPALA, start=1):
        out = base * network.width
        yield from _layer(f"block{i}.conv", (out, channels, 3, 3))
        channels = out
        for j in range(1, RESIDUALS + 1):
            for k in (1, 2):
                name = f"block{i}.residual{j}.conv{k}"
                yield from _layer(name, (out, out, 3, 3))
                if network.spectral_norm:
                    yield f"{name}.u", (out,)
