"""Gradient updates: the trainer of a run.

All transitions of a round are known when it begins, and the target network stays as it is until it ends. So the round
is done in *chunks* of some updates: the frames of a chunk are gathered at once, max_a' Q^(s', a') is computed for all
of them at once, and only then come its updates, one by one. Chunks are counted from the beginning of the round and
always have the same size; how the round is cut into calls of `run` changes no number.

The body of a chunk (`Trainer._body`) is the same everywhere. A CPU just runs it; a GPU captures it into graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.loss import bellman_target, clipped_error
from learner.network import (
    CELL,
    GRID,
    Architecture,
    Weights,
    backward,
    check_arithmetic,
    forward,
    initial_parameters,
    network_input,
)
from learner.optimizer import Optimizer
from learner.replay import FRAMES, Batch, DeviceFrames, Frames, HostFrames, Replay
from shared.config import Learn
from shared.ring import Ring
from shared.sizes import Sizes

STATE_NAMES = ("online", "target", "moment1", "moment2")
"""The trainer's vectors float32[P]; the moments are the gradient's mean and mean square."""

CHUNK_UPDATES = 8
"""Most updates of a chunk; bounds the length of one graph, too, during which nobody else gets the GPU."""

DEVICE_SHARE = 0.8
"""Share of a GPU's free memory that the window may take."""


class NonFiniteError(RuntimeError):
    """Loss, gradient or parameters are no longer finite. The message is a sentence saying where."""


class RoundMetrics(NamedTuple):
    """Means over the updates of a round."""

    updates: int
    loss: float
    """Of the clipped error, a transition's mean."""
    max_q: float
    """max_a Q(s, a) of the online network, a transition's mean."""
    gradient_norm: float
    """Of the batch's mean gradient, looked at in the first update of each chunk."""


