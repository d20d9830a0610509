"""Gradient updates: the trainer of a run.

The window does not change within a round, and neither does the target network. So the round is done in *chunks* of
some updates: the frames of a chunk are gathered at once, the target network is asked about all of them at once, and
only then come its updates, one by one. Chunks are counted from the beginning of the round and always have the same
size; how the round is cut into calls of `run` changes no number.

Nothing of a chunk's preparation depends on the updates of the chunk before it: a second thread prepares a chunk while
the first updates with the one before (learner/ahead.py). On a CPU a third thread takes a part of every update
(learner/aside.py). On a GPU each has a stream of its own, and target values and updates are captured into graphs;
within a round nothing waits for the GPU.
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
from learner.chunk import Chunk
from learner.gather import BLOCK, GRID
from learner.initial import initial_parameters
from learner.method import method_of
from learner.model import Beside
from learner.models import check_arithmetic, model_of
from learner.optimizer import Optimizer
from learner.prioritised import Prioritised
from learner.replay import Batch, DeviceFrames, Frames, HostFrames, Replay, frames_of
from learner.targets import Targets
from shared.config import FRAME_SIDE, ConfigError, Extend, Learn
from shared.errors import Unmendable
from shared.parameters import Network
from shared.ring import Ring
from shared.sizes import Sizes
from shared.snapshot import PRIORITIES, STATE_NAMES

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


class Trainer:
    """Parameters, target and optimiser, and the updates of one round after the other."""

    def __init__(
        self,
        *,
        ring: Ring,
        sizes: Sizes,
        learn: Learn,
        extend: Extend,
        network: Network,
        seed: int,
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
        check_arithmetic(network, device, precision, learn.batch_size)
        self._network = network
        self._online = model_of(network, device, precision)
        self._target = model_of(network, device, precision)
        self._method = method_of(network, extend, device)
        self._targets = Targets(self._target, self._online, self._method, sizes.n_step)
        self._optimizer = Optimizer(self._online, learn, extend.clip_gradient)
        self._online.gradient_into(self._optimizer.gradient)
        self._frames = _frames(ring, device, replay_on)
        self._replay = Replay(ring, self._frames, batch=learn.batch_size, discount=learn.discount, seed=seed)
        self._chunk = min(CHUNK_UPDATES, -(-sizes.round_steps // learn.train_every))
        self._chunks = [
            Chunk.of(
                self._chunk,
                learn.batch_size,
                model=self._online,
                method=self._method,
                n_step=sizes.n_step,
                device=device,
            )
            for _ in range(2)
        ]
        self._prioritised: Prioritised | None = None
        if extend.prioritised:
            shape = {"updates": self._chunk, "batch": learn.batch_size}
            self._prioritised = Prioritised(ring, self._replay, self._frames, extend=extend, seed=seed, **shape)
        self._taught = 0  # chunks of the round whose errors the priorities know
        self._actions = torch.arange(network.actions, device=device)
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
        self._online.to_inner(initial_parameters(self._network, self._seed), self._online.master)
        self._online.cast()
        self.update_target()
        self._optimizer.mean.zero_()
        self._optimizer.square.zero_()
        if self._prioritised is not None:
            self._prioritised.tree.clear()

    @torch.inference_mode()
    def load(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over the vectors of a snapshot, those of parameters float32[P], in the order of `shared.parameters`.

        Without "target", the target network is the online one.
        """
        self._ahead.settle()
        for name, vector in self._state().items():
            source = "online" if name == "target" and name not in state else name
            self._online.to_inner(state[source], vector)
        self._online.cast()
        self._target.cast()
        if self._prioritised is not None:
            self._prioritised.tree.load(state[PRIORITIES])

    @torch.inference_mode()
    def store(self, out: dict[str, NDArray[np.float32]]) -> None:
        """Write those vectors of a snapshot that are asked for into float32 arrays."""
        state = self._state()
        for name, vector in out.items():
            if name in state:
                self._online.to_outer(state[name], vector)
            elif self._prioritised is not None:
                self._prioritised.tree.store(vector)

    @torch.inference_mode()
    def online_into(self, out: NDArray[np.float32]) -> None:
        """Write the online parameters into float32[P], to be published.

        Raises:
            NonFiniteError: they, or what the round computed so far, are not finite.
        """
        self.check()
        self._online.to_outer(self._online.master, out)

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
        self._taught = 0
        if self._planned and self._prioritised is not None:
            self._prioritised.begin(round_, window_end)
        elif self._planned:
            if self._foreseen is None or self._foreseen[:2] != (round_, window_end):
                self._foresee(round_, window_end)
            assert self._foreseen is not None, "it was just drawn"
            self._plan = self._foreseen[2]
        if self._planned:
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

        Only when all updates of the present round were asked for, and all ticks before `window_end` are there. What
        is drawn by priorities cannot be foreseen.
        """
        if self._prioritised is None:
            self._ahead.begin(partial(self._foresee, round_, window_end))

    @property
    def busy(self) -> bool:
        """Whether updates that were asked for are not done yet; never so on a CPU, which does them at once."""
        return self._device.type == "cuda" and not torch.cuda.current_stream().query()

    @torch.inference_mode()
    def end_round(self) -> RoundMetrics:
        """Means of the updates done since `begin_round`; the priorities know what these taught.

        Raises:
            NonFiniteError: the loss, the gradient or a parameter is not finite; nothing may be published then.
        """
        self.check()
        if self._prioritised is not None:
            self._ahead.settle()
            self._teach(-(-self._done // self._chunk))
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

        `frames` uint8[b, k, 84, 84] of both stacks, `action` int64[b], `reward` float32[b] of clipped ones (and
        Munchausen's term), `discount` float32[b], `target_value` float32[b, ...], `gradient` and `parameters_after`
        float32[P] in outer order.
        """
        number, index = divmod(self._done - 1, self._chunk)
        part = slice(index * self._learn.batch_size, (index + 1) * self._learn.batch_size)
        chunk = self._chunks[number % 2]
        frames = frames_of(self._sizes.n_step)
        cut = chunk.blocks[part].cpu().view(-1, GRID, GRID, frames, BLOCK, BLOCK).permute(0, 3, 1, 4, 2, 5)
        outer = {"gradient": self._optimizer.gradient, "parameters_after": self._online.master}
        vectors = {name: np.zeros(len(vector), np.float32) for name, vector in outer.items()}
        for name, vector in outer.items():
            self._online.to_outer(vector, vectors[name])
        return {
            "frames": cut.reshape(len(cut), frames, FRAME_SIDE, FRAME_SIDE).contiguous().numpy(),
            "action": chunk.chosen[part].argmax(1).numpy(force=True),
            "reward": chunk.reward[part].numpy(force=True),
            "discount": chunk.discount[part].numpy(force=True),
            "target_value": chunk.y[part].numpy(force=True),
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
            targets.capture(buffer, partial(self._targets.prepare, chunk))
            for first in range(0, self._chunk, self._piece):
                last = min(first + self._piece, self._chunk)
                updates.capture((buffer, first, last), partial(self._updates, buffer, first, last))
        return updates, targets

    def _foresee(self, round_: int, window_end: int) -> None:
        """Draw the transitions of a round, and bring them to where they are read."""
        updates = self._sizes.updates_in(round_)
        padded = -(-updates // self._chunk) * self._chunk
        plan = self._replay.plan(round_, window_end, updates, padded)
        self._foreseen = (round_, window_end, self._upload(plan))

    def _upload(self, batch: Batch) -> Batch:
        """Bring transitions to where they are read."""
        devices = [self._frames.device] * 2 + [self._device] * 3
        return Batch(*(_upload(field, at) for field, at in zip(batch, devices, strict=True)))

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
            self._targets.prepare(self._chunks[buffer])
        else:
            self._target_graphs.replay(buffer)

    def _gather(self, number: int, chunk: Chunk) -> None:
        """Bring the transitions of chunk `number` into its buffers."""
        if self._prioritised is not None:
            self._teach(number - 1)
            part = self._upload(self._prioritised.draw(number, chunk.places, chunk.importance))
        else:
            assert self._plan is not None, "begin_round comes before run"
            n = len(chunk.blocks)
            part = self._plan.part(number * n, (number + 1) * n)
        self._frames.select(part, chunk.blocks)
        chunk.put(part, self._actions)
        chunk.draw(self._seed, self._round, number)

    def _teach(self, end: int) -> None:
        """Tell the priorities what the chunks before `end` taught; of the last one only what was done of it."""
        assert self._prioritised is not None
        for number in range(self._taught, end):
            chunk = self._chunks[number % 2]
            n = min(len(chunk.places), (self._done - number * self._chunk) * self._learn.batch_size)
            self._prioritised.learn(chunk.places[:n], chunk.error[:n])
        self._taught = max(self._taught, end)

    def _updates(self, buffer: int, first: int, last: int) -> None:
        """Updates [first, last) of the chunk in a buffer."""
        for index in range(first, last):
            self._update(self._chunks[buffer], index)
        self._aside.settle()

    def _update(self, chunk: Chunk, index: int) -> None:
        """One gradient update."""
        size, online = self._learn.batch_size, self._online
        part, noise = slice(index * size, (index + 1) * size), slice(index, index + 1)
        fractions = chunk.fractions[part] if self._method.samples else None
        beside = Beside(fractions, chunk.noise[noise] if online.noise else None)
        past = online.forward(chunk.blocks[part], 0, beside, self._aside.settle, learns=True)
        outputs = past.outputs.detach()
        learned = self._method.learn(outputs, chunk.chosen[part], self._targets.of(chunk, part, noise), fractions)
        if self._prioritised is not None:
            chunk.error[part].copy_(learned.priority)
            learned.gradient.mul_(chunk.importance[part][:, None, None])
        if self._optimizer.gradient_scale != 1.0:
            learned.gradient.mul_(self._optimizer.gradient_scale)
        online.backward(past, learned.gradient, self._aside)
        self._aside.settle()
        if index == 0:  # before the step, which may clip it
            norm = torch.linalg.vector_norm(self._optimizer.gradient, dtype=torch.float32)
            self._sums[2, 0].add_(norm, alpha=1.0 / (self._optimizer.gradient_scale * size))
        self._optimizer.step(self._aside)
        self._sums[0].add_(learned.loss)
        self._sums[1].add_(self._method.values(outputs).amax(1))


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
