"""Names and shapes of a network's parameters, without torch.

Parameters travel as one flat float32 vector, in the order of the modules in learner/networks/modules.py. This table is
for processes without torch: the launcher, and the scribe, which writes named tensors. A test compares it with the
modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from shared.network_spec import CONVOLUTIONAL, COSINES, IMPALA, RESIDUALS, Network

Shapes = Iterator[tuple[str, tuple[int, ...]]]

ALIGNED = 64
"""In packed layout, parameters of networks that are not plain begin at multiples of so many: kernels for matrices want
addresses that are multiples of 16 bytes. Those of plain ones follow each other."""


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
        parts = np.split(flat, np.cumsum([prod(shape) for _, shape in self.shapes])[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes, parts, strict=True)}


def parameters_of(network: Network) -> ParameterSpec:
    """The parameters of a network: its torso, the embedding of fractions, and a stream or, dueling, two.

    A stream of a recurrent network has an LSTM before its last layer.
    """
    shapes = [*_torso(network)]
    features, hidden = network.features, network.hidden
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


def packed_places(network: Network) -> tuple[dict[str, slice], int]:
    """Places of the parameters in a packed vector (`learner.networks.model.Model.params`), by name, and its length.

    Those of linear layers are last. Numbers between the parameters stay 0.
    """
    places, offset, aligned = {}, 0, 1 if network.plain else ALIGNED
    linear = "hidden", "advantage_hidden", "value", "advantage", network.head
    for name, shape in sorted(parameters_of(network).shapes, key=lambda each: each[0].partition(".")[0] in linear):
        places[name] = slice(offset, offset + prod(shape))
        offset = -(-places[name].stop // aligned) * aligned
    return places, offset


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


def _torso(network: Network) -> Shapes:
    if network.own is not None:
        return ((f"torso.{name}", shape) for name, shape in network.own.shapes)
    return _convolutions(network) if network.name in CONVOLUTIONAL else _impala(network)


def _convolutions(network: Network) -> Shapes:
    channels = network.frames.planes
    for i, (out, kernel, _) in enumerate(CONVOLUTIONAL[network.name].convolutions, start=1):
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
