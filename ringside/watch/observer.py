"""The observer: makes a `Status` from shared memory, without writing.

A read may be slightly stale: the next one corrects it, and only the display depends on it.

It warns of a network that no longer distinguishes screens, a policy that no longer explores, and returns outside the
support of c51.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ringside.records.bottleneck import NEWEST, Sample, find_bottleneck, load_between
from ringside.records.metric_names import displayed
from ringside.records.metrics import EvaluationStatus
from ringside.records.summary import run_counters
from ringside.watch.status import CheckpointStatus, Status, planned
from shared.config.method_declaration import C51Settings
from shared.files import disk_trouble
from shared.machine.facts import usable_cores
from shared.memory.run_memory import Memory

PATIENCE_UPDATES = 20_000
"""Earlier, a healthy network may give all screens the same value (docs/lab/2026-11-pong.md)."""
ALIKE = 2e-3
"""Ratio of max Q's standard deviation over a batch to its mean that counts as zero. Dead networks had less than 5e-4,
healthy networks more than 1e-2."""
LEAST_BATCH = 8
"""Smaller batches may contain only similar screens."""
COLLAPSED = 0.01
"""Share of the entropy of uniform play below which a policy counts as fixed."""
EARLY = 0.1
"""Share of a run before which a policy should not be fixed; later it may have learned what to do."""

OUTSIDE = 0.01
"""Share of the returns outside the support from which a warning appears."""


WINDOW_SECONDS = 60.0
"""Window of speeds and busy shares: several rounds, so that phases of a round average out."""
SAMPLE_SECONDS = 1.0
"""Interval between samples."""


class Observer:
    """Observer of one run; keeps some samples for speeds."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._config = config = memory.plan.config
        self._cores = usable_cores()
        self._planned = planned(config, memory.run_schedule, config.run.run_dir)
        self._first_committed: int | None = None
        self._first_steps = 0
        self._collapsed = False
        newest = Sample(memory, memory.board.samples[NEWEST])
        self._prepared = bool(newest.at)
        # Where the run is under way, its newest record gives a speed at once.
        self._samples = deque([newest] if newest.at else [])

    def observe(self) -> Status:
        """The current status. Costs some hundred microseconds."""
        board, run_schedule = self._memory.board, self._memory.run_schedule
        now = time.monotonic()
        prepared = bool(board.prepared[0])  # read before the steps that it guards
        current = Sample.take(self._memory, round(now * 1e9))
        if not self._samples or current.at - self._samples[-1].at >= SAMPLE_SECONDS * 1e9:
            self._keep(current, prepared)
        load = load_between(self._memory, self._samples[0], self._samples[-1])
        committed, steps, updates = max(0, board.committed), current.steps, current.updates
        if prepared and self._first_committed is None:
            self._first_committed = committed
        speed = load.steps_per_second
        known, stops_at, episodes = self._figures(), board.stops_at, int(board.episodes[0])
        return replace(
            self._planned,
            committed=committed,
            steps=steps,
            elapsed=run_counters(self._memory)["seconds"] if board.begun_ns[0] else None,
            stops_at=None if stops_at is None else stops_at * run_schedule.round_steps,
            stopping_for=None if stops_at is None else now - float(board.stop_asked_ns[0]) / 1e9,
            time_left=(self._planned.total_steps - steps) / speed if speed else None,
            time_left_at_least=self._pace_may_fall(committed),
            steps_per_second=speed,
            updates=updates,
            updates_per_second=load.updates_per_second,
            can_be_saved=board.committed >= 0 or self._config.run.resume is not None,
            epsilon=run_schedule.shown_epsilon(steps // run_schedule.envs, self._config.explore),
            episodes=episodes,
            mean_return_100=_known(board.mean_return_100[0]),
            best_return=_known(board.best_return[0]),
            running_return=None if episodes else self._running_return(),
            metrics={name: known[name] for name in displayed(self._memory.plan.method.metrics)},
            evaluation=self._evaluation(),
            checkpoint=self._checkpoint(),
            roles=load.roles,
            usable_cores=self._cores,
            others=load.others,
            stolen=load.stolen,
            bottleneck=find_bottleneck(load, self._cores),
            warnings=tuple(self._warnings(known, steps, updates)),
        )

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
        number = self._memory.run_schedule.record_number(self._memory.board.newest_record)
        return {name: _known(value) for name, value in self._memory.board.metrics_of(number).items()}

    def _pace_may_fall(self, committed: int) -> bool:
        """True until a round with learning is complete: lanes play ahead of the learner, then wait for it."""
        run_schedule = self._memory.run_schedule
        if not run_schedule.updates_before(run_schedule.rounds):
            return False
        return committed <= max(self._first_committed or 0, run_schedule.first_learning_round)

    def _evaluation(self) -> EvaluationStatus | None:
        """The newest evaluation."""
        steps, episodes, mean, best = self._memory.board.evaluation.tolist()
        return None if math.isnan(mean) else EvaluationStatus(int(steps), int(episodes), mean, best)

    def _running_return(self) -> float | None:
        """Mean return so far of the episodes in play."""
        returns, done = self._memory.ring.field["episode_return"], self._memory.board.lane_done
        newest = done.values - 1
        lanes = np.flatnonzero(newest >= 0)
        return float(returns[lanes, newest[lanes] % returns.shape[1]].mean()) if len(lanes) else None

    def _checkpoint(self) -> CheckpointStatus | None:
        """Newest checkpoint since the last start."""
        size, seconds, steps, _ = self._memory.board.checkpoint.tolist()
        return None if math.isnan(size) else CheckpointStatus(int(steps), int(size), seconds)

    def _warnings(self, known: dict[str, float | None], steps: int, updates: int) -> Iterator[str]:
        """Sentences about the disk, about what makes the run inexact, and about learning that has probably died."""
        board, run, gateways = self._memory.board, self._config.run, self._memory.gateways
        if board.trouble[0]:
            queue_full = self._memory.evaluations.full
            yield disk_trouble.warning(int(board.trouble[0]), run.run_dir, queue_full=queue_full)
        if gateways is not None and gateways.inexact_step >= 0:
            yield (
                f"Since step {gateways.inexact_step:,} lanes were played on nodes that do not compute the same bits as "
                "this machine: the weights are not those of one machine."
            )
        if board.env_inexact_since >= 0:
            yield (
                f"Since step {self._memory.inexact_since:,} {self._config.play.env} is known not to repeat itself: the "
                "weights cannot be computed again, and a kill or a resume cuts its episodes."
            )
        elif board.inexact_since[0] >= 0:
            yield (
                f"Since step {int(board.inexact_since[0]):,} this run computes on another processor, or with other "
                "libraries, precision or number of threads, or it lacks its last round (--no-checkpoint-replay): it "
                "continues, but not to the same last bit (logs/scribe.log says why)."
            )
        settings = self._config.algorithm.settings
        if self._memory.plan.method.head == "q":
            if self._screens_are_alike(known, updates):
                yield (
                    f"After {PATIENCE_UPDATES:,} updates and more, Q is still the same number for all screens "
                    "(q_spread in metrics.jsonl): the network has probably died (no unit that sees the screen is "
                    "active). Start a new run with a smaller --learning-rate or another --seed."
                )
        elif self._policy_is_fixed(known.get("entropy"), steps):
            remedy = "a larger --entropy-weight, " if hasattr(settings, "entropy_weight") else ""
            yield (
                f"Before {EARLY:.0%} of the run, the entropy of the policy fell below {COLLAPSED:.0%} of that of "
                "uniform play (entropy in metrics.jsonl): the agent takes nearly always the same action in a state, "
                f"and explores no more. Start a new run with {remedy}a smaller --learning-rate or another --seed."
            )
        if isinstance(settings, C51Settings) and board.outside_support[0] >= OUTSIDE:
            clip = "" if self._config.learn.clip_rewards else ", or --clip-rewards,"
            yield (
                "Returns leave the support (outside_support in metrics.jsonl): what lies beyond --v-min "
                f"{settings.v_min:g} or --v-max {settings.v_max:g} counts as its end, so actions that lead there look "
                f"alike. A wider support{clip} would tell them apart."
            )

    def _screens_are_alike(self, known: dict[str, float | None], updates: int) -> bool:
        """True if the network gives all screens the same values.

        If all values are close to 0, as before the first reward of a game, the ratio is not small.
        """
        mean_q, q_spread = known.get("mean_q"), known.get("q_spread")
        if mean_q is None or q_spread is None or updates < PATIENCE_UPDATES:
            return False
        return self._memory.run_schedule.update_samples >= LEAST_BATCH and q_spread < ALIKE * abs(mean_q)

    def _policy_is_fixed(self, entropy: float | None, steps: int) -> bool:
        """True if the policy hardly explores since early in the run; it lasts until the policy explores."""
        is_early = self._collapsed or steps < EARLY * self._planned.total_steps
        fixed = COLLAPSED * math.log(self._memory.plan.actions)
        self._collapsed = is_early and entropy is not None and entropy < fixed
        return self._collapsed


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
