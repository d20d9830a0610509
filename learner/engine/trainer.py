"""Gradient updates: the trainer of a run.

The window does not change within a round, and neither does the target network. So the round is done in *chunks* of
some updates: the frames of a chunk are gathered at once, the target network is asked about all of them at once, and
only then come its updates, one by one. Chunks are counted from the beginning of the round and always have the same
size; how the round is cut into calls of `run` changes no number.

Nothing of a chunk's preparation depends on the updates of the chunk before it: a second thread prepares a chunk while
the first updates with the one before (learner/engine/prefetcher.py). On a CPU a third thread takes a part of every
update (learner/engine/side_stream.py). On a GPU each has a stream of its own, and target values and updates are
captured into graphs; within a round nothing waits for the GPU, but for the errors of a chunk that is long past where
they are priorities, and for updates that were asked for long ago (learner/learner.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.initialization import initial_parameters
from learner.engine.optimizer import Optimizer
from learner.engine.prefetcher import Graphs
from learner.engine.side_stream import SideStream
from learner.losses.method import make_method
from learner.losses.td_targets import Targets
from learner.networks.fused import frames_in
from learner.networks.model import ExtraInputs
from learner.networks.models import check_arithmetic, make_model
from learner.replay.chunk import Chunk
from learner.replay.feed import CHUNK_UPDATES, Feed
from shared.config.run_schedule import RunSchedule
from shared.config.settings import Algorithm, Learn
from shared.errors import FatalError
from shared.memory.ring import Ring
from shared.memory.snapshot import PRIORITIES
from shared.network_spec import Network, parameters_of


class NonFiniteError(FatalError):
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
    """Of the method, a transition's mean."""
    mean_q: float
    """max_a Q(s, a) of the online network, on the scale of rewards; a transition's mean."""
    gradient_norm: float
    """Of the batch's mean gradient, looked at in the first update of each chunk."""
    q_spread: float
    """Standard deviation over a batch of max_a Q(s, a), looked at there, too: that of a dead network is next to 0."""


