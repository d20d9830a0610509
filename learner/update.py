"""Gradient updates: the trainer of a run.

All transitions of a round are known when it begins, and the target network stays as it is until it ends. So the round
is done in *chunks* of some updates: the frames of a chunk are gathered at once, max_a' Q^(s', a') is computed for all
of them at once, and only then come its updates, one by one. Chunks are counted from the beginning of the round and
always have the same size; how the round is cut into calls of `run` changes no number.

Nothing of a chunk's preparation depends on the updates before it. On a CPU a second thread prepares a chunk while the
first updates with the one before; on a GPU the updates of a chunk and its target values are captured into graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
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
from shared.errors import Unmendable
from shared.ring import Ring
from shared.sizes import Sizes
from shared.snapshot import STATE_NAMES

CHUNK_UPDATES = 8
"""Most updates of a chunk; bounds the length of one graph, too, during which nobody else gets the GPU."""

DEVICE_SHARE = 0.8
"""Share of a GPU's free memory that the window may take."""


class NonFiniteError(Unmendable):
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


class Chunk(NamedTuple):
    """Buffers for the transitions of some updates, n in all."""

    blocks: Tensor
    """uint8[n, 21, 21, 5 * 16]: frames t-3 ... t+1."""
    chosen: Tensor
    """float32[n, actions]: one-hot a_t."""
    reward: Tensor
    """float32[n], clipped."""
    discount: Tensor
    """float32[n]; 0 where the return ends."""
    y: Tensor
    """float32[n]: target values."""

    @classmethod
    def of(cls, n: int, actions: int, device: torch.device) -> Chunk:
        """Empty buffers."""
        blocks = torch.zeros(n, GRID, GRID, FRAMES * CELL, dtype=torch.uint8, device=device)
        return cls(blocks, torch.zeros(n, actions, device=device), *(torch.zeros(n, device=device) for _ in range(3)))


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
        on_cpu = device.type == "cpu"
        self._chunks = [Chunk.of(self._chunk * learn.batch_size, actions, device) for _ in range(2 if on_cpu else 1)]
        self._actions = torch.arange(actions, device=device)
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)
        self._plan: Batch | None = None
        self._round = self._done = self._planned = self._loaded = 0
        # PyTorch keeps the number of threads by thread.
        self._ahead = (
            ThreadPoolExecutor(1, "ahead", torch.set_num_threads, (torch.get_num_threads(),)) if on_cpu else None
        )
        self._next: Future[None] | None = None
        self._graphs = None if on_cpu else Graphs(lambda: self._updates(0, 0, 1))

    @torch.inference_mode()
    def initialise(self) -> None:
        """Fresh parameters from the seed, the target equal to them, moments zero."""
        self._settle()
        self._online.load(initial_parameters(self._online.architecture.spec, self._seed))
        self.update_target()
        self._optimizer.mean.zero_()
        self._optimizer.square.zero_()

    @torch.inference_mode()
    def load(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over the vectors of `STATE_NAMES`, float32[P] each, in the order of `shared.parameters`.

        Without "target", the target network is the online one.
        """
        self._settle()
        for name, vector in self._state().items():
            source = "online" if name == "target" and name not in state else name
            self._online.architecture.to_inner(state[source], vector)
        self._online.cast()
        self._target.cast()

    @torch.inference_mode()
    def store(self, out: dict[str, NDArray[np.float32]]) -> None:
        """Write those vectors of `STATE_NAMES` that are asked for into float32[P] arrays."""
        state = self._state()
        for name, vector in out.items():
            self._online.architecture.to_outer(state[name], vector)

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
        self._settle()
        self._target.master.copy_(self._online.master)
        self._target.cast()

    @torch.inference_mode()
    def begin_round(self, round_: int, window_end: int) -> int:
        """Draw the transitions of all updates of round `round_` from ticks before `window_end`.

        Returns:
            The number of updates of the round.
        """
        self._settle()
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
                self._load(chunk)
            if self._graphs is None:
                self._updates(chunk % 2, first, last)
            else:
                self._graphs.replay((first, last), partial(self._updates, 0, first, last))
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

    def _load(self, number: int) -> None:
        """Have chunk `number` ready; with a second thread, begin with the one after it."""
        if self._graphs is not None:
            self._gather(number, self._chunks[0])
            self._graphs.replay("targets", lambda: self._targets(self._chunks[0]))
        else:
            assert self._ahead is not None, "without graphs there is a second thread"
            (self._next or self._ahead.submit(self._prepare, number)).result()
            more = (number + 1) * self._chunk < self._planned
            self._next = self._ahead.submit(self._prepare, number + 1) if more else None
        self._loaded = number

    def _settle(self) -> None:
        """Let the second thread finish: what it reads is about to change."""
        if self._next is not None:
            self._next.result()
            self._next = None

    @torch.inference_mode()
    def _prepare(self, number: int) -> None:
        """In the second thread: gather a chunk and compute its target values."""
        chunk = self._chunks[number % 2]
        self._gather(number, chunk)
        self._targets(chunk)

    def _gather(self, number: int, chunk: Chunk) -> None:
        """Bring the transitions of chunk `number` into its buffers."""
        assert self._plan is not None, "begin_round comes before run"
        n = len(chunk.y)
        part = self._plan.part(number * n, (number + 1) * n)
        self._frames.select(part, chunk.blocks)
        # One-hot, not gather: the backward pass of gather adds up in an order that a GPU does not fix.
        chunk.chosen.copy_(part.action[:, None] == self._actions)
        chunk.reward.copy_(part.reward)
        chunk.discount.copy_(part.discount)

    def _targets(self, chunk: Chunk) -> None:
        """The values that the updates of a chunk move to."""
        future = forward(self._target, network_input(chunk.blocks, 1, self._target.dtype)).q.amax(1)
        chunk.y.copy_(bellman_target(chunk.reward, chunk.discount, future))

    def _updates(self, buffer: int, first: int, last: int) -> None:
        """Updates [first, last) of the chunk in a buffer."""
        for index in range(first, last):
            self._update(self._chunks[buffer], index)

    def _update(self, chunk: Chunk, index: int) -> None:
        """One gradient update."""
        size, online = self._learn.batch_size, self._online
        part = slice(index * size, (index + 1) * size)
        past = forward(online, network_input(chunk.blocks[part], 0, online.dtype))
        chosen = chunk.chosen[part]
        loss, gradient = clipped_error((past.q * chosen).sum(1), chunk.y[part])
        backward(online, past, gradient[:, None] * chosen * self._optimizer.gradient_scale, self._gradients)
        self._sums[0] += loss.mean()
        self._sums[1] += past.q.amax(1).mean()
        if index == 0:
            norm = torch.linalg.vector_norm(self._optimizer.gradient, dtype=torch.float32)
            self._sums[2] += norm / (self._optimizer.gradient_scale * size)
        self._optimizer.step()


class Graphs:
    """Bodies of operations, each captured into a CUDA graph when it is first asked for."""

    def __init__(self, warm: Callable[[], None]) -> None:
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        # Libraries set themselves up in a first pass, which a capture cannot hold. It runs on zeros, and what it does
        # to the parameters is overwritten by `initialise` or `load`.
        side = torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(side):
            warm()
        side.synchronize()

    def replay(self, name: Hashable, body: Callable[[], None]) -> None:
        """Do what `body` does, which is always the same for the same name."""
        graph = self._graphs.get(name)
        if graph is None:
            graph = self._graphs[name] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                body()
        graph.replay()


def _frames(ring: Ring, device: torch.device) -> Frames:
    """Frames on the GPU when the window fits there, else those in shared memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if DeviceFrames.nbytes(ring) <= DEVICE_SHARE * free:
            return DeviceFrames(ring, device)
    return HostFrames(ring)
