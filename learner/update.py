"""Gradient updates: the trainer of a run.

All transitions of a round are known when it begins, and the target network stays as it is until it ends. So the round
is done in *chunks* of some updates: the frames of a chunk are gathered at once, max_a' Q^(s', a') is computed for all
of them at once, and only then come its updates, one by one. Chunks are counted from the beginning of the round and
always have the same size; how the round is cut into calls of `run` changes no number.

Nothing of a chunk's preparation depends on the updates before it: a second thread prepares a chunk while the first
updates with the one before (learner/ahead.py). On a CPU a third thread takes a part of every update (learner/aside.py).
On a GPU each has a stream of its own, and target values and updates are captured into graphs; within a round nothing
waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.ahead import Ahead, Graphs
from learner.aside import Aside
from learner.gather import BLOCK, GRID
from learner.loss import bellman_target, clipped_error
from learner.network import (
    CELL,
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
from shared.config import FRAME_SIDE, ConfigError, Learn
from shared.errors import Unmendable
from shared.ring import Ring
from shared.sizes import Sizes
from shared.snapshot import STATE_NAMES

CHUNK_UPDATES = 8
"""Most updates of a chunk. It fixes the shape in which target values are computed, so it touches their last bits."""

DEVICE_SHARE = 0.8
"""Share of a GPU's free memory that the window may take."""


