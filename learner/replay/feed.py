"""What the updates of a round learn from: its chunks, one after the other, each ready when it is asked for."""

from __future__ import annotations

from functools import partial

import torch

from learner.engine.host_transfer import upload
from learner.engine.prefetcher import Graphs, Prefetcher
from learner.losses.method import Method
from learner.losses.td_targets import Targets
from learner.networks.model import Model
from learner.replay.chunk import Chunk
from learner.replay.prioritized import Prioritized
from learner.replay.sampling import Batch, DeviceFrames, Frames, HostFrames, Replay
from shared.config.run_schedule import RunSchedule
from shared.config.settings import Algorithm, Learn
from shared.errors import ConfigError
from shared.memory.ring import Ring

CHUNK_UPDATES = 8
"""Most updates of a chunk. It fixes the shape in which target values are computed, so it touches their last bits."""

DEVICE_SHARE = 0.8
"""Share of a GPU's free memory that the window may take."""


class Feed:
    """Two buffers for chunks: while the updates use one, a second thread prepares the other.

    Attributes:
        chunks: the buffers; chunk `number` of a round is in `chunks[number % 2]`.
        updates: updates of a chunk.
        device_bytes: what the frames take of a GPU.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        run_schedule: RunSchedule,
        learn: Learn,
        algorithm: Algorithm,
        seed: int,
        device: torch.device,
        replay_on: str,
        model: Model,
        method: Method,
        targets: Targets,
    ) -> None:
        """See `shared.config.settings` for the settings; `model` and `method` are the online network's.

        Raises:
            ConfigError: the replay does not fit where it was asked for.
        """
        self._run_schedule, self._seed, self._device, self._batch = run_schedule, seed, device, learn.batch_size
        self._targets = targets
        self._frames = _frames(ring, device, replay_on)
        self.device_bytes = DeviceFrames.nbytes(ring) if self._frames.device.type == "cuda" else 0
        self._replay = Replay(
            ring,
            self._frames,
            batch=learn.batch_size,
            discount=learn.discount,
            seed=seed,
            clip=learn.clip_rewards,
        )
        self.updates = min(CHUNK_UPDATES, -(-run_schedule.round_steps // learn.train_every))
        like = partial(Chunk.of, model=model, method=method, n_step=run_schedule.n_step, device=device)
        self.chunks = [like(self.updates, learn.batch_size) for _ in range(2)]
        self.prioritized: Prioritized | None = None
        if algorithm.prioritized:
            self.prioritized = Prioritized(
                ring,
                self._replay,
                self._frames,
                algorithm=algorithm,
                updates=self.updates,
                batch=learn.batch_size,
                seed=seed,
            )
        self._actions = torch.arange(model.network.actions, device=device)
        self._ahead = Prefetcher(device)
        self._plan: Batch | None = None
        self._asked: tuple[int, int] | None = None  # the round that is prefetched, and the end of its window
        self._prefetched: tuple[int, int, Batch] | None = None
        self._round = self._planned = 0
        self._loaded = -1
        self._chunks_updated = 0  # chunks of the round whose errors the priorities know
        self._graphs: Graphs | None = None

    def capture(self) -> None:
        """On a GPU, and before anything runs beside it: capture what the target network is asked, by buffer."""
        self._graphs = Graphs(self._device)
        for buffer, chunk in enumerate(self.chunks):
            self._graphs.capture(buffer, partial(self._targets.prepare, chunk))

    def begin(self, round_: int, window_end: int, updates: int) -> None:
        """Begin a round of `updates` updates, drawn from ticks before `window_end`."""
        self.settle()
        self._round, self._planned, self._loaded, self._chunks_updated = round_, updates, -1, 0
        self._asked = None
        if not updates:
            return
        if self.prioritized is not None:
            self.prioritized.begin(round_, window_end)
            return
        if self._prefetched is None or self._prefetched[:2] != (round_, window_end):
            self._prefetch(round_, window_end)
        assert self._prefetched is not None, "it was just drawn"
        self._plan = self._prefetched[2]

    def prefetch(self, round_: int, window_end: int) -> None:
        """Begin to draw what `begin` would draw, beside what the GPU still has to do.

        What is drawn by priorities cannot be prefetched, but its frames can be brought.
        """
        if self._asked == (round_, window_end):
            return
        self._asked = round_, window_end
        # Nothing that the updates under way touch: frames are read here alone, and those of the coming round have
        # places of their own.
        if self.prioritized is not None:
            work = partial(self.prioritized.prefetch, window_end)
        else:
            work = partial(self._prefetch, round_, window_end)
        self._ahead.begin(work, after_all=False)

    def load(self, number: int) -> Chunk:
        """Chunk `number` of the round, which comes after `number - 1`; the next one is begun."""
        if self._loaded != number:
            if not self._ahead.begun:
                self._ahead.begin(partial(self._prepare, number))
            self._ahead.settle()
            if (number + 1) * self.updates < self._planned:
                self._ahead.begin(partial(self._prepare, number + 1))
            self._loaded = number
        return self.chunks[number % 2]

    def finish(self, done: int) -> None:
        """After `done` updates of the round: let the priorities know all that these taught."""
        if self.prioritized is None:
            return
        self.settle()
        whole, rest = divmod(done, self.updates)
        self._update_priorities(whole)
        if rest:
            n, last = rest * self._batch, self.chunks[whole % 2]
            self.prioritized.learn(last.places[:n], last.error[:n])

    def settle(self) -> None:
        """Let what was begun ahead come to its end."""
        self._ahead.settle()

    def _prefetch(self, round_: int, window_end: int) -> None:
        """Draw the transitions of a round, and bring them to where they are read."""
        updates = self._run_schedule.updates_in(round_)
        padded = -(-updates // self.updates) * self.updates
        plan = self._replay.plan(round_, window_end, updates, padded)
        self._prefetched = (round_, window_end, self._upload(plan))

    def _upload(self, batch: Batch) -> Batch:
        """Bring transitions to where they are read."""
        devices = [self._frames.device] * 2 + [self._device] * 3
        return Batch(*(upload(field, at) for field, at in zip(batch, devices, strict=True)))

    def _prepare(self, number: int) -> None:
        """In the second thread: draw and gather a chunk, and ask the target network about it."""
        chunk = self.chunks[number % 2]
        if self.prioritized is not None:
            self._update_priorities(number - 1)
            batch = self._upload(self.prioritized.draw(number, chunk.places, chunk.importance))
        else:
            assert self._plan is not None, "a round was begun"
            n = self.updates * self._batch
            batch = self._plan.part(number * n, (number + 1) * n)
        self._frames.select(batch, chunk.blocks)
        chunk.put(batch, self._actions)
        chunk.draw(self._seed, self._round, number)
        if self._graphs is None:
            self._targets.prepare(chunk)
        else:
            self._graphs.replay(number % 2)

    def _update_priorities(self, end: int) -> None:
        """Tell the priorities what the chunks before `end`, all their updates done, taught."""
        assert self.prioritized is not None
        for number in range(self._chunks_updated, end):
            chunk = self.chunks[number % 2]
            self.prioritized.learn(chunk.places, chunk.error)
        self._chunks_updated = max(self._chunks_updated, end)


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
