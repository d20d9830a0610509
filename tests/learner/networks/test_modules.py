"""Both kinds of models against the networks of the papers in PyTorch's own layers, in float64."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from learner.engine.side_stream import SideStream
from learner.networks.frame_blocks import blocks
from learner.networks.fused import FusedModel
from learner.networks.model import ExtraInputs, ForwardPass, Model
from learner.networks.module_model import ModuleModel, make_model
from learner.networks.modules import initial_parameters
from shared.frame_shape import CELL, DEFAULT_FRAMES, FrameShape
from shared.network_parameters import packed_places, parameters_of
from shared.network_spec import CONVOLUTIONAL, COSINES, Network

CPU = torch.device("cpu")
ACTIONS, BATCH = 5, 4
TOLERANCE = {FusedModel: {"fp32": 2e-5, "bf16": 3e-2}, ModuleModel: {"fp32": 2e-5, "bf16": 4e-2}}
GRADIENT_TOLERANCE = {FusedModel: {"fp32": 2e-5, "bf16": 0.2}, ModuleModel: {"fp32": 5e-5, "bf16": 0.25}}
"""With 8 bits some units of a fresh network fall on the other side of zero; PyTorch's autocast is 0.05 to 0.14 off."""

NETWORKS = {
    "c51": Network("small", ACTIONS, "c51", 7, -1.0, 1.0),
    "dueling": Network("small", ACTIONS, dueling=True),
    "noisy": Network("small", ACTIONS, noisy=0.5),
    "layer-norm": Network("small", ACTIONS, layer_norm=True),
    "norms": Network("small", ACTIONS, layer_norm=True, conv_norm=True),
    "actor-critic": Network("a3c", ACTIONS, "a2c", value_output=True, layer_norm=True, conv_norm=True),
    "iqn": Network("small", ACTIONS, "iqn"),
    "rainbow": Network("nature", ACTIONS, "c51", 7, -1.0, 1.0, dueling=True, noisy=0.5),
    "everything": Network("small", ACTIONS, "iqn", dueling=True, noisy=0.5, layer_norm=True),
    "der": Network("der", ACTIONS),
    "impala": Network("impala", ACTIONS),
    "color": Network("small", ACTIONS, dueling=True, frame_size=56, frame_stack=2, frame_channels=3),
    "one frame": Network("impala", ACTIONS, frame_size=56, frame_stack=1),
}
NETWORKS["btr"] = replace(NETWORKS["everything"], name="impala", width=2, pooling=True, spectral_norm=True)
PLAIN = {
    **{name: Network(name, ACTIONS) for name in ("nature", "a3c", "small")},
    "nature in color": Network("nature", ACTIONS, frame_size=64, frame_stack=2, frame_channels=3),
    "a3c of one frame": Network("a3c", ACTIONS, frame_size=96, frame_stack=1),
}
MODELS = [
    *(pytest.param(ModuleModel, network, id=name) for name, network in (NETWORKS | PLAIN).items()),
    *(pytest.param(FusedModel, network, id=f"fused {name}") for name, network in PLAIN.items()),
]


# The reference


