"""The engine: parameters, optimizer and the updates of one round after the other, for any method.

A round consists of *chunks* of several updates. The round source prepares a whole chunk at once
(learner/engine/interfaces.py); then the engine does its updates one by one. Chunks are counted from the beginning of
the round and always have the same size. The division of a round into calls of `run` changes no number.

On a CPU the processes of a team divide every chunk and every update (learner/team). On a GPU a second thread prepares a
chunk while the main thread updates with the one before, which does not change it (learner/engine/prefetcher.py). Each
thread has a separate stream, and updates are captured into graphs. docs/design.md ("On a GPU") lists where a thread
waits for the GPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.accelerator import Event, accelerator_of, is_gpu
from learner.engine.interfaces import M, RoundSource, UpdateRule
from learner.engine.optimizer import Optimizer
from learner.engine.prefetcher import Graphs
from learner.engine.round_means import RoundMeans, RoundMetrics
from learner.engine.side_stream import CudaSideStream, SideStream
from learner.networks.model import Model
from learner.networks.modules import initial_parameters
from learner.team.team import Team
from shared.config.run_schedule import RunSchedule
from shared.config.settings import Config
from shared.errors import FatalError
from shared.network_parameters import parameters_of

GRADIENT_NORM = "gradient_norm"
"""Metric of the engine: norm of the gradient of the minibatch's mean loss, in the first update of each chunk."""


class NonFiniteError(FatalError):
    """Loss, gradient or parameters are no longer finite. The message is a sentence saying where."""

    def __init__(self, message: str, sums: dict[str, float]) -> None:
        super().__init__(message)
        self.sums = {name: repr(value) for name, value in sums.items()}
        """Sums over the updates of the round so far, as text, since JSON knows no infinity."""


