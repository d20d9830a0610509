"""Comparison of a machine's arithmetic with a CPU's float32, before training."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.device import return_freed_memory
from learner.engine.side_stream import SideStream
from learner.networks.model import ExtraInputs, Recurrence
from learner.networks.module_model import make_model
from learner.networks.modules import initial_parameters
from shared.errors import ConfigError
from shared.network_parameters import parameters_of
from shared.network_spec import Network

OUTPUTS_OFF = 0.1
"""Relative error of outputs that rounding does not explain: it reaches 0.01, and a wrong kernel 0.2 to 1."""
GRADIENTS_OFF = 0.4
"""The same for the gradients by a parameter: rounding reaches 0.2, and a wrong kernel 0.9 to 2."""
DRAWS = 4
"""Draws of parameters, pixels and gradients whose errors are pooled before a kernel is called wrong. All rows are noise
and look alike, so a hidden unit near zero may be inactive in every row in one precision and active in the other. That
alone changes the gradients of one draw by 0.4."""
CHECKED_ROWS = 8
"""Rows of a batch that are compared; a large network takes a CPU long in float32."""


def check_arithmetic(network: Network, device: torch.device, precision: str, batch: int, *, learns: bool) -> None:
    """Compare this machine's arithmetic with a CPU's float32 in a batch of the size that will be used: forward, and
    backward where it `learns`.

    Libraries choose kernels by processor and shape, and some have been wrong without an error (oneDNN 3.12 with AMX:
    convolutions of 16 channels with stride 4; cuDNN on Hopper, pytorch/pytorch#150700). The first rows stand for all.

    Raises:
        ConfigError: what it gives is further from float32 than rounding explains.
    """
    if (device.type, precision) == ("cpu", "fp32"):
        return
    squares = []
    for draw in range(DRAWS):
        squares.append(_squares(network, device, precision, batch, draw, learns=learns))
        errors, sizes = np.sum(squares, axis=0).T
        off = np.sqrt(errors / np.maximum(sizes, 1e-60))
        fine = off < [OUTPUTS_OFF, *[GRADIENTS_OFF] * (len(off) - 1)]
        if fine.all():
            return_freed_memory()
            return
    raise ConfigError(
        f"On {device}, {precision} gives network {network} values that are {off[~fine].max():.0%} off: a kernel of "
        f"PyTorch {torch.__version__} is wrong on this processor. Use "
        f"{'--precision fp32 (--acting-precision, too, if given)' if precision != 'fp32' else '--device cpu'}."
    )


def _squares(
    network: Network, device: torch.device, precision: str, batch: int, draw: int, *, learns: bool
) -> list[tuple[float, ...]]:
    """Sums of squares of the error and of the exact values: of the outputs, and of the gradients by each parameter."""
    generator = torch.Generator().manual_seed(draw)
    pixels = torch.randint(0, 256, network.frames.blocks(batch), generator=generator, dtype=torch.uint8)
    fractions = torch.rand(batch, 2, generator=generator) if network.method == "iqn" else None
    atoms = network.atoms if fractions is None else 2
    gradient = torch.randn(batch, network.outputs, atoms, generator=generator)
    gradient[CHECKED_ROWS:] = 0
    state = torch.randn(batch, 2, network.recurrent, generator=generator) if network.recurrent else None
    parameters = initial_parameters(network, draw)
    inputs = [pixels, fractions, state, gradient if learns else None]
    first = [None if each is None else each[:CHECKED_ROWS] for each in inputs]
    exact = _numbers(network, torch.device("cpu"), "fp32", parameters, *first)
    computed = _numbers(network, device, precision, parameters, *inputs)
    pairs = [(right - found, right) for right, found in zip(exact, computed, strict=True)]
    return [tuple(float(np.sum(np.square(values, dtype=np.float64))) for values in pair) for pair in pairs]


def _numbers(
    network: Network, device: torch.device, precision: str, parameters: NDArray[np.float32], *inputs: Tensor | None
) -> list[NDArray[np.float32]]:
    """First outputs of a network; given a gradient by the outputs, also that by each parameter.

    Args:
        inputs: on the CPU, with a row for each observation: blocks uint8[n, ...]; of IQN, fractions float32[n, 2]; of a
            recurrent network, its state float32[n, 2, units]; for a backward pass, the gradient by the outputs
            float32[n, outputs, atoms].
    """
    pixels, fractions, state, gradient = (None if each is None else each.to(device) for each in inputs)
    assert pixels is not None, "frames are there"
    model = make_model(network, device, precision)
    model.pack(parameters, model.params)
    model.sync_copy()
    recurrence = None if state is None else Recurrence(state, torch.zeros(len(state), device=device))
    extra_inputs = ExtraInputs(fractions, recurrence=recurrence)
    if gradient is None:
        with torch.no_grad():
            return [model.forward(pixels, 0, extra_inputs).outputs[:CHECKED_ROWS].numpy(force=True)]
    vector, canonical = torch.zeros_like(model.params_bf16), np.zeros(parameters_of(network).count, np.float32)
    model.gradient_into(vector)
    saved = model.forward(pixels, 0, extra_inputs, learns=True)
    model.backward(saved, gradient, SideStream())
    model.unpack(vector.float(), canonical)
    outputs = saved.outputs.detach()[:CHECKED_ROWS].numpy(force=True)
    return [outputs, *parameters_of(network).split(canonical).values()]
