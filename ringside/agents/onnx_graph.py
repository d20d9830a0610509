"""The network of an agent as an ONNX model, traced by torch.

Input: `observation`, by default uint8[n, 4, 84, 84], the newest frames, oldest first. Outputs: `q_values`,
float32[n, actions], or `logits` and `state_value` of a policy. The graph scales pixels and takes the mean of a
distribution. A recurrent network has one more input, `state`, float32[n, 2, units], zeros where an episode begins, and
one more output, `next_state`.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import redirect_stderr
from io import StringIO

import torch
from torch import Tensor

from learner.losses.method import make_method
from learner.losses.scalar_loss import unrescale
from learner.networks.model import ExtraInputs, Recurrence
from learner.networks.module_model import make_model
from shared.checkpoint.weights_file import StoredWeights
from shared.config.sections import Algorithm
from shared.errors import ConfigError
from shared.frame_shape import BLOCK
from shared.network_spec import RESCALING

OPSET = 20


class _Answer(torch.nn.Module):
    """Outputs of trained weights for observations, in the order of their names."""

    def __init__(self, weights: StoredWeights) -> None:
        super().__init__()
        self._network, cpu = weights.network, torch.device("cpu")
        self._model = make_model(self._network, cpu, "fp32")
        self._model.pack(weights.flat, self._model.params)
        self._model.sync_copy()
        self._module = getattr(self._model, "module", None)  # torch.export asks for a module whose parameters are read
        self._method = make_method(self._network, Algorithm(method=self._network.method), cpu)
        self._fractions = self._method.policy_fractions(1)

    def forward(self, observation: Tensor, state: Tensor | None = None) -> tuple[Tensor, ...]:
        """As `Policy` answers (learner/networks/policy.py), for any number of observations."""
        n, frames = observation.shape[0], self._network.frames
        grid = frames.size // BLOCK
        cells = observation.reshape(n, frames.planes, grid, BLOCK, grid, BLOCK).permute(0, 2, 4, 1, 3, 5)
        recurrence = None if state is None else Recurrence(state, torch.zeros(n))
        extra_inputs = ExtraInputs.from_buffers(self._fractions.expand(n, -1), torch.zeros(n, 0), recurrence)
        answer = self._model.forward(cells.reshape(n, grid, grid, -1), 0, extra_inputs)
        outputs = unrescale(answer.outputs, RESCALING) if self._network.rescaled else answer.outputs
        found = [self._method.values(outputs)]
        if self._network.value_output:  # it follows the logits (shared/network_spec.py)
            found.append(outputs[:, -1, 0])
        return tuple(found if answer.state is None else [*found, answer.state])


def make_onnx(weights: StoredWeights, about: dict[str, str]) -> bytes:
    """Content of the ONNX file of trained weights. `about`: texts that the file holds as metadata.

    Raises:
        ConfigError: torch cannot trace the method, which is a plug-in's.
    """
    network = weights.network
    inputs = {"observation": torch.zeros(2, *network.frames.observation, dtype=torch.uint8)}
    outputs = ["logits", "state_value"] if network.value_output else ["q_values"]
    if network.recurrent:
        inputs["state"] = torch.zeros(2, 2, network.recurrent)
        outputs.append("next_state")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that no network needs
    shapes = [{0: torch.export.Dim("n")}] * len(inputs)
    try:
        # Torch prints graphs of what it refuses, and warns of its own code.
        with redirect_stderr(StringIO()), warnings.catch_warnings(action="ignore"):
            # Strict: the length of a batch stays open where a network asks for len() of it.
            traced = torch.export.export(_Answer(weights), tuple(inputs.values()), dynamic_shapes=shapes, strict=True)
            program = torch.onnx.export(
                traced,
                input_names=[*inputs],
                output_names=outputs,
                dynamic_shapes=shapes,
                opset_version=OPSET,
                verbose=False,
            )
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigError(
            f"The outputs of --method {network.method} cannot be written as ONNX: {reason:.200}."
        ) from error
    assert program is not None, "it is no file yet"
    program.model.metadata_props.update(about)
    return bytes(program.model_proto.SerializeToString())
