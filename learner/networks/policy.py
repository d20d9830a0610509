"""Policies: values of actions in batches of a fixed shape, and the best action."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from learner.engine.accelerator import accelerator_of, host_zeros, is_gpu
from learner.engine.prefetcher import Graphs
from learner.losses.method import Method, make_method
from learner.losses.scalar_loss import unrescale
from learner.networks.acting_noise import acting_noise
from learner.networks.arithmetic_check import check_arithmetic
from learner.networks.frame_blocks import gather_planes_to
from learner.networks.model import ExtraInputs, Model, Recurrence
from learner.networks.module_model import make_model
from shared.config.sections import Algorithm
from shared.frame_shape import BLOCK
from shared.memory.plan import Plan
from shared.network_spec import RESCALING, Network


class Policy:
    """A network that answers a fixed number of stacks with the values of their actions.

    Attributes:
        batch: the number of stacks.
    """

    def __init__(
        self,
        network: Network,
        device: torch.device,
        precision: str,
        batch: int,
        *,
        explore_seed: int | None = None,
        captured: bool = True,
        method: Method | None = None,
        model: Model | None = None,
    ) -> None:
        """The policy of a network, which is to be loaded.

        Args:
            explore_seed: explore with the network's noise, if it has any, drawn from this seed; None: no noise.
            captured: answer by a graph on a GPU. A capture forbids much to other threads, so a policy that is a guest
                in another process makes none.
            method: of the network; default: made from its declaration, which is registered in this process.
            model: answers with these parameters, which the caller loads; default: with its own.
        """
        check_arithmetic(network, device, precision, batch, learns=False)
        self._model = model or make_model(network, device, precision)
        self._method = method or make_method(network, Algorithm(method=network.method), device)
        self._rescaled = network.rescaled
        self._fractions = self._method.policy_fractions(batch)
        self._explore_seed = explore_seed if self._model.noise else None
        self.batch = batch
        self._frames, actions = network.frames, network.actions
        gpu, float32 = is_gpu(device), torch.float32
        self._host = host_zeros(self._frames.blocks(batch), torch.uint8, device)
        self._words = self._host.numpy().view(np.uint32).reshape(*self._host.shape[:3], -1, BLOCK)
        self._values = host_zeros((batch, actions), float32, device)
        self._state_values = host_zeros((batch,), float32, device) if network.value_output else None
        self._units = network.recurrent
        self._host_state, self._host_next = (host_zeros((batch, 2, self._units), float32, device) for _ in range(2))
        self._state = torch.zeros_like(self._host_state, device=device) if gpu else self._host_state
        self._start = torch.zeros(batch, device=device)
        self._blocks = torch.zeros_like(self._host, device=device) if gpu else self._host
        self._drawn = host_zeros((batch, 0 if self._explore_seed is None else self._model.noise), float32, device)
        self._noise = torch.zeros_like(self._drawn, device=device) if gpu else self._drawn
        self._graphs = Graphs(device) if gpu and captured else None
        if self._graphs is not None:
            self._graphs.capture("answer", self._answer)

    @torch.inference_mode()
    def load(self, flat: NDArray[np.float32]) -> None:
        """Take a new version of the parameters, float32[P] in the order of `shared.network_parameters`."""
        self._model.pack(flat, self._model.params)
        self._model.sync_copy()

    @torch.inference_mode()
    def take(self, exported: NDArray[np.float32]) -> None:
        """Take a new version of the parameters that the learner's model has exported."""
        self._model.take(exported)

    def rehearse(self) -> None:
        """Answer blank frames once, so that the first real answer does not wait for kernels to compile or load."""
        places, rows = np.arange(self.batch), np.zeros((self.batch, self._frames.planes), np.int64)
        blank = np.zeros((1, self._frames.size, self._frames.size), np.uint8)
        self.values_from_rows(blank, rows, np.zeros(rows.shape, bool), places, (places, np.zeros_like(places)))

    @torch.inference_mode()
    def values(self, stacks: NDArray[np.uint8], state: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Q(s, .), or logits of a policy, float32[batch, actions] of observations uint8[batch, *frames.observation].

        Args:
            state: of a recurrent network, float32[batch, 2, units]; default: every row begins an episode.

        Raises:
            ValueError: the batch has another shape; results may depend on the shape, so it never changes.
        """
        if stacks.shape != (self.batch, *self._frames.observation):
            raise ValueError(f"The policy answers batches of {self.batch} stacks; this one has shape {stacks.shape}.")
        places = np.arange(self.batch)
        rows = np.arange(self.batch * self._frames.planes).reshape(self.batch, -1)
        planes = np.ascontiguousarray(stacks).reshape(-1, self._frames.size, self._frames.size)
        return self.values_from_rows(planes, rows, np.ones(rows.shape, bool), places, state=state)

    @torch.inference_mode()
    def values_from_rows(
        self,
        planes: NDArray[np.uint8],
        rows: NDArray[np.int64],
        frame_mask: NDArray[np.bool_],
        places: NDArray[np.int64],
        acting: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
        state: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """As `values`, of a batch in which some rows are new, gathered in one pass over memory.

        Args:
            planes: uint8[R, size, size], of which the new stacks are `rows`, int64[n, k].
            frame_mask: bool[n, k]; where it is False, a plane counts as zeros.
            places: int64[n], the rows of the batch that are new; the others stay as they are.
            acting: env and tick, int64[n] each, which determine the noise if the policy explores by noise.
            state: float32[n, 2, units], of a recurrent network; default: the new rows begin episodes.
        """
        if self._explore_seed is not None:
            assert acting is not None, "a policy that explores by noise needs envs and ticks"
            envs, ticks = acting
            for tick in np.unique(ticks):
                those = ticks == tick
                noise = acting_noise(self._explore_seed, self._model.noise, int(tick), envs[those])
                self._drawn.numpy()[places[those]] = noise
        self._host_state.numpy()[places] = 0.0 if state is None else state
        gather_planes_to(planes.view(np.uint32), rows, frame_mask, places, self._words)
        if self._graphs is None:
            self._answer()
        else:
            self._graphs.replay("answer")
        if self._blocks is not self._host:
            accelerator_of(self._blocks.device).current_stream(self._blocks.device).synchronize()
        return self._values.numpy().copy()

    def fresh_state(self) -> NDArray[np.float32]:
        """State float32[batch, 2, units] at the beginning of episodes; empty if the network is not recurrent."""
        return np.zeros(self._host_state.shape, np.float32)

    @property
    def next_state(self) -> NDArray[np.float32]:
        """State float32[batch, 2, units] after the newest answer; empty if the network is not recurrent."""
        return self._host_next.numpy().copy()

    @property
    def state_values(self) -> NDArray[np.float32]:
        """V(s) float32[batch] of the newest answer, by a network that has such an output."""
        assert self._state_values is not None, "a network of action values has no value of the state"
        return self._state_values.numpy().copy()

    def _answer(self) -> None:
        """Compute the buffer of values from the buffer of blocks: the body of the graph."""
        if self._blocks is not self._host:
            self._blocks.copy_(self._host, non_blocking=True)
            self._noise.copy_(self._drawn, non_blocking=True)
            if self._units:
                self._state.copy_(self._host_state, non_blocking=True)
        recurrence = Recurrence(self._state, self._start) if self._units else None
        extra_inputs = ExtraInputs.from_buffers(self._fractions, self._noise, recurrence)
        answer = self._model.forward(self._blocks, 0, extra_inputs)
        outputs = answer.outputs
        if answer.state is not None:
            self._host_next.copy_(answer.state, non_blocking=True)
        if self._rescaled:
            outputs = unrescale(outputs, RESCALING)
        self._values.copy_(self._method.values(outputs), non_blocking=True)
        if self._state_values is not None:  # it follows the logits (shared/network_spec.py)
            self._state_values.copy_(outputs[:, -1, 0], non_blocking=True)


def acting_policy(plan: Plan, batch: int, explore_seed: int | None = None) -> Policy:
    """The policy with which a run acts, for batches of this size, after a first answer; `explore_seed` as for it."""
    network, machine, device = plan.network, plan.config.machine, torch.device(plan.config.machine.acts_on)
    method, captured = make_method(network, plan.config.algorithm, device, plan.method), machine.graph_updates > 0
    policy = Policy(
        network, device, machine.acts_in, batch, explore_seed=explore_seed, captured=captured, method=method
    )
    policy.rehearse()
    return policy


def greedy(q: NDArray[np.float32]) -> NDArray[np.int64]:
    """The first best action int64[n] of each row of q float32[n, actions].

    Raises:
        FloatingPointError: a value is not a number or infinite; argmax alone would pick it silently.
    """
    finite = np.isfinite(q).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise FloatingPointError(f"The network answered row {row} with {q[row].tolist()}; its parameters are broken.")
    return q.argmax(axis=1)