class Engine(Generic[M]):
    """Flat parameters and optimizer moments, and the updates of a round.

    Attributes:
        round: the one that was begun last.
        source_device_bytes: GPU memory that the round source takes; 0 where frames are read from shared memory.
    """

    def __init__(
        self,
        config: Config,
        run_schedule: RunSchedule,
        online: Model,
        source: RoundSource[M],
        rule: UpdateRule[M],
        team: Team,
    ) -> None:
        """Updates of `online` by `rule` with the data of `source`, which the processes of `team` make together.

        The method's declaration names the metrics that `rule` gives, and `GRADIENT_NORM` if it is wanted, in the order
        in which they are recorded.
        """
        self._config, self._run_schedule, self._team = config, run_schedule, team
        self._online, self._source, self._rule = online, source, rule
        self._device, clip = online.params.device, config.algorithm.clip_gradient
        self.source_device_bytes = source.device_bytes
        self._optimizer = Optimizer(online, config.learn, clip, mean_gradient=rule.mean_gradient, team=team)
        online.gradient_into(self._optimizer.gradient)
        self._means = RoundMeans(run_schedule.method.metrics, config.learn.batch_size, self._device)
        self.round = self._done = self._planned = 0
        self._slices: deque[Event] = deque()
        self._side_stream = CudaSideStream(self._device) if is_gpu(self._device) else SideStream()
        self._graph_updates = min(config.machine.graph_updates, source.chunk_updates)
        self._graphs: Graphs | None = None
        if is_gpu(self._device) and self._graph_updates:
            source.capture()
            self._graphs = self._capture()

    # --- state

    @torch.inference_mode()
    def load(self, state: Mapping[str, NDArray[np.float32]] | None) -> None:
        """Take over the vectors of a snapshot, those of parameters float32[P], in canonical layout.

        A network that the snapshot lacks becomes the network that learns.

        Args:
            state: None: that of a new run, with fresh parameters from the seed, moments of zero and no priorities.
        """
        self._source.settle()
        self._team.sync()  # a member may still read what one of them writes now
        if self._team.written(1):
            given = self._fresh() if state is None else state
            for name, vector in self._state().items():
                source = "online" if name in self._rule.networks and name not in given else name
                self._online.pack(given[source], vector)
        self._team.sync()
        for model in (self._online, *self._rule.networks.values()):
            model.sync_copy()
        self._means.clear()
        self._source.load_state(state)

    @torch.inference_mode()
    def store(self, out: dict[str, NDArray[np.float32]]) -> None:
        """Write those vectors of a snapshot that `out` names into its float32 arrays."""
        state = self._state()
        for name in out.keys() & state.keys():
            self._online.unpack(state[name], out[name])
        self._source.store(out)

    @torch.inference_mode()
    def export_into(self, out: NDArray[np.float32]) -> None:
        """Write the online parameters into float32[Q], packed, to be published: all processes wait for them."""
        self._online.export_into(out)

    @torch.inference_mode()
    def update_target(self) -> None:
        """Make the target network equal to the online one; between rounds only.

        A chunk in preparation would need the old one.
        """
        assert self._done == self._planned, "the target network changes when all updates of a round are done"
        self._rule.update_target()

    def _fresh(self) -> Mapping[str, NDArray[np.float32]]:
        """The vectors with which a new run begins."""
        config = self._config
        online = initial_parameters(self._online.network, config.run.seed, config.learn.initial)
        return {"online": online, "moment1": np.zeros_like(online), "moment2": np.zeros_like(online)}

    def _state(self) -> dict[str, Tensor]:
        """The vectors of a snapshot that have the packed layout of the parameters, by name."""
        others = {name: model.params for name, model in self._rule.networks.items()}
        moments = {"moment1": self._optimizer.mean, "moment2": self._optimizer.square}
        return {"online": self._online.params, **others, **moments}

    # --- rounds

    @torch.inference_mode()
    def begin_round(self, round_: int, window_end: int) -> int:
        """Begin round `round_`, whose data are ticks before `window_end`; return its number of updates."""
        self._planned = self._run_schedule.updates_in(round_)
        if self._planned:
            self._rule.anneal(partial(self._run_schedule.annealed, round_))  # the targets may read what it sets
            self._optimizer.set_steps(self._run_schedule.updates_before(round_))
            self._optimizer.set_rate(self._run_schedule.learning_rate(round_, self._config.learn))
        self._source.begin_round(round_, window_end, self._planned)
        self.round, self._done = round_, 0
        self._means.clear()
        self._slices.clear()
        return self._planned

    def prefetch(self, round_: int, window_end: int) -> None:
        """Begin to prepare `begin_round` with these arguments, in parallel with other work; once is enough.

        Call it only after the last `run` of the present round, when all ticks before `window_end` are in the ring.
        """
        self._source.prefetch(round_, window_end)

    @torch.inference_mode()
    def run(self, count: int) -> None:
        """Do the next `count` updates of the round, at most those that are left. On a GPU this only submits them."""
        end, chunk = min(self._done + count, self._planned), self._source.chunk_updates
        while self._done < end:
            number, first = divmod(self._done, chunk)
            last = min(chunk, first + end - self._done)
            buffer = number % self._source.buffers
            if not first:  # once for each chunk: calls of members end at different updates, and loading waits for all
                self._source.load(number)
            if self._graphs is not None:
                last = min(last, first - first % self._graph_updates + self._graph_updates)
            if self._graphs is not None and (buffer, first, last) in self._graphs:
                self._graphs.replay((buffer, first, last))
            else:  # as where the rest of a round is no whole number of chunks: the same kernels, one by one
                self._updates(buffer, first, last)
            self._done += last - first
        if is_gpu(self._device):
            self._slices.append(accelerator_of(self._device).make_event())
            self._slices[-1].record()

    def unfinished_slices(self) -> int:
        """Count the slices that a GPU has not finished yet; always 0 on a CPU, which does them at once."""
        while self._slices and self._slices[0].query():
            self._slices.popleft()
        return len(self._slices)

    @torch.inference_mode()
    def end_round(self) -> RoundMetrics:
        """Means over the updates done since `begin_round`, whose results the source takes in.

        Raises:
            NonFiniteError: the loss, the gradient or a parameter is not finite; nothing may be published then.
        """
        self.check()
        self._source.finish_round(self._done)
        return self._means.means(self._done, -(-self._done // self._source.chunk_updates))

    def settle(self) -> None:
        """Wait for all that was begun.

        A process that ends with work under way may leave other processes hanging under MPS (NVIDIA's MPS
        documentation, "Client early termination").
        """
        try:
            self._source.settle()  # raises the error of a prefetch
        finally:
            if is_gpu(self._device):
                accelerator_of(self._device).synchronize(self._device)

    # --- faults and reports

    def check(self) -> None:
        """Raise `NonFiniteError` unless all is finite. A value that is not stays so in the sums: one look suffices."""
        values = torch.cat([self._means.totals(), self._online.params.sum()[None]]).tolist()
        if not np.isfinite(values).all():
            sums = dict(zip((*self._means.names, "parameters"), values, strict=True))
            raise NonFiniteError(
                f"In round {self.round}, within its first {self._done} updates, the learner's numbers ceased to be "
                f"finite (sums: {', '.join(f'{name} {value}' for name, value in sums.items())}); a new "
                "run with a smaller --learning-rate may help.",
                sums,
            )

    @torch.inference_mode()
    def checksum(self) -> int:
        """A number that follows from the bits of all parameters; another bit almost always gives another number."""
        return int(self._online.params.view(torch.int32).sum(dtype=torch.int64))

    @torch.inference_mode()
    def last_update(self) -> dict[str, NDArray[np.generic]]:
        """The data and the result of the last update: its minibatch, the `gradient` and the `parameters_after` it.

        The latter two are float32[P] in canonical layout.
        """
        number, index = divmod(self._done - 1, self._source.chunk_updates)
        arrays = self._source.minibatch(number % self._source.buffers, index).to_arrays()
        vectors = {"gradient": self._optimizer.gradient, "parameters_after": self._online.params}
        for name, vector in vectors.items():
            canonical = np.zeros(parameters_of(self._online.network).count, np.float32)
            self._online.unpack(vector, canonical)
            arrays[name] = canonical
        return arrays

    # --- updates

    def _capture(self) -> Graphs:
        """Graphs of the updates, by buffer, first and last update.

        Passes before a capture change parameters and sums (spectral norms of zeros are NaN); `load` overwrites them.
        """
        graphs = Graphs(self._device)
        chunk = self._source.chunk_updates
        for buffer in range(self._source.buffers):
            for first in range(0, chunk, self._graph_updates):
                last = min(first + self._graph_updates, chunk)
                graphs.capture((buffer, first, last), partial(self._updates, buffer, first, last))
        return graphs

    def _updates(self, buffer: int, first: int, last: int) -> None:
        """Updates [first, last) of the chunk in a buffer: forward, loss gradient by the outputs, backward, step."""
        online, optimizer = self._online, self._optimizer
        for index in range(first, last):
            minibatch, costly = self._source.minibatch(buffer, index), index == 0
            saved = online.forward(minibatch.blocks, 0, minibatch.extra_inputs, learns=True)
            output = self._rule.learn(saved.outputs.detach(), minibatch, costly_metrics=costly)
            if optimizer.gradient_scale != 1.0:
                output.gradient.mul_(optimizer.gradient_scale)
            online.backward(saved, output.gradient, self._side_stream)
            self._side_stream.settle()
            if costly and GRADIENT_NORM in self._means.names:
                self._means.add({GRADIENT_NORM: optimizer.norm()}, scale=1.0 / optimizer.mean_factor)
            optimizer.step()
            self._means.add(output.metrics)
