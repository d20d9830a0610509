"""The observer: makes a `Status` from shared memory, without writing.

A read may be slightly stale: the next one corrects it, and only the display depends on it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ringside.load.board_samples import NEWEST, Sample, load_between
from ringside.recording.metric_names import displayed
from ringside.recording.summary import run_counters
from ringside.recording.totals import EvaluationStatus, Totals
from ringside.watch.health import policy_collapsed, returns_outside, screens_alike
from ringside.watch.status import CheckpointStatus, Status, planned
from shared.config.method_declaration import C51Settings
from shared.files import disk_trouble
from shared.machine.facts import usable_cores
from shared.memory.parts.board import METRIC_RECORDS, Phase
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory

WINDOW_SECONDS = 60.0
"""Window of speeds and busy shares: several rounds, so that phases of a round average out."""
SAMPLE_SECONDS = 1.0
"""Interval between samples."""


@dataclass(frozen=True)
class Restored:
    """State of a resumed run, from its checkpoint and records."""

    boundary: int
    totals: Totals


class _Totals(NamedTuple):
    """Fields of `Totals` that the scribe publishes."""

    episodes: int
    mean_return_100: float | None
    best_return: float | None
    evaluation: EvaluationStatus | None


class _Progress(NamedTuple):
    """Rounds, steps and updates that are done, and statistics of episodes."""

    committed: int
    steps: int
    updates: int
    totals: _Totals | Totals


class Observer:
    """Observer of one run; keeps some samples for speeds."""

    def __init__(self, memory: Memory, restored: Restored | None = None) -> None:
        """`restored`: shown until the scribe has published the same values."""
        self._restored = restored
        self._first_committed: int | None = None
        self._memory = memory
        self._config = memory.plan.config
        self._cores = usable_cores()
        self._planned = planned(self._config, memory.run_schedule, self._config.run.run_dir)
        self._samples: deque[Sample] = deque()
        self._first_steps = 0
        self._prepared = False
        self._elapsed: float | None = None
        self._collapsed = False
        newest = Sample.kept(memory, NEWEST)
        if newest.at:  # the run is under way: its newest record gives a speed at once
            self._samples.append(newest)
            self._prepared = True

    def observe(self) -> Status:
        """The current status. Costs some hundred microseconds."""
        board, run_schedule, config = self._memory.board, self._memory.run_schedule, self._config
        now = time.monotonic()
        prepared = bool(board.prepared[0])  # read before the steps that it guards
        current = Sample.take(self._memory, round(now * 1e9))
        if not self._samples or current.at - self._samples[-1].at >= SAMPLE_SECONDS * 1e9:
            self._keep(current, prepared)
        load = load_between(self._memory, self._samples[0], self._samples[-1], self._cores)
        committed, steps, updates, totals = self._progress(current, prepared)
        speed, total = load.activity.steps_per_second, self._planned.total_steps
        learning_steps = steps - run_schedule.steps_without_learning
        learning = updates > 0
        frames = config.play.frames_per_step
        known, stops_at = self._figures(), board.stops_at
        return replace(
            self._planned,
            steps=steps,
            frames=None if frames is None else steps * frames,
            committed=committed,
            elapsed=self._seconds(),
            stops_at=None if stops_at is None else stops_at * run_schedule.round_steps,
            stopping_for=None if stops_at is None else now - float(board.stop_asked_ns[0]) / 1e9,
            time_left=(total - steps) / speed if speed else None,
            time_left_at_least=self._pace_may_fall(committed),
            steps_per_second=speed,
            frames_per_second=None if frames is None or speed is None else speed * frames,
            updates=updates,
            updates_per_second=load.updates_per_second,
            samples_per_step=updates * run_schedule.update_samples / learning_steps
            if learning and learning_steps > 0
            else None,
            can_be_saved=board.committed >= 0 or self._restored is not None,
            learning=learning,
            learning_begins=run_schedule.learning_begins if run_schedule.updates_before(run_schedule.rounds) else None,
            epsilon=run_schedule.epsilon(steps // run_schedule.envs, config.explore)
            if run_schedule.method.has_epsilon
            else None,
            episodes=totals.episodes,
            mean_return_100=totals.mean_return_100,
            best_return=totals.best_return,
            running_return=None if totals.episodes else self._running_return(),
            metrics={name: known[name] for name in displayed(self._memory.plan.method.metrics)},
            evaluation=totals.evaluation,
            checkpoint=self._checkpoint(),
            roles=load.activity.roles,
            usable_cores=self._cores,
            others=load.activity.others,
            stolen=load.activity.stolen,
            bottleneck=load.bottleneck,
            warnings=self._warnings(known, steps, updates),
        )

    def _progress(self, current: Sample, prepared: bool) -> _Progress:
        """The progress of the run; before a resumed run is prepared, that of its checkpoint."""
        committed, run_schedule = max(0, self._memory.board.committed), self._memory.run_schedule
        if not prepared and self._restored is not None:
            boundary, totals = self._restored.boundary, self._restored.totals
            steps, updates = boundary * run_schedule.round_steps, run_schedule.updates_before(boundary)
            return _Progress(boundary, steps, updates, totals)
        if prepared and self._first_committed is None:
            self._first_committed = committed
        return _Progress(committed, current.steps, current.updates, self._totals())

    def _keep(self, sample: Sample, prepared: bool) -> None:
        """Append a sample and drop those outside the window."""
        if not self._prepared:
            # A resumed run restores its clock in one jump, which is no speed.
            self._samples.clear()
            self._first_steps = sample.steps
            self._prepared = prepared
        self._samples.append(sample)
        # The window excludes old samples, and the time before the first step, when processes prepare.
        while len(self._samples) > 1 and (
            sample.at - self._samples[0].at > WINDOW_SECONDS * 1e9
            or self._samples[0].steps == self._first_steps
            # A run is faster before it learns.
            or (len(self._samples) > 2 and sample.updates and not self._samples[0].updates)
        ):
            self._samples.popleft()

    def _figures(self) -> dict[str, float | None]:
        """The learner's metrics of the newest record."""
        board, run_schedule = self._memory.board, self._memory.run_schedule
        row = board.metrics[run_schedule.record_number(board.newest_record) % METRIC_RECORDS]
        return {name: _known(value) for name, value in zip(board.metric_names, row, strict=True)}

    def _pace_may_fall(self, committed: int) -> bool:
        """True until a round with learning is complete: lanes play ahead of the learner, then wait for it."""
        run_schedule = self._memory.run_schedule
        if not run_schedule.updates_before(run_schedule.rounds):
            return False
        return committed <= max(self._first_committed or 0, run_schedule.first_learning_round)

    def _totals(self) -> _Totals:
        """Totals that the scribe has published on the board."""
        board = self._memory.board
        steps, episodes, mean, best = board.evaluation.tolist()
        return _Totals(
            int(board.episodes[0]),
            _known(board.mean_return_100[0]),
            _known(board.best_return[0]),
            None if math.isnan(mean) else EvaluationStatus(int(steps), int(episodes), mean, best),
        )

    def _running_return(self) -> float | None:
        """Mean return so far of the episodes in play."""
        returns, done = self._memory.ring.field["episode_return"], self._memory.board.lane_done
        newest = done.values - 1
        lanes = np.flatnonzero(newest >= 0)
        return float(returns[lanes, newest[lanes] % returns.shape[1]].mean()) if len(lanes) else None

    def _seconds(self) -> float | None:
        """Seconds of the run; None: it has not begun. They end with the summary, which the scribe writes last."""
        if self._memory.board.begun_ns[0] and self._memory.board.phase[Role.SCRIBE] != Phase.DONE:
            self._elapsed = run_counters(self._memory)["seconds"]
        return self._elapsed

    def _checkpoint(self) -> CheckpointStatus | None:
        """Newest checkpoint since the last start."""
        size, seconds, steps, _ = self._memory.board.checkpoint.tolist()
        return None if math.isnan(size) else CheckpointStatus(int(steps), int(size), seconds)

    def _warnings(self, known: dict[str, float | None], steps: int, updates: int) -> tuple[str, ...]:
        board, run_dir = self._memory.board, self._config.run.run_dir
        found = []
        if board.trouble[0]:
            queue_full = self._memory.evaluations.full
            found.append(disk_trouble.warning(int(board.trouble[0]), run_dir, queue_full=queue_full))
        if self._memory.gateways is not None and (since := self._memory.gateways.inexact_step) >= 0:
            found.append(
                f"Since step {since:,} lanes were played on nodes that do not compute the same bits as this "
                "machine: the weights are not those of one machine."
            )
        if board.env_inexact_since >= 0:
            found.append(
                f"Since step {self._memory.inexact_since:,} {self._config.play.env} is known not to repeat itself: the "
                "weights cannot be computed again, and a kill or a resume cuts its episodes."
            )
        elif board.inexact_since[0] >= 0:
            found.append(
                f"Since step {int(board.inexact_since[0]):,} this run computes on another device, or with another "
                "precision or number of threads, than before, or it lacks its last round (--no-checkpoint-replay): it "
                "continues, but not to the same last bit."
            )
        support = self._config.algorithm.settings
        method, share = self._memory.plan.method, steps / self._planned.total_steps
        if method.head == "q":
            batch = self._memory.run_schedule.update_samples
            judged = [screens_alike(known.get("mean_q"), known.get("q_spread"), updates, batch)]
        else:
            has_weight = hasattr(support, "entropy_weight")
            actions = self._memory.plan.actions
            collapsed = policy_collapsed(
                known.get("entropy"), actions, share, has_weight=has_weight, collapsed_before=self._collapsed
            )
            self._collapsed = collapsed is not None
            judged = [collapsed]
        if isinstance(support, C51Settings):
            outside, clipped = _known(board.outside_support[0]), self._config.learn.clip_rewards
            judged.append(returns_outside(outside, support.v_min, support.v_max, clipped=clipped))
        return (*found, *filter(None, judged))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