class Noisy(nn.Module):
    """y = (w + sigma_w * e) x + b + sigma_b * e_b with e = f(e_out) f(e_in)^T (Fortunato et al. 2018, eq. 9 to 11)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.weight_sigma = (nn.Parameter(torch.zeros(outputs, inputs)) for _ in range(2))
        self.bias, self.bias_sigma = (nn.Parameter(torch.zeros(outputs)) for _ in range(2))

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """Values of one observation; noise float64[inputs + outputs]."""
        e_in, e_out = (torch.sign(e) * torch.sqrt(torch.abs(e)) for e in noise.split(self.weight.shape[::-1]))
        weight = self.weight + self.weight_sigma * torch.outer(e_out, e_in)
        return F.linear(x, weight, self.bias + self.bias_sigma * e_out)


class Normed(nn.Conv2d):
    """A convolution divided by u^T W v, of which u and v are constants; `u` is as it was before the pass."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, padding=1)
        self.register_buffer("u", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """One step of power iteration, then the division."""
        matrix = self.weight.reshape(len(self.weight), -1)
        with torch.no_grad():
            v = F.normalize(matrix.T @ self.u, dim=0)
            u = F.normalize(matrix @ v, dim=0)
            v = F.normalize(matrix.T @ u, dim=0)
        return F.conv2d(x, self.weight / (u @ matrix @ v), self.bias, padding=1)


class Reference(nn.Module):
    """A network as its papers have it; modules are named as `shared.network_parameters` names them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, channels = network, network.frames.planes
        if network.name in CONVOLUTIONAL:
            for i, (out, kernel, stride) in enumerate(CONVOLUTIONAL[network.name].convolutions, start=1):
                self.add_module(f"conv{i}", nn.Conv2d(channels, out, kernel, stride))
                if network.conv_norm:
                    self.add_module(f"conv{i}_norm", nn.LayerNorm(out))
                channels = out
        else:
            convolution = Normed if network.spectral_norm else lambda n: nn.Conv2d(n, n, 3, padding=1)
            for i, base in enumerate((16, 32, 32), start=1):
                out = base * network.width
                block = nn.ModuleDict({"conv": nn.Conv2d(channels, out, 3, padding=1)})
                for j in (1, 2):
                    block[f"residual{j}"] = nn.ModuleDict({f"conv{k}": convolution(out) for k in (1, 2)})
                self.add_module(f"block{i}", block)
                channels = out
        features = len(self.torso(torch.zeros(1, network.frames.planes, network.frame_size, network.frame_size))[0])
        if network.method == "iqn":
            self.embedding = nn.Linear(COSINES, features)
        linear = Noisy if network.noisy else nn.Linear
        units = {"small": 64, "a3c": 256, "der": 256}.get(network.name, 512)
        if network.recurrent:
            self.lstm = nn.LSTM(units, network.recurrent, batch_first=True)
        outputs = network.actions * network.atoms
        streams = {"": ("heads", network.actions + 1) if network.value_output else ("value", outputs)}
        if network.dueling:
            streams = {"": ("value", network.atoms), "advantage_": ("advantage", outputs)}
        for prefix, (last, outputs) in streams.items():
            self.add_module(f"{prefix}hidden", linear(features, units))
            if network.layer_norm:
                self.add_module(f"{prefix}hidden_norm", nn.LayerNorm(units))
            self.add_module(last, linear(network.recurrent or units, outputs))

    def torso(self, x: Tensor) -> Tensor:
        """Features [n, features] of pixels [n, 4, 84, 84] in [0, 1]."""
        layers = dict(self.named_children())
        for name in [name for name in layers if name.startswith("conv") and not name.endswith("_norm")]:
            x = layers[name](x)
            if self.network.conv_norm:  # of the channels of each place alone
                x = layers[f"{name}_norm"](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            x = F.relu(x)
        for name in [name for name in layers if name.startswith("block")]:
            x = F.max_pool2d(layers[name]["conv"](x), kernel_size=3, stride=2, padding=1)
            for residual in (layers[name]["residual1"], layers[name]["residual2"]):
                x = x + residual["conv2"](F.relu(residual["conv1"](F.relu(x))))
        if self.network.name == "impala":
            x = F.relu(x)
        return (F.adaptive_max_pool2d(x, (6, 6)) if self.network.pooling else x).flatten(1)

    def forward(self, pixels: Tensor, fractions: Tensor | None, noise: Tensor | None) -> Tensor:
        """[n, actions, atoms], observation by observation and fraction by fraction."""
        features, answers = self.torso(pixels / 255.0), []
        for i, row in enumerate(features):
            rows = [row]
            if fractions is not None:
                cosines = torch.arange(COSINES, dtype=row.dtype) * math.pi
                rows = [row * F.relu(self.embedding(torch.cos(cosines * tau))) for tau in fractions[i]]
            of_row = None if noise is None else noise[i * len(noise) // len(features)]
            outputs = torch.stack([self._answer(each, of_row) for each in rows], -1)
            answers.append(outputs[:, :, 0] if fractions is None else outputs[:, 0])
        return torch.stack(answers)

    def values(self, stacks: np.ndarray) -> Tensor:
        """[n, actions] of stacks uint8[n, planes, y, x], by a network with one number for each action."""
        return self(torch.from_numpy(stacks).double(), None, None)[:, :, 0]

    def gradient(self) -> Tensor:
        """The gradient by the parameters in canonical layout."""
        by_name = dict(self.named_parameters())
        return torch.cat([by_name[name].grad.flatten() for name, _ in parameters_of(self.network).shapes])

    def _answer(self, features: Tensor, noise: Tensor | None) -> Tensor:
        """[actions, atoms] of one row of features."""
        rest = iter(()) if noise is None else iter(noise)

        def linear(name: str, x: Tensor) -> Tensor:
            layer = getattr(self, name)
            if isinstance(layer, nn.Linear):
                return layer(x)
            taken = [next(rest, torch.zeros((), dtype=x.dtype)) for _ in range(sum(layer.weight.shape))]
            return layer(x, torch.stack(taken))

        def stream(prefix: str, last: str) -> Tensor:
            x = linear(f"{prefix}hidden", features)
            if self.network.layer_norm:
                x = getattr(self, f"{prefix}hidden_norm")(x)
            return linear(last, F.relu(x)).view(-1, self.network.atoms)

        value = stream("", self.network.head)
        if not self.network.dueling:
            return value
        advantage = stream("advantage_", "advantage")
        return value + advantage - advantage.mean(0)


def make_reference(network: Network, flat: np.ndarray) -> Reference:
    """With parameters by name; that all names are used is checked by `load_state_dict`."""
    reference = Reference(network).double()
    named = parameters_of(network).split(flat)
    reference.load_state_dict({name: torch.from_numpy(array).double() for name, array in named.items()})
    return reference


# Helpers


def _parameters(network: Network) -> np.ndarray:
    """Fresh ones, but norms that do something."""
    flat, random = initial_parameters(network, 1), np.random.default_rng(1)
    for name, array in parameters_of(network).split(flat).items():
        if "_norm." in name:
            array += random.normal(scale=0.3, size=array.shape).astype(np.float32)
    return flat


def _stacks(n: int = BATCH, patch: int = 7, shape: FrameShape = DEFAULT_FRAMES) -> np.ndarray:
    """Planes of patches; in bfloat16 a network cannot tell screens of white noise apart."""
    side = shape.size // patch
    small = np.random.default_rng(0).integers(0, 256, (n, shape.planes, side, side), dtype=np.uint8)
    return small.repeat(patch, axis=2).repeat(patch, axis=3)


def _blocks(stacks: np.ndarray) -> Tensor:
    grid = stacks.shape[-1] // 4
    out = torch.empty(len(stacks), grid, grid, stacks.shape[1] * CELL, dtype=torch.uint8)
    return blocks(torch.from_numpy(stacks), out)


def _beside(model: Model, rows: int = 2) -> ExtraInputs:
    """Fractions, and noise of `rows` rows."""
    generator = torch.Generator().manual_seed(0)
    fractions = torch.rand(BATCH, 3, generator=generator) if model.network.method == "iqn" else None
    noise = torch.randn(rows, model.noise, generator=generator) if model.noise else None
    return ExtraInputs(fractions, noise)


def packed_model(network: Network, precision: str, flat: np.ndarray, make: Any = ModuleModel) -> Any:
    """A model of these parameters; `make` is its class, or `make_model`."""
    model = make(network, CPU, precision)
    model.pack(flat, model.params)
    model.sync_copy()
    return model


def relative(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm().clamp(min=1e-12))


def canonical(model: Model, packed: Tensor) -> np.ndarray:
    """A vector in the model's own order, in that of `shared.network_parameters`."""
    vector = np.zeros(parameters_of(model.network).count, np.float32)
    model.unpack(packed, vector)
    return vector


Learned = tuple[ForwardPass, np.ndarray]


def learn(model: Model, blocks: Tensor, extra_inputs: ExtraInputs, gradient: Tensor, calls: int = 1) -> Learned:
    """Passes as the engine makes them: the last one, and the gradient by the parameters in canonical layout."""
    vector = torch.full_like(model.params_bf16, 7.0)
    model.gradient_into(vector)
    with torch.inference_mode():
        for _ in range(calls):
            saved = model.forward(blocks, 0, extra_inputs, learns=True)
            model.backward(saved, gradient, SideStream())
    return saved, canonical(model, vector.float())


@pytest.mark.parametrize(("make", "network"), MODELS)
def test_both_orders_of_parameters_hold_the_same(make: type[Any], network: Network) -> None:
    flat = initial_parameters(network, 1)
    model = packed_model(network, "bf16", flat, make)
    assert len(make_model(network, CPU, "bf16").params) == packed_places(network)[1]
    assert np.array_equal(canonical(model, model.params), flat)
    assert not np.array_equal(model.params.numpy(), flat)
    assert float(model.params.abs().sum()) == pytest.approx(float(np.abs(flat).sum()), rel=1e-4), "gaps are zero"
    for part, leaf in model._leaves.items() if make is ModuleModel else ():
        assert leaf.data_ptr() % 16 == 0, f"{part}: kernels for matrices want it"


# Against the reference


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("make", "network"), MODELS)
def test_values_and_gradients_are_those_of_the_reference(make: type[Any], network: Network, precision: str) -> None:
    # Pixels of a patch tie in pooling: which of them has the gradient is then for rounding to say.
    patch = 1 if precision == "fp32" else 8 if network.frame_size % 7 else 7
    flat, stacks = _parameters(network), _stacks(patch=patch, shape=network.frames)
    model = packed_model(network, precision, flat, make)
    assert isinstance(make_model(network, CPU, precision), FusedModel if network.plain else ModuleModel)
    beside = _beside(model)
    reference = make_reference(network, flat)
    inputs = (None if each is None else each.double() for each in (beside.fractions, beside.noise))
    expected = reference(torch.from_numpy(stacks).double(), *inputs)
    gradient = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3))
    expected.backward(gradient.double())

    saved, found = learn(model, _blocks(stacks), beside, gradient)
    outputs = saved.outputs.detach()
    assert outputs.shape == (BATCH, ACTIONS + network.value_output, 3 if network.method == "iqn" else network.atoms)
    assert relative(outputs, expected.detach()) < TOLERANCE[make][precision]
    parameters = dict(reference.named_parameters())
    for part, array in parameters_of(network).split(found).items():
        if part.endswith(".u"):
            assert not array.any(), "what is iterated has no gradient"
            continue
        grad = parameters[part].grad
        assert grad.norm() > 0, part
        assert relative(torch.from_numpy(array), grad) < GRADIENT_TOLERANCE[make][precision], part