class Trainer:
    """Parameters, target and optimiser, and the updates of one round after the other."""

    def __init__(
        self,
        *,
        ring: Ring,
        sizes: Sizes,
        learn: Learn,
        seed: int,
        actions: int,
        device: torch.device,
        precision: str,
    ) -> None:
        self._sizes, self._learn, self._seed, self._device = sizes, learn, seed, device
        check_arithmetic(learn.network, actions, device, precision, learn.batch_size)
        architecture = Architecture(learn.network, actions)
        self._online = Weights(architecture, device, precision)
        self._target = Weights(architecture, device, precision)
        self._optimizer = Optimizer(self._online, learn)
        self._gradients = architecture.views(self._optimizer.gradient)
        self._frames = _frames(ring, device)
        self._replay = Replay(ring, self._frames, batch=learn.batch_size, discount=learn.discount, seed=seed)
        self._chunk = min(CHUNK_UPDATES, -(-sizes.round_steps // learn.train_every))
        n = self._chunk * learn.batch_size
        self._blocks = torch.zeros(n, GRID, GRID, FRAMES * CELL, dtype=torch.uint8, device=device)
        # One-hot, not gather: the backward pass of gather adds up in an order that a GPU does not fix.
        self._chosen = torch.zeros(n, actions, device=device)
        self._actions = torch.arange(actions, device=device)
        self._reward = torch.zeros(n, device=device)
        self._discount = torch.zeros(n, device=device)
        self._y = torch.zeros(n, device=device)
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)
        self._plan: Batch | None = None
        self._round = self._done = self._planned = self._loaded = 0
        self._spans = Graphs(self._body) if device.type == "cuda" else self._body

    @torch.inference_mode()
    def initialise(self) -> None:
        """Fresh parameters from the seed, the target equal to them, moments zero."""
        self._online.load(initial_parameters(self._online.architecture.spec, self._seed))
        self.update_target()
        self._optimizer.mean.zero_()
        self._optimizer.square.zero_()

    @torch.inference_mode()
    def load(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over the vectors of `STATE_NAMES`, float32[P] each, in the order of `shared.parameters`."""
        for name, vector in self._state().items():
            self._online.architecture.to_inner(state[name], vector)
        self._online.cast()
        self._target.cast()

    @torch.inference_mode()
    def store(self, out: dict[str, NDArray[np.float32]]) -> None:
        """Write the vectors of `STATE_NAMES` into float32[P] arrays."""
        for name, vector in self._state().items():
            self._online.architecture.to_outer(vector, out[name])

    @torch.inference_mode()
    def online_into(self, out: NDArray[np.float32]) -> None:
        """Write the online parameters into float32[P], to be published.

        Raises:
            NonFiniteError: they, or what the round computed so far, are not finite.
        """
        self._check()
        self._online.architecture.to_outer(self._online.master, out)

    @torch.inference_mode()
    def update_target(self) -> None:
        """The target network becomes the online one."""
        self._target.master.copy_(self._online.master)
        self._target.cast()

    @torch.inference_mode()
    def begin_round(self, round_: int, window_end: int) -> int:
        """Draw the transitions of all updates of round `round_` from ticks before `window_end`.

        Returns:
            The number of updates of the round.
        """
        self._round, self._done, self._loaded = round_, 0, -1
        self._planned = self._sizes.updates_in(round_)
        self._sums.zero_()
        if self._planned:
            padded = -(-self._planned // self._chunk) * self._chunk
            plan = self._replay.plan(round_, window_end, self._planned, padded)
            devices = [self._frames.device] * 2 + [self._device] * 3
            self._plan = Batch(*(field.to(at) for field, at in zip(plan, devices, strict=True)))
            self._optimizer.begin(self._sizes.updates_before(round_))
        return self._planned

    @torch.inference_mode()
    def run(self, count: int) -> None:
        """The next `count` updates of the round, at most those that are left."""
        end = min(self._done + count, self._planned)
        while self._done < end:
            chunk, first = divmod(self._done, self._chunk)
            last = min(self._chunk, first + end - self._done)
            if self._loaded != chunk:
                self._gather(chunk)
            self._spans(first, last)
            self._done += last - first

    @torch.inference_mode()
    def end_round(self) -> RoundMetrics:
        """Means of the updates done since `begin_round`.

        Raises:
            NonFiniteError: the loss, the gradient or a parameter is not finite; nothing may be published then.
        """
        self._check()
        loss, max_q, norm = self._sums.tolist()
        updates = max(1, self._done)
        norms = max(1, -(-self._done // self._chunk))
        return RoundMetrics(self._done, loss / updates, max_q / updates, norm / norms)

    def _state(self) -> dict[str, Tensor]:
        """The vectors of `STATE_NAMES`, in inner order."""
        optimizer = self._optimizer
        vectors = (self._online.master, self._target.master, optimizer.mean, optimizer.square)
        return dict(zip(STATE_NAMES, vectors, strict=True))

    def _check(self) -> None:
        """Raise `NonFiniteError` unless all is finite. What is not stays so in the sums, so one look suffices."""
        loss, max_q, norm, parameters = torch.cat([self._sums, self._online.master.sum()[None]]).tolist()
        if not np.isfinite([loss, max_q, norm, parameters]).all():
            raise NonFiniteError(
                f"In round {self._round}, within its first {self._done} updates, the learner's numbers ceased to be "
                f"finite (sums of loss {loss}, maximal Q {max_q}, gradient norm {norm}, parameters {parameters}); a "
                "smaller --learning-rate may help."
            )

    def _gather(self, chunk: int) -> None:
        """Bring the transitions of a chunk to where the body reads them."""
        assert self._plan is not None, "begin_round comes before run"
        n = len(self._y)
        part = self._plan.part(chunk * n, (chunk + 1) * n)
        self._frames.select(part, self._blocks)
        self._chosen.copy_(part.action[:, None] == self._actions)
        self._reward.copy_(part.reward)
        self._discount.copy_(part.discount)
        self._loaded = chunk

    def _body(self, first: int, last: int) -> None:
        """Updates [first, last) of the chunk that was gathered."""
        if first == 0:
            future = forward(self._target, network_input(self._blocks, 1, self._target.dtype)).q.amax(1)
            self._y.copy_(bellman_target(self._reward, self._discount, future))
        for index in range(first, last):
            self._update(index)

    def _update(self, index: int) -> None:
        """One gradient update."""
        size, online = self._learn.batch_size, self._online
        part = slice(index * size, (index + 1) * size)
        past = forward(online, network_input(self._blocks[part], 0, online.dtype))
        chosen = self._chosen[part]
        loss, gradient = clipped_error((past.q * chosen).sum(1), self._y[part])
        backward(online, past, gradient[:, None] * chosen * self._optimizer.gradient_scale, self._gradients)
        self._sums[0] += loss.mean()
        self._sums[1] += past.q.amax(1).mean()
        if index == 0:
            norm = torch.linalg.vector_norm(self._optimizer.gradient, dtype=torch.float32)
            self._sums[2] += norm / (self._optimizer.gradient_scale * size)
        self._optimizer.step()


class Graphs:
    """A body captured into CUDA graphs, one for each span of updates that is asked for."""

    def __init__(self, body: Callable[[int, int], None]) -> None:
        self._body = body
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        # Libraries set themselves up in a first pass, which a capture cannot hold. It runs on zeros, and what it does
        # to the parameters is overwritten by `initialise` or `load`.
        side = torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(side):
            body(0, 1)
        side.synchronize()

    def __call__(self, first: int, last: int) -> None:
        """Do updates [first, last) of the chunk."""
        graph = self._graphs.get((first, last))
        if graph is None:
            graph = self._graphs[first, last] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                self._body(first, last)
        graph.replay()


def _frames(ring: Ring, device: torch.device) -> Frames:
    """Frames on the GPU when the window fits there, else those in shared memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if DeviceFrames.nbytes(ring) <= DEVICE_SHARE * free:
            return DeviceFrames(ring, device)
    return HostFrames(ring)
