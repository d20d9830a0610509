"""The graph of a network in ONNX, node by node, from its parameters. Nothing here loads torch.

Input: `observation`, by default uint8[n, 4, 84, 84], the newest frames, oldest first. Outputs: `q_values`,
float32[n, actions], or `logits` and `state_value` of a policy. The graph scales pixels and takes the mean of a
distribution. A recurrent network has one more input, `state`, float32[n, 2, units], zeros where an episode begins, and
one more output, `next_state`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from shared.checkpoint.weights_file import StoredWeights
from shared.errors import ConfigError
from shared.network_parameters import parameters_of
from shared.network_spec import COSINES, IMPALA, PLAIN_NETWORKS, RESCALING, RESIDUALS

OPSET = 17
IR_VERSION = 9
_LAYER_NORM_EPSILON = 1e-5
_TINY = 1e-12
_MEAN_OF_ATOMS = ("qr-dqn", "iqn")
"""Methods whose value is the mean over the outputs of an action."""


def make_onnx(weights: StoredWeights, about: dict[str, str]) -> onnx.ModelProto:
    """Model of trained weights. `about`: texts that the file holds as metadata.

    Raises:
        ConfigError: the method is a plug-in's with several outputs for an action, whose meaning is not known here.
    """
    network = weights.network
    if network.atoms > 1 and network.method not in ("c51", *_MEAN_OF_ATOMS):
        raise ConfigError(f"The outputs of --method {network.method} have no meaning in ONNX: only built-in ones have.")
    graph = _Graph(weights)
    outputs = graph.network_outputs()
    if network.value_output:
        _split_policy(graph, outputs)
        shown = [("logits", (network.actions,)), ("state_value", ())]
    else:
        graph.name_output(_action_values(graph, outputs), "q_values")
        shown = [("q_values", (network.actions,))]
    shape: list[str | int | None] = ["n", *network.frames.observation]
    inputs = [helper.make_tensor_value_info("observation", TensorProto.UINT8, shape)]
    if network.recurrent:
        shown.append(("next_state", (2, network.recurrent)))
        inputs.append(helper.make_tensor_value_info("state", TensorProto.FLOAT, ["n", 2, network.recurrent]))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape]) for name, shape in shown]
    made = helper.make_graph(graph.nodes, "ringside", inputs, infos, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="ringside")
    model.ir_version = IR_VERSION
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    return model


class _Graph:
    """Nodes and constants, named in the order in which they are made."""

    def __init__(self, weights: StoredWeights) -> None:
        self.network = weights.network
        self._parameters = parameters_of(weights.network).split(weights.flat)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, whose name is returned."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, name: str = "") -> str:
        """Add a constant, whose name is returned."""
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def name_output(self, value: str, name: str) -> None:
        """Give a value the name of an output of the graph."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def integers(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """A constant number."""
        return self.constant(np.float32(value).reshape(()))

    def _parameter(self, name: str) -> NDArray[np.float32]:
        return self._parameters[name]

    # --- the network (learner/networks/autograd.py)

    def network_outputs(self) -> str:
        """float32[n, outputs, atoms]; with fractions their number takes the place of atoms."""
        network, x = self.network, "observation"
        if network.frames.channels > 1:
            x = self.node("Reshape", x, self.integers(0, -1, network.frame_size, network.frame_size))
        x = self.node("Mul", self.node("Cast", x, to=TensorProto.FLOAT), self.number(1.0 / 255.0))
        x = self._convolutions(x) if network.name in PLAIN_NETWORKS else self._impala(x)
        if network.pooling:
            x = self._max_pool(x)
        features = self.node("Flatten", x, axis=1)
        if network.fractions:
            features = self._embedded(features)
        hidden = self._hidden("hidden", features)
        if network.recurrent:
            hidden = self._lstm(hidden)
        value = self._last(network.head, hidden)
        if not network.dueling:
            return value
        advantage = self._last("advantage", self._hidden("advantage_hidden", features))
        mean = self.node("ReduceMean", advantage, axes=[1], keepdims=1)
        return self.node("Add", value, self.node("Sub", advantage, mean))

    def _convolutions(self, x: str) -> str:
        for i, (_, kernel, stride) in enumerate(PLAIN_NETWORKS[self.network.name].convolutions, start=1):
            x = self._convolution(f"conv{i}", x, kernel, stride, border=0)
            if self.network.conv_norm:
                places = self._normed(f"conv{i}_norm", self.node("Transpose", x, perm=[0, 2, 3, 1]))
                x = self.node("Transpose", places, perm=[0, 3, 1, 2])
            x = self.node("Relu", x)
        return x

    def _impala(self, x: str) -> str:
        for i in range(1, len(IMPALA) + 1):
            x = self._max_pool(self._convolution(f"block{i}.conv", x, 3, 1, border=1))
            for j in range(1, RESIDUALS + 1):
                y = self._convolution(f"block{i}.residual{j}.conv1", self.node("Relu", x), 3, 1, border=1)
                y = self._convolution(f"block{i}.residual{j}.conv2", self.node("Relu", y), 3, 1, border=1)
                x = self.node("Add", x, y)
        return self.node("Relu", x)

    def _convolution(self, name: str, x: str, kernel: int, stride: int, border: int) -> str:
        weight = self._parameter(f"{name}.weight")
        if f"{name}.u" in self._parameters:
            weight = weight / _largest_singular_value(weight, self._parameter(f"{name}.u"))
        inputs = (
            self.constant(weight, f"{name}.weight"),
            self.constant(self._parameter(f"{name}.bias"), f"{name}.bias"),
        )
        return self.node("Conv", x, *inputs, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[border] * 4)

    def _max_pool(self, x: str) -> str:
        return self.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])

    def _normed(self, name: str, x: str) -> str:
        scale, shift = (
            self.constant(self._parameter(f"{name}.{part}"), f"{name}.{part}") for part in ("weight", "bias")
        )
        return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=_LAYER_NORM_EPSILON)

    def _embedded(self, features: str) -> str:
        """[n, fractions, features], at evenly spaced fractions."""
        fractions = (np.arange(self.network.fractions) + 0.5) / self.network.fractions
        cosines = np.cos(fractions[:, None] * math.pi * np.arange(COSINES)).astype(np.float32)
        embedding = cosines @ self._parameter("embedding.weight").T + self._parameter("embedding.bias")
        wide = self.node("Unsqueeze", features, self.integers(1))
        return self.node("Mul", wide, self.constant(np.maximum(embedding, 0.0)[None].astype(np.float32)))

    def _linear(self, name: str, x: str) -> str:
        weight = self.constant(self._parameter(f"{name}.weight").T, f"{name}.weight")
        return self.node(
            "Add", self.node("MatMul", x, weight), self.constant(self._parameter(f"{name}.bias"), f"{name}.bias")
        )

    def _lstm(self, x: str) -> str:
        """Output of one tick of the LSTM (learner/networks/operations/lstm.py), which also names the state after it."""
        weights = [self._parameter(f"lstm.{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        before, cell_before = (
            self.node("Squeeze", self._columns("state", place, place + 1), self.integers(1)) for place in (0, 1)
        )
        sums = [
            self.node("MatMul", each, self.constant(weight.T))
            for each, weight in zip((x, before), weights[:2], strict=True)
        ]
        z = self.node("Add", self.node("Add", *sums), self.constant(weights[2] + weights[3]))
        units = self.network.recurrent

        def gate(kind: str, place: int) -> str:
            return self.node(kind, self._columns(z, place * units, (place + 1) * units))

        kept = self.node("Mul", gate("Sigmoid", 1), cell_before)
        cell = self.node("Add", kept, self.node("Mul", gate("Sigmoid", 0), gate("Tanh", 2)))
        output = self.node("Mul", gate("Sigmoid", 3), self.node("Tanh", cell))
        both = [self.node("Unsqueeze", each, self.integers(1)) for each in (output, cell)]
        self.name_output(self.node("Concat", *both, axis=1), "next_state")
        return output

    def _columns(self, x: str, first: int, stop: int) -> str:
        return self.node("Slice", x, self.integers(first), self.integers(stop), self.integers(1))

    def _hidden(self, name: str, features: str) -> str:
        x = self._linear(name, features)
        if self.network.layer_norm:
            x = self._normed(f"{name}_norm", x)
        return self.node("Relu", x)

    def _last(self, name: str, x: str) -> str:
        y = self._linear(name, x)
        if self.network.fractions:
            return self.node("Transpose", y, perm=[0, 2, 1])
        return self.node("Reshape", y, self.integers(0, -1, self.network.atoms))


def _action_values(graph: _Graph, outputs: str) -> str:
    """Q(s, .) float32[n, actions] of outputs."""
    network = graph.network
    if network.rescaled:
        outputs = _unrescaled(graph, outputs)
    if network.method == "c51":
        support = np.linspace(network.v_min, network.v_max, network.atoms, dtype=np.float64).astype(np.float32)
        probable = graph.node("Mul", graph.node("Softmax", outputs, axis=-1), graph.constant(support))
        return graph.node("ReduceSum", probable, graph.integers(-1), keepdims=0)
    if network.method in _MEAN_OF_ATOMS:
        return graph.node("ReduceMean", outputs, axes=[-1], keepdims=0)
    return graph.node("Squeeze", outputs, graph.integers(-1))


def _unrescaled(graph: _Graph, x: str) -> str:
    """h^-1, written as in learner/losses/scalar_loss.py."""
    b = 1.0 + 2.0 * RESCALING
    size = graph.node("Abs", x)
    root = graph.node(
        "Sqrt", graph.node("Add", graph.node("Mul", size, graph.number(4.0 * RESCALING)), graph.number(b * b))
    )
    u = graph.node("Div", graph.node("Mul", x, graph.number(2.0)), graph.node("Add", root, graph.number(b)))
    return graph.node("Mul", u, graph.node("Add", graph.node("Abs", u), graph.number(2.0)))


def _split_policy(graph: _Graph, outputs: str) -> None:
    """Name the logits, and the value of the state behind them."""
    flat = graph.node("Squeeze", outputs, graph.integers(-1))
    if graph.network.rescaled:
        flat = _unrescaled(graph, flat)
    actions = graph.network.actions

    def part(first: int, stop: int) -> str:
        return graph.node("Slice", flat, graph.integers(first), graph.integers(stop), graph.integers(1))

    graph.name_output(part(0, actions), "logits")
    graph.name_output(graph.node("Squeeze", part(actions, actions + 1), graph.integers(1)), "state_value")


def _largest_singular_value(weight: NDArray[np.float32], u: NDArray[np.float32]) -> np.float32:
    """u^T W v by one step of power iteration from the kept u (learner/networks/autograd.py)."""
    matrix = weight.reshape(len(weight), -1)
    v = matrix.T @ u
    v /= max(float(np.linalg.norm(v)), _TINY)
    return np.float32(u @ (matrix @ v))


def run_onnx(
    path: str, stacks: NDArray[np.uint8], state: NDArray[np.float32] | None = None
) -> Sequence[NDArray[np.float32]]:
    """Outputs of a file by onnxruntime, on a CPU; `state` is that of a recurrent network."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {"observation": stacks} | ({} if state is None else {"state": state})
    found: Sequence[NDArray[np.float32]] = session.run(None, inputs)
    return found