@pytest.mark.parametrize("name", ["rainbow", "everything", "btr"])
def test_a_pass_that_does_not_learn_gives_the_same_and_keeps_all(name: str) -> None:
    network = NETWORKS[name]
    model = packed_model(network, "fp32", _parameters(network))
    beside, before = _beside(model), model.params.clone()
    with torch.inference_mode():
        outputs = model.forward(_blocks(_stacks()), 0, beside).outputs
        assert torch.equal(model.forward(_blocks(_stacks()), 0, beside).outputs, outputs)
    assert not outputs.requires_grad
    assert torch.equal(model.params, before)
    if not network.spectral_norm:  # there a pass that learns iterates first
        learned, _ = learn(model, _blocks(_stacks()), beside, torch.zeros_like(outputs))
        torch.testing.assert_close(outputs, learned.outputs.detach())


# Parts by themselves


def test_every_group_of_rows_has_its_noise_and_none_is_no_noise() -> None:
    network = NETWORKS["noisy"]
    model = packed_model(network, "fp32", _parameters(network))
    assert model.noise == 1296 + 64 + 64 + ACTIONS
    same = np.repeat(_stacks(1), BATCH, axis=0)
    with torch.inference_mode():
        quiet = model.forward(_blocks(same), 0, ExtraInputs()).outputs
        still = model.forward(_blocks(same), 0, ExtraInputs(noise=torch.zeros(1, model.noise))).outputs
        noisy = model.forward(_blocks(same), 0, _beside(model, rows=2)).outputs
        each = model.forward(_blocks(same), 0, _beside(model, rows=BATCH)).outputs
    torch.testing.assert_close(still, quiet)
    rows = [tuple(row) for row in noisy[:, :, 0].tolist()]
    assert [rows.count(row) for row in rows] == [2] * BATCH
    assert rows[0] == rows[1] != rows[2]
    assert len({tuple(row) for row in each[:, :, 0].tolist()}) == BATCH


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_power_iteration_finds_the_largest_singular_value(precision: str) -> None:
    network, name = Network("impala", ACTIONS, spectral_norm=True), "block2.residual1.conv2"
    model = packed_model(network, precision, initial_parameters(network, 1))
    learn(model, _blocks(_stacks(1)), ExtraInputs(), torch.zeros(1, ACTIONS, 1), calls=60)
    views = parameters_of(network).split(canonical(model, model.params))
    weight = torch.from_numpy(views[f"{name}.weight"]).double().flatten(1)
    u = torch.from_numpy(views[f"{name}.u"]).double()
    assert float(u.norm()) == pytest.approx(1.0, rel=1e-5)
    largest = float(torch.linalg.svdvals(weight)[0])
    assert float((weight.T @ u).norm()) == pytest.approx(largest, rel=3e-3)


def test_the_vector_of_power_iteration_moves_only_when_a_pass_is_over() -> None:
    """Two passes before a backward pass, as with Double DQN, see the same."""
    network = Network("impala", ACTIONS, spectral_norm=True)
    model = packed_model(network, "fp32", initial_parameters(network, 1))
    model.gradient_into(torch.zeros_like(model.params_bf16))
    before = model.params.clone()
    with torch.inference_mode():
        first = model.forward(_blocks(_stacks(2)), 0, ExtraInputs()).outputs
        saved = model.forward(_blocks(_stacks(2)), 0, ExtraInputs(), learns=True)
        assert torch.equal(model.forward(_blocks(_stacks(2)), 0, ExtraInputs()).outputs, first)
        assert torch.equal(model.params, before)
        model.backward(saved, torch.ones(2, ACTIONS, 1), SideStream())
    views, former = (parameters_of(network).split(canonical(model, vector)) for vector in (model.params, before))
    for name in views:
        assert np.array_equal(views[name], former[name]) == (not name.endswith(".u")), name