class NonFiniteError(Unmendable):
    """Loss, gradient or parameters are no longer finite. The message is a sentence saying where."""

    def __init__(self, message: str, round_: int, sums: dict[str, float]) -> None:
        super().__init__(message)
        self.round = round_
        self.sums = {name: repr(value) for name, value in sums.items()}
        """Of the updates of the round so far, in words, since JSON knows no infinity."""


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
        replay_on: str = "auto",
        graph_updates: int = CHUNK_UPDATES,
    ) -> None:
        """See `shared.config` for the arguments.

        Raises:
            ConfigError: the arithmetic is wrong here, or the replay does not fit where it was asked for.
        """
        self._sizes, self._learn, self._seed, self._device = sizes, learn, seed, device
        check_arithmetic(learn.network, actions, device, precision, learn.batch_size)
        architecture = Architecture(learn.network, actions)
        self._online = Weights(architecture, device, precision)
        self._target = Weights(architecture, device, precision)
        self._optimizer = Optimizer(self._online, learn)
        self._gradients = architecture.views(self._optimizer.gradient)
        self._frames = _frames(ring, device, replay_on)
        self._replay = Replay(ring, self._frames, batch=learn.batch_size, discount=learn.discount, seed=seed)
        self._chunk = min(CHUNK_UPDATES, -(-sizes.round_steps // learn.train_every))
        self._chunks = [Chunk.of(self._chunk * learn.batch_size, actions, device) for _ in range(2)]
        self._actions = torch.arange(actions, device=device)
        # Of loss and maximal Q by place in the batch, and of the gradient's norm in the first place.
        self._sums = torch.zeros(3, learn.batch_size, dtype=torch.float64, device=device)
        self._plan: Batch | None = None
        self._round = self._done = self._planned = self._loaded = 0
        self._ahead = Ahead(device)
        on_cpu = device.type == "cpu"
        self._aside = Aside(own_thread=on_cpu, stream=None if on_cpu else torch.cuda.Stream(device))
        self._foreseen: tuple[int, int, Batch] | None = None
        self._piece = min(graph_updates, self._chunk)
        self._graphs: Graphs | None = None
        self._target_graphs: Graphs | None = None
        if device.type == "cuda":
            self._graphs, self._target_graphs = self._capture()

    @torch.inference_mode()
    def initialise(self) -> None:
        """Fresh parameters from the seed, the target equal to them, moments zero."""
        self._ahead.settle()
        self._online.load(initial_parameters(self._online.architecture.spec, self._seed))
        self.update_target()
        self._optimizer.mean.zero_()
        self._optimizer.square.zero_()

    @torch.inference_mode()
    def load(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over the vectors of `STATE_NAMES`, float32[P] each, in the order of `shared.parameters`.

        Without "target", the target network is the online one.
        """
        self._ahead.settle()
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
        self.check()
        self._online.architecture.to_outer(self._online.master, out)

    @torch.inference_mode()
    def update_target(self) -> None:
        """The target network becomes the online one."""
        if self._done < self._planned:  # else no chunk that needs the old one is in preparation
            self._ahead.settle()
        self._target.master.copy_(self._online.master)
        self._target.cast()

    @torch.inference_mode()
    def begin_round(self, round_: int, window_end: int) -> int:
        """Draw the transitions of all updates of round `round_` from ticks before `window_end`.

        Returns:
            The number of updates of the round.
        """
        self._ahead.settle()
        self._round, self._done, self._loaded = round_, 0, -1
        self._planned = self._sizes.updates_in(round_)
        self._sums.zero_()
        if self._planned:
            if self._foreseen is None or self._foreseen[:2] != (round_, window_end):
                self._foresee(round_, window_end)
            assert self._foreseen is not None, "it was just drawn"
            self._plan = self._foreseen[2]
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
            while first < last:
                self._done += self._some(chunk % 2, first, last)
                first = self._done - chunk * self._chunk

    def foresee(self, round_: int, window_end: int) -> None:
        """Begin to draw what `begin_round` would draw with these arguments, beside what the GPU still has to do.

        Only when all updates of the present round were asked for, and all ticks before `window_end` are there.
        """
        self._ahead.begin(partial(self._foresee, round_, window_end))

    @property
    def busy(self) -> bool:
        """Whether updates that were asked for are not done yet; never so on a CPU, which does them at once."""
        return self._device.type == "cuda" and not torch.cuda.current_stream().query()

    @torch.inference_mode()
    def end_round(self) -> RoundMetrics:
        """Means of the updates done since `begin_round`.

        Raises:
            NonFiniteError: the loss, the gradient or a parameter is not finite; nothing may be published then.
        """
        self.check()
        loss, max_q, norm = self._sums.sum(1).tolist()
        updates = max(1, self._done * self._learn.batch_size)
        norms = max(1, -(-self._done // self._chunk))
        return RoundMetrics(self._done, loss / updates, max_q / updates, norm / norms)

    def check(self) -> None:
        """Raise `NonFiniteError` unless all is finite. What is not stays so in the sums, so one look suffices."""
        values = torch.cat([self._sums.sum(1), self._online.master.sum()[None]]).tolist()
        if not np.isfinite(values).all():
            sums = dict(zip(("loss", "maximal Q", "gradient norm", "parameters"), values, strict=True))
            raise NonFiniteError(
                f"In round {self._round}, within its first {self._done} updates, the learner's numbers ceased to be "
                f"finite (sums: {', '.join(f'{name} {value}' for name, value in sums.items())}); a smaller "
                "--learning-rate may help.",
                self._round,
                sums,
            )

    @property
    def round(self) -> int:
        """The round that was begun last."""
        return self._round

    @torch.inference_mode()
    def last_update(self) -> dict[str, NDArray[np.generic]]:
        """What went into the update that was done last, and what came of it, b transitions and P parameters.

        `frames` uint8[b, 5, 84, 84] of t-3 ... t+1, `action` int64[b], `reward` float32[b] as clipped, `discount`
        float32[b], `target_value` float32[b], `gradient` and `parameters_after` float32[P] in outer order.
        """
        number, index = divmod(self._done - 1, self._chunk)
        part = slice(index * self._learn.batch_size, (index + 1) * self._learn.batch_size)
        chunk = Chunk(*(buffer[part].cpu() for buffer in self._chunks[number % 2]))
        cut = chunk.blocks.view(-1, GRID, GRID, FRAMES, BLOCK, BLOCK).permute(0, 3, 1, 4, 2, 5)
        outer = {"gradient": self._optimizer.gradient, "parameters_after": self._online.master}
        vectors = {name: np.zeros(len(vector), np.float32) for name, vector in outer.items()}
        for name, vector in outer.items():
            self._online.architecture.to_outer(vector, vectors[name])
        return {
            "frames": cut.reshape(len(cut), FRAMES, FRAME_SIDE, FRAME_SIDE).contiguous().numpy(),
            "action": chunk.chosen.argmax(1).numpy(),
            "reward": chunk.reward.numpy(),
            "discount": chunk.discount.numpy(),
            "target_value": chunk.y.numpy(),
            **vectors,
        }

    def _state(self) -> dict[str, Tensor]:
        """The vectors of `STATE_NAMES`, in inner order."""
        optimizer = self._optimizer
        vectors = (self._online.master, self._target.master, optimizer.mean, optimizer.square)
        return dict(zip(STATE_NAMES, vectors, strict=True))

    def _capture(self) -> tuple[Graphs, Graphs]:
        """Graphs of the updates, by buffer and first update, and of the target values, by buffer.

        What the passes before the captures do to the parameters is overwritten by `initialise` or `load`.
        """
        updates, targets = Graphs(self._device), Graphs(self._device)
        for buffer, chunk in enumerate(self._chunks):
            targets.capture(buffer, partial(self._targets, chunk))
            for first in range(0, self._chunk, self._piece):
                last = min(first + self._piece, self._chunk)
                updates.capture((buffer, first, last), partial(self._updates, buffer, first, last))
        return updates, targets

    def _foresee(self, round_: int, window_end: int) -> None:
        """Draw the transitions of a round, and bring them to where they are read."""
        updates = self._sizes.updates_in(round_)
        padded = -(-updates // self._chunk) * self._chunk
        plan = self._replay.plan(round_, window_end, updates, padded)
        devices = [self._frames.device] * 2 + [self._device] * 3
        batch = Batch(*(_upload(field, at) for field, at in zip(plan, devices, strict=True)))
        self._foreseen = (round_, window_end, batch)

    def _some(self, buffer: int, first: int, last: int) -> int:
        """The first of the updates [first, last) of the chunk in a buffer; returns how many."""
        if self._graphs is None:
            self._updates(buffer, first, last)
            return last - first
        last = min(last, first - first % self._piece + self._piece)
        if (buffer, first, last) in self._graphs:
            self._graphs.replay((buffer, first, last))
        else:  # the rest of a round that is no whole number of chunks: the same kernels, one by one
            self._updates(buffer, first, last)
        return last - first

    def _load(self, number: int) -> None:
        """Have chunk `number` ready, and begin with the one after it."""
        if not self._ahead.begun:
            self._ahead.begin(partial(self._prepare, number))
        self._ahead.settle()
        if (number + 1) * self._chunk < self._planned:
            self._ahead.begin(partial(self._prepare, number + 1))
        self._loaded = number

    def _prepare(self, number: int) -> None:
        """In the second thread: gather a chunk and compute its target values."""
        buffer = number % 2
        self._gather(number, self._chunks[buffer])
        if self._target_graphs is None:
            self._targets(self._chunks[buffer])
        else:
            self._target_graphs.replay(buffer)

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
        self._aside.settle()

    def _update(self, chunk: Chunk, index: int) -> None:
        """One gradient update."""
        size, online = self._learn.batch_size, self._online
        part = slice(index * size, (index + 1) * size)
        past = forward(online, network_input(chunk.blocks[part], 0, online.dtype), self._aside.settle)
        chosen = chunk.chosen[part]
        loss, gradient = clipped_error((past.q * chosen).sum(1), chunk.y[part])
        gradient_q = gradient[:, None] * chosen
        if self._optimizer.gradient_scale != 1.0:
            gradient_q.mul_(self._optimizer.gradient_scale)
        backward(online, past, gradient_q, self._gradients, self._aside)
        self._aside.settle()
        self._optimizer.step(self._aside)
        self._sums[0].add_(loss)
        self._sums[1].add_(past.q.amax(1))
        if index == 0:
            norm = torch.linalg.vector_norm(self._optimizer.gradient, dtype=torch.float32)
            self._sums[2, 0].add_(norm, alpha=1.0 / (self._optimizer.gradient_scale * size))


def _upload(field: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device. The copy to a GPU is in its stream; the pinned memory that it reads is kept until then."""
    return field if device.type == "cpu" else field.pin_memory().to(device, non_blocking=True)


def _frames(ring: Ring, device: torch.device, replay_on: str) -> Frames:
    """Frames on the GPU ("device"), in shared memory ("host"), or on the GPU where the window fits ("auto").

    Raises:
        ConfigError: it does not fit, and was asked for.
    """
    if replay_on == "host" or (replay_on == "auto" and device.type == "cpu"):
        return HostFrames(ring)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if DeviceFrames.nbytes(ring) > DEVICE_SHARE * free:
            if replay_on == "auto":
                return HostFrames(ring)
            raise ConfigError(
                f"--replay-on device needs {DeviceFrames.nbytes(ring) / 1e9:.1f} GB on {device}, of which "
                f"{free / 1e9:.1f} GB are free; a smaller --replay-size fits, or say --replay-on host."
            )
    return DeviceFrames(ring, device)