class Trainer:
    """Parameters, target and optimizer, and the updates of one round after the other."""

    def __init__(
        self,
        *,
        ring: Ring,
        run_schedule: RunSchedule,
        learn: Learn,
        algorithm: Algorithm,
        network: Network,
        seed: int,
        device: torch.device,
        precision: str,
        replay_on: str = "auto",
        graph_updates: int = CHUNK_UPDATES,
    ) -> None:
        """See `shared.config.settings` for the arguments. Without graphs the same kernels are launched one by one.

        Raises:
            ConfigError: the arithmetic is wrong here, or the replay does not fit where it was asked for.
        """
        self._run_schedule, self._learn, self._seed, self._device = run_schedule, learn, seed, device
        check_arithmetic(network, device, precision, learn.batch_size, learns=True)
        if network.plain:  # what the target network is asked at once; with networks of parts that would take seconds
            check_arithmetic(network, device, precision, CHUNK_UPDATES * learn.batch_size, learns=False)
        self._network = network
        self._online = make_model(network, device, precision)
        self._target = make_model(network, device, precision)
        self._method = make_method(network, algorithm, device)
        self._targets = Targets(self._target, self._online, self._method, run_schedule.n_step)
        self._optimizer = Optimizer(self._online, learn, algorithm.clip_gradient)
        self._online.gradient_into(self._optimizer.gradient)
        self._feed = Feed(
            ring,
            run_schedule=run_schedule,
            learn=learn,
            algorithm=algorithm,
            seed=seed,
            device=device,
            replay_on=replay_on,
            model=self._online,
            method=self._method,
            targets=self._targets,
        )
        # Of loss and maximal Q by place in the batch; of the gradient's norm and the spread of Q in the first place.
        self._sums = torch.zeros(4, learn.batch_size, dtype=torch.float64, device=device)
        self._round = self._done = self._planned = 0
        self._slices: deque[torch.cuda.Event] = deque()
        on_cpu = device.type == "cpu"
        self._side_stream = SideStream(own_thread=on_cpu, stream=None if on_cpu else torch.cuda.Stream(device))
        self._piece = min(graph_updates, self._feed.updates)
        self._graphs: Graphs | None = None
        if device.type == "cuda" and self._piece:
            self._feed.capture()
            self._graphs = self._capture()

    @torch.inference_mode()
    def initialize(self) -> None:
        """Fresh parameters from the seed, the target equal to them, moments zero."""
        self._feed.settle()
        self._online.pack(initial_parameters(self._network, self._seed), self._online.params)
        self._online.cast()
        self.update_target()
        self._optimizer.mean.zero_()
        self._optimizer.square.zero_()
        self._sums.zero_()
        if self._feed.prioritized is not None:
            self._feed.prioritized.tree.clear()

    @torch.inference_mode()
    def load(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over the vectors of a snapshot, those of parameters float32[P], in the order of `shared.network_spec`.

        Without "target", the target network is the online one.
        """
        self._feed.settle()
        for name, vector in self._state().items():
            source = "online" if name == "target" and name not in state else name
            self._online.pack(state[source], vector)
        self._online.cast()
        self._target.cast()
        self._sums.zero_()
        if self._feed.prioritized is not None:
            self._feed.prioritized.tree.load(state[PRIORITIES])

    @torch.inference_mode()
    def store(self, out: dict[str, NDArray[np.float32]]) -> None:
        """Write those vectors of a snapshot that are asked for into float32 arrays."""
        state = self._state()
        for name, vector in out.items():
            if name in state:
                self._online.unpack(state[name], vector)
            elif self._feed.prioritized is not None:
                self._feed.prioritized.tree.store(vector)

    @torch.inference_mode()
    def online_into(self, out: NDArray[np.float32]) -> None:
        """Write the online parameters into float32[P], to be published.

        Raises:
            NonFiniteError: they, or what the round computed so far, are not finite.
        """
        self.check()
        self._online.unpack(self._online.params, out)

    @torch.inference_mode()
    def update_target(self) -> None:
        """The target network becomes the online one."""
        if self._done < self._planned:  # else no chunk that needs the old one is in preparation
            self._feed.settle()
        self._target.params.copy_(self._online.params)
        self._target.cast()

    @torch.inference_mode()
    def begin_round(self, round_: int, window_end: int) -> int:
        """Draw the transitions of all updates of round `round_` from ticks before `window_end`.

        Returns:
            The number of updates of the round.
        """
        self._planned = self._run_schedule.updates_in(round_)
        self._feed.begin(round_, window_end, self._planned)
        self._round, self._done = round_, 0
        self._sums.zero_()
        self._slices.clear()
        if self._planned:
            self._optimizer.begin(self._run_schedule.updates_before(round_))
        return self._planned

    @torch.inference_mode()
    def run(self, count: int) -> None:
        """The next `count` updates of the round, a slice, at most those that are left. A GPU is only asked for them."""
        end = min(self._done + count, self._planned)
        while self._done < end:
            number, first = divmod(self._done, self._feed.updates)
            last = min(self._feed.updates, first + end - self._done)
            self._feed.load(number)
            self._done += self._some(number % 2, first, last)
        if self._device.type == "cuda":
            self._slices.append(torch.cuda.Event())
            self._slices[-1].record()

    @property
    def slices_begun(self) -> int:
        """Slices that were asked for and are not done yet; always 0 on a CPU, which does them at once."""
        while self._slices and self._slices[0].query():
            self._slices.popleft()
        return len(self._slices)

    def prefetch(self, round_: int, window_end: int) -> None:
        """Begin to draw what `begin_round` would draw with these arguments, beside other work; once is enough.

        Only when all updates of the present round were asked for, and all ticks before `window_end` are there.
        """
        self._feed.prefetch(round_, window_end)

    def settle(self) -> None:
        """Wait for all that was begun. A process that goes with work under way may leave the others hanging under MPS
        (NVIDIA's MPS documentation, "Client early termination")."""
        self._feed.settle()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    @torch.inference_mode()
    def end_round(self) -> RoundMetrics:
        """Means of the updates done since `begin_round`; the priorities know what these taught.

        Raises:
            NonFiniteError: the loss, the gradient or a parameter is not finite; nothing may be published then.
        """
        self.check()
        self._feed.finish(self._done)
        loss, mean_q, norm, spread = self._sums.sum(1).tolist()
        samples = max(1, self._done * self._learn.batch_size)
        looks = max(1, -(-self._done // self._feed.updates))
        return RoundMetrics(self._done, loss / samples, mean_q / samples, norm / looks, spread / looks)

    def check(self) -> None:
        """Raise `NonFiniteError` unless all is finite. What is not stays so in the sums, so one look suffices."""
        values = torch.cat([self._sums.sum(1), self._online.params.sum()[None]]).tolist()
        if not np.isfinite(values).all():
            sums = dict(zip(("loss", "maximal Q", "gradient norm", "spread of Q", "parameters"), values, strict=True))
            raise NonFiniteError(
                f"In round {self._round}, within its first {self._done} updates, the learner's numbers ceased to be "
                f"finite (sums: {', '.join(f'{name} {value}' for name, value in sums.items())}); a smaller "
                "--learning-rate may help.",
                self._round,
                sums,
            )

    @property
    def replay_device_bytes(self) -> int:
        """What the replay takes of a GPU; 0 where its frames are read from shared memory."""
        return self._feed.device_bytes

    @property
    def round(self) -> int:
        """The round that was begun last."""
        return self._round

    @torch.inference_mode()
    def last_update(self) -> dict[str, NDArray[np.generic]]:
        """What went into the update that was done last, and what came of it, b transitions and P parameters.

        `frames` uint8[b, k, 84, 84] of both stacks, `action` int64[b], `reward` float32[b] of the steps (and
        Munchausen's term), `discount` float32[b], `target_value` float32[b, ...], `gradient` and `parameters_after`
        float32[P] in outer order.
        """
        number, index = divmod(self._done - 1, self._feed.updates)
        part = slice(index * self._learn.batch_size, (index + 1) * self._learn.batch_size)
        chunk = self._feed.chunks[number % 2]
        canonical = {"gradient": self._optimizer.gradient, "parameters_after": self._online.params}
        vectors = {name: np.zeros(parameters_of(self._network).count, np.float32) for name in canonical}
        for name, vector in canonical.items():
            self._online.unpack(vector, vectors[name])
        return {
            "frames": frames_in(chunk.blocks[part].cpu()).contiguous().numpy(),
            "action": chunk.chosen[part].argmax(1).numpy(force=True),
            "reward": chunk.reward[part].numpy(force=True),
            "discount": chunk.discount[part].numpy(force=True),
            "target_value": chunk.y[part].numpy(force=True),
            **vectors,
        }

    def _state(self) -> dict[str, Tensor]:
        """The vectors of the method's states, in inner order."""
        optimizer = self._optimizer
        vectors = (self._online.params, self._target.params, optimizer.mean, optimizer.square)
        return dict(zip(self._run_schedule.method.states, vectors, strict=True))

    def _capture(self) -> Graphs:
        """Graphs of the updates, by buffer, first and last update.

        What the passes before the captures do to parameters and sums (spectral norms of zeros are no numbers) is
        overwritten by `initialize` or `load`.
        """
        graphs = Graphs(self._device)
        for buffer in range(len(self._feed.chunks)):
            for first in range(0, self._feed.updates, self._piece):
                last = min(first + self._piece, self._feed.updates)
                graphs.capture((buffer, first, last), partial(self._updates, buffer, first, last))
        return graphs

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

    def _updates(self, buffer: int, first: int, last: int) -> None:
        """Updates [first, last) of the chunk in a buffer."""
        for index in range(first, last):
            self._update(self._feed.chunks[buffer], index)
        self._side_stream.settle()

    def _update(self, chunk: Chunk, index: int) -> None:
        """One gradient update."""
        size, online = self._learn.batch_size, self._online
        part, noise = slice(index * size, (index + 1) * size), slice(index, index + 1)
        extra_inputs = ExtraInputs.of(chunk.fractions[part], chunk.noise[noise])
        saved = online.forward(chunk.blocks[part], 0, extra_inputs, self._side_stream.settle, learns=True)
        outputs = saved.outputs.detach()
        target = self._targets.of(chunk, part, noise)
        learned = self._method.learn(outputs, chunk.chosen[part], target, extra_inputs.fractions)
        if self._feed.prioritized is not None:
            chunk.error[part].copy_(learned.priority)
            learned.gradient.mul_(chunk.importance[part][:, None, None])
        if self._optimizer.gradient_scale != 1.0:
            learned.gradient.mul_(self._optimizer.gradient_scale)
        online.backward(saved, learned.gradient, self._side_stream)
        self._side_stream.settle()
        best = self._method.values(self._targets.unscaled(outputs)).amax(1)
        if index == 0:
            self._sums[2, 0].add_(self._optimizer.norm(), alpha=1.0 / (self._optimizer.gradient_scale * size))
            self._sums[3, 0].add_(best.std(correction=0))
        self._optimizer.step(self._side_stream)
        self._sums[0].add_(learned.loss)
        self._sums[1].add_(best)
