"""The replay as a round source: chunks of transitions, each ready when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from learner.engine.accelerator import accelerator_of, is_gpu
from learner.engine.interfaces import CHUNK_UPDATES, RoundSource
from learner.engine.prefetcher import Graphs, Prefetcher
from learner.losses.td_learning import TDLearning
from learner.replay.chunk import Chunk
from learner.replay.prioritized import PrioritizedSampler
from learner.replay.replay_frames import DeviceFrames, Frames, HostFrames
from learner.replay.sampling import Replay, UniformSampler
from learner.team.team import Team
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.memory.ring import Ring

DEVICE_SHARE = 0.8
"""Share of a GPU's free memory that the window may take."""


class ReplaySource(RoundSource[Chunk]):
    """Two buffers for chunks. For a GPU a second thread prepares one while the updates use the other.

    On a CPU the members of the team prepare a chunk together when it is asked for, each some parts of its rows.

    Attributes:
        chunks: the buffers; chunk `number` of a round is in `chunks[number % 2]`.
    """

    buffers = 2

    def __init__(
        self, ring: Ring, config: Config, learning: TDLearning, team: Team, wait_for_lanes: Callable[[int], None] | None
    ) -> None:
        """Transitions of `ring`, whose TD targets `learning` prepares; the rest as for `make_engine`.

        Raises:
            ConfigError: the frames do not fit where they were asked for.
        """
        learn, run_schedule = config.learn, ring.run_schedule
        self._seed, self._batch = config.run.seed, learn.batch_size
        self._learning = learning
        replay_on = "host" if config.algorithm.augment else config.machine.replay_on
        self._frames = make_frames(ring, learning.device, replay_on)
        self.device_bytes = DeviceFrames.nbytes(ring) if is_gpu(self._frames.device) else 0
        self.chunk_updates = min(CHUNK_UPDATES, -(-run_schedule.round_steps // learn.train_every))
        replay, updates = Replay(ring, self._frames, learn, self._seed, wait_for_lanes), self.chunk_updates
        kind = PrioritizedSampler if config.algorithm.prioritized else UniformSampler
        self._sampler = kind(replay, config.algorithm, updates, learning.device)
        self.chunks = [learning.make_chunk(self.chunk_updates, learn.batch_size, team) for _ in range(self.buffers)]
        self._minibatches = [[chunk.minibatch(i) for i in range(self.chunk_updates)] for chunk in self.chunks]
        self._actions = torch.arange(self.chunks[0].action_one_hot.shape[1], device=learning.device)
        self._prefetcher = Prefetcher(learning.device) if is_gpu(learning.device) else None
        self._team, count = team, 1 if self._prefetcher is not None else config.machine.learner_parts or 1
        rows = self.chunks[0].parts(count)
        self._rows = [rows[part] for part in team.written(count) if rows[part].stop > rows[part].start]
        self._prefetching: tuple[int, int] | None = None  # the round that is prefetched, and the end of its window
        self._round = self._planned = 0
        self._chunks_updated = 0  # chunks of the round whose errors the sampler knows
        self._graphs: Graphs | None = None

    # --- see `RoundSource`

    def capture(self) -> None:
        """Capture the computation of target values, by buffer."""
        self._graphs = Graphs(self._learning.device)
        for buffer, chunk in enumerate(self.chunks):
            self._graphs.capture(buffer, partial(self._learning.prepare, chunk))

    def begin_round(self, round_: int, window_end: int, updates: int) -> None:
        """Begin a round of `updates` updates, drawn from ticks before `window_end`."""
        self.settle()
        self._round, self._planned, self._chunks_updated = round_, updates, 0
        self._prefetching = None
        if updates:
            self._sampler.begin_round(round_, window_end)

    def prefetch(self, round_: int, window_end: int) -> None:
        """Have the second thread prepare a round, beside what the GPU still has to do; on a CPU do nothing."""
        if self._prefetcher is None or self._prefetching == (round_, window_end):
            return
        self._prefetching = round_, window_end
        # It may run beside the updates under way, which read chunks. Frames are gathered in the second thread's stream,
        # which has all gathers of this round already.
        self._prefetcher.submit(partial(self._sampler.prefetch, round_, window_end), after_main_stream=False)

    def load(self, number: int) -> None:
        """Wait for chunk `number`, and begin the next; on a CPU prepare it now."""
        if self._prefetcher is None:
            self._prepare(number)
        else:
            if not number:
                self._prefetcher.submit(partial(self._prepare, number))
            self._prefetcher.settle()
            if (number + 1) * self.chunk_updates < self._planned:
                self._prefetcher.submit(partial(self._prepare, number + 1))

    def minibatch(self, buffer: int, index: int) -> Chunk:
        """Views of the transitions of one update."""
        return self._minibatches[buffer][index]

    def finish_round(self, done: int) -> None:
        """Let the sampler know all errors of the round's `done` updates."""
        if not self._sampler.uses_errors:
            return
        self.settle()
        whole, rest = divmod(done, self.chunk_updates)
        self._update_priorities(whole)
        if rest:
            n, last = rest * self._batch, self.chunks[whole % self.buffers]
            self._sampler.update_priorities(last.tree_index[:n], last.td_error[:n])

    def settle(self) -> None:
        """Wait for the second thread, if there is one."""
        if self._prefetcher is not None:
            self._prefetcher.settle()

    def store(self, out: Mapping[str, NDArray[np.float32]]) -> None:
        """Write the priorities, if `out` names them."""
        self._sampler.store(out)

    def load_state(self, state: Mapping[str, NDArray[np.float32]] | None) -> None:
        """Take over the priorities. None: forget all errors."""
        self._sampler.load_state(state)

    # --- in the second thread, if there is one

    def _prepare(self, number: int) -> None:
        """Draw a chunk; gather the parts of this member, and compute their target values."""
        chunk = self.chunks[number % self.buffers]
        if self._sampler.uses_errors:
            self._update_priorities(number - 1)
        drawn = self._sampler.draw(number, chunk)
        chunk.draw_random_inputs(self._seed, self._round, number)
        for rows in self._rows:
            part, batch = chunk.part(rows), drawn.part(rows.start, rows.stop)
            self._frames.select(batch.rows, batch.frame_mask, part.blocks, part.augmentation)
            part.write_transitions(batch, self._actions)
            if self._graphs is None:
                self._learning.prepare(part)
            else:
                self._graphs.replay(number % self.buffers)
        self._team.sync()

    def _update_priorities(self, end: int) -> None:
        """Take in the errors of the chunks before `end`, all of whose updates are done."""
        for number in range(self._chunks_updated, end):
            chunk = self.chunks[number % self.buffers]
            self._sampler.update_priorities(chunk.tree_index, chunk.td_error)
        self._chunks_updated = max(self._chunks_updated, end)


def make_frames(ring: Ring, device: torch.device, replay_on: str) -> Frames:
    """Frames on the GPU ("device"), in shared memory ("host"), or on the GPU where the window fits ("auto").

    Raises:
        ConfigError: it does not fit, and was asked for.
    """
    free = accelerator_of(device).free_bytes(device) if is_gpu(device) else 0
    fits = DeviceFrames.nbytes(ring) <= DEVICE_SHARE * free
    if replay_on == "host" or (replay_on == "auto" and not fits):
        return HostFrames(ring)
    if is_gpu(device) and not fits:
        raise ConfigError(
            f"--replay-on device needs {DeviceFrames.nbytes(ring) / 1e9:.1f} GB on {device}, of which "
            f"{free / 1e9:.1f} GB are free; a smaller --replay-size fits, or pass --replay-on host."
        )
    return DeviceFrames(ring, device)
