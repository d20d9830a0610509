"""Looking on: makes a `Status` of the shared memory. Reads only.

Every read may be a moment stale: the next look is right, and nothing but the display hangs on it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import NamedTuple

import numpy as np
import psutil

from shared.board import METRIC_SPANS, METRICS, Phase, Role
from shared.config import FRAME_SKIP
from shared.machine import usable_cores
from shared.memory import Memory
from shared.process import role_name
from watch.status import EvaluationStatus, RoleStatus, Status, verdict

WINDOW_SECONDS = 60.0
"""Over how long speeds and busy shares are taken: some rounds, so that their rhythm does not show."""
SAMPLE_SECONDS = 1.0
"""Between two samples."""


class _Sample(NamedTuple):
    """The growing numbers of the board at one moment."""

    at: float
    steps: int
    updates: int
    busy: np.ndarray
    waited: np.ndarray
    barrier: int
    cpu: dict[str, float]


class Observer:
    """Looks at one run; remembers some samples, for speeds."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._config = memory.plan.config
        self._cores = usable_cores()
        self._begun = time.monotonic()
        self._samples: deque[_Sample] = deque()
        self._first_steps = 0
        self._prepared = False
        self._best_evaluation = -math.inf

    def look(self) -> Status:
        """The run now. Costs some hundred microseconds, and once a second some milliseconds."""
        board, sizes, config = self._memory.board, self._memory.sizes, self._config
        now = time.monotonic()
        prepared = bool(board.prepared[0])  # read before the steps that it says are there
        steps = int(board.lane_done.sum()) * sizes.lane_envs
        updates = int(board.updates[0])
        if not self._samples or now - self._samples[-1].at >= SAMPLE_SECONDS:
            self._take(now, prepared, steps, updates)
        newest, oldest = self._samples[-1], self._samples[0]
        seconds = newest.at - oldest.at
        speed = pace = None
        if seconds > 0:
            # A lane that is played again goes back for a moment.
            speed = max(0, newest.steps - oldest.steps) / seconds
            pace = max(0, newest.updates - oldest.updates) / seconds
        total = sizes.rounds * sizes.round_steps
        learning_steps = steps - sizes.first_learning_round * sizes.round_steps
        learning = updates > 0
        roles = self._roles(oldest, newest)
        committed = max(0, board.committed)
        known = self._figures(committed)
        assert config.run.run_dir is not None, "the configuration is not resolved"
        return Status(
            game=config.play.env or config.play.game,
            protocol=config.play.protocol,
            schedule=config.learn.schedule,
            run_dir=config.run.run_dir,
            total_steps=total,
            rounds=sizes.rounds,
            samples_asked=config.learn.batch_size / config.learn.train_every,
            steps=steps,
            frames=steps * FRAME_SKIP,
            committed=committed,
            elapsed=now - self._begun,
            time_left=(total - steps) / speed if speed else None,
            steps_per_second=speed,
            frames_per_second=speed * FRAME_SKIP if speed is not None else None,
            updates=updates,
            updates_per_second=pace,
            samples_per_step=updates * config.learn.batch_size / learning_steps
            if learning and learning_steps > 0
            else None,
            learning=learning,
            epsilon=sizes.epsilon(steps // sizes.envs, config.explore),
            episodes=int(board.episodes[0]),
            mean_return_100=_known(board.mean_return_100[0]),
            best_return=_known(board.best_return[0]),
            loss=known["loss"],
            mean_q=known["mean_q"],
            evaluation=self._evaluation(),
            roles=roles,
            verdict=verdict(
                roles,
                learning=learning,
                usable_cores=self._cores,
                barrier=(newest.barrier - oldest.barrier) / 1e9 / seconds if seconds > 0 else None,
            ),
            warnings=self._warnings(),
        )

    def _take(self, now: float, prepared: bool, steps: int, updates: int) -> None:
        """Keep a sample, and forget those that are of no use any more."""
        board = self._memory.board
        if not self._prepared:
            # A run that resumes takes up its clock in one leap, which is no speed.
            self._samples.clear()
            self._first_steps = steps
            self._prepared = prepared
        sample = _Sample(
            now, steps, updates, board.busy_ns.copy(), board.waited_ns.copy(), int(board.barrier_ns[0]), _cpu_seconds()
        )
        self._samples.append(sample)
        # Neither what is too old nor the time before the first step belongs to the speed.
        while now - self._samples[0].at > WINDOW_SECONDS or (
            len(self._samples) > 2 and self._samples[0].steps == self._samples[1].steps == self._first_steps
        ):
            self._samples.popleft()

    def _roles(self, old: _Sample, new: _Sample) -> tuple[RoleStatus, ...]:
        """Every process of the run."""
        memory, board = self._memory, self._memory.board
        absent = set() if memory.plan.evaluation_episodes else {Role.EVALUATOR}
        busy, waited = new.busy - old.busy, new.waited - old.waited
        roles = []
        for process in range(len(board.phase)):
            if process in absent:
                continue
            name = role_name(process)
            phase = Phase(int(board.phase[process]))
            cores = None
            if new.at > old.at and name in new.cpu:
                # A new incarnation begins to count at zero.
                cores = max(0.0, new.cpu[name] - old.cpu.get(name, 0.0)) / (new.at - old.at)
            roles.append(
                RoleStatus(
                    name=name,
                    state=phase.name.lower(),
                    busy=_share(phase, int(busy[process]), int(waited[process]), round((new.at - old.at) * 1e9)),
                    cores=cores,
                    restarts=int(board.restarts[process]),
                )
            )
        return tuple(roles)

    def _figures(self, committed: int) -> dict[str, float | None]:
        """The learner's figures of the newest span."""
        span = committed // self._memory.sizes.snapshot_rounds - 1
        row = self._memory.board.metrics[span % METRIC_SPANS]
        return {name: _known(value) for name, value in zip(METRICS, row, strict=True)}

    def _evaluation(self) -> EvaluationStatus | None:
        """The newest evaluation that was played to its end."""
        queue = self._memory.evaluations
        done = int(queue.done[0])
        if not self._memory.plan.evaluation_episodes or not done:
            return None
        place = (done - 1) % len(queue.returns)
        mean = float(queue.returns[place].mean())
        self._best_evaluation = max(self._best_evaluation, mean)
        return EvaluationStatus(int(queue.step[place]), len(queue.returns[place]), mean, self._best_evaluation)

    def _warnings(self) -> tuple[str, ...]:
        if self._memory.board.trouble[0]:
            return ("The scribe cannot write (see logs/scribe.log). Training goes on; it is tried again.",)
        return ()


def _share(phase: Phase, busy: int, waited: int, window: int) -> float | None:
    """Share of a window in which a process worked, from what it counted in nanoseconds; None: it has not begun.

    Who waits counts often. What is missing to the whole window is one long piece of work, not counted yet.
    """
    if phase in (Phase.WORKING, Phase.REDOING):
        busy += max(0, window - busy - waited)
    return busy / (busy + waited) if busy + waited else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _cpu_seconds() -> dict[str, float]:
    """CPU time of this process's children by role; their titles are `ringside ROLE`."""
    seconds = {}
    for child in psutil.Process().children():
        try:
            title, times = " ".join(child.cmdline()), child.cpu_times()
        except psutil.Error:
            # It ended between the two looks.
            continue
        program, _, role = title.strip().partition(" ")
        if program == "ringside":
            seconds[role] = times.user + times.system
    return seconds
