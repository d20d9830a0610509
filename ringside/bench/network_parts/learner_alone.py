"""The learner alone: its rounds on a replay buffer of noise, in a process set up as in a run.

Its bound is also measured: the forward and backward passes of its updates, one after the other. A learner computes the
targets of later updates in parallel, so it can exceed the bound if cores or the GPU have spare capacity.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from multiprocess.connection import Connection

from ringside.bench.harness.child_process import Child
from ringside.bench.harness.tables import WrongResult
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Waiter

WINDOW_STEPS = 100_000
"""Largest replay buffer, in steps: 0.7 GB exceeds any cache, and a million steps would take long to fill."""
PACE_UPDATES = 64
"""Fewest updates in a round of `learner_pace` on a GPU; fewer would take less time than the commit."""
BOUND_SHARE = 0.25
"""Time for measuring the bound, as a share of the learner's time."""
SLOWEST_ROUNDS = 8
"""Most rounds that a measurement waits for if one round takes longer than planned."""
SLOWEST = 1.0
"""Updates/s below which the bound is not measured, as a few chunks would take minutes."""


class Alone(NamedTuple):
    """Figures of the learner alone."""

    updates_per_second: float
    bound_per_second: float | None
    """Updates/s of the passes; None if not requested, too slow to measure, or on-policy."""


def learner_alone(plan: Plan, seconds: float, *, bounded: bool = True, round_seconds: float = 0.0) -> Alone:
    """Measure the learner for `seconds` with the settings of a run; then, if `bounded`, its bound.

    `round_seconds`: expected time of a round, if it may exceed `seconds`.

    Raises:
        CannotRun: there is too little memory, or the process ended early.
        WrongResult: a number is not finite, or the number of updates is wrong.
    """
    with Child(_learn, (plan, seconds, bounded)) as child:
        return Alone(*child.answer(max(seconds * (1 + BOUND_SHARE), SLOWEST_ROUNDS * round_seconds)))


def learner_pace(plan: Plan, seconds: float) -> float:
    """Steps/s at which the learner alone keeps up, measured in short rounds, or in those of an on-policy method.

    Raises as `learner_alone`.
    """
    learn, envs = plan.config.learn, plan.config.play.envs
    if not plan.method.on_policy:
        least = 1 if plan.config.machine.device == "cpu" else PACE_UPDATES
        plan = Plan(plan.config.with_settings(round_steps=max(envs, least * learn.train_every)), plan.actions)
    return learner_alone(plan, seconds, bounded=False).updates_per_second * plan.run_schedule.steps_per_update


def _learn(connection: Connection, plan: Plan, seconds: float, bounded: bool) -> None:
    speed = _updates_per_second(plan, seconds)
    bounded = bounded and speed >= SLOWEST and not plan.method.on_policy
    connection.send((speed, _bound(plan, BOUND_SHARE * seconds) if bounded else None))


def _updates_per_second(plan: Plan, seconds: float) -> float:
    """Updates/s of the learner's own loop with its commits, over whole rounds, at least one, after one as warm-up.

    All lanes are marked as finished beforehand. This process must not have used torch before.

    Raises:
        WrongResult: the number of updates is wrong.
    """
    from learner.commits import Commits
    from learner.learner import Rounds, prepare
    from learner.make_engine import make_engine
    from ringside.bench.system_parts.memory_paths import fill

    config = plan.config.with_settings(eval_every_steps=0)  # there is no evaluator to read the versions
    prepare(config)
    window = min(config.learn.replay_size, max(WINDOW_STEPS, 2 * plan.run_schedule.round_steps))
    memory = Memory.create(Plan(replace(config, learn=replace(config.learn, replay_size=window)), plan.actions))
    fill(memory.ring, plan.actions)
    board, run_schedule = memory.board, memory.run_schedule
    # The rounds may exceed those of the run, and there is no scribe.
    board.written[:] = np.iinfo(np.int64).max
    board.lane_finished.publish_all(np.iinfo(np.int64).max)
    engine = make_engine(memory.plan.config, memory.plan.network, memory.ring)
    waiter = Waiter(board, Role.LEARNER, Doorbell.create())
    rounds = Rounds(memory, waiter, engine, Commits(memory, waiter, [], Doorbell.create()))
    rounds.restore()
    end = first = run_schedule.first_learning_round + run_schedule.window_ticks // run_schedule.round_ticks + 1
    rounds.run_round(first - 1)
    before, began = int(board.updates[0]), time.perf_counter()
    while True:
        rounds.run_round(end)
        end += 1
        if (took := time.perf_counter() - began) >= seconds:
            break
    asked = run_schedule.updates_before(end) - run_schedule.updates_before(first)
    if (done := int(board.updates[0]) - before) != asked:
        raise WrongResult(f"The learner did {done:,} updates instead of {asked:,}.")
    engine.settle()  # other threads must not use the device while a graph is captured
    return done / took


def _bound(plan: Plan, seconds: float) -> float:
    """Updates/s of the passes: target values of a chunk, then its updates."""
    import torch

    from learner.engine.interfaces import CHUNK_UPDATES
    from ringside.bench.harness.devices import Device
    from ringside.bench.harness.interleaved import seconds_per_call
    from ringside.bench.network_parts.passes import Passes

    at, precision = torch.device(plan.config.machine.device), plan.config.machine.precision
    device = Device(at, [precision])
    body = torch.inference_mode()(Passes(plan, at, precision).run)
    (each,) = seconds_per_call([device.captured(body)], seconds, device.settle)
    return CHUNK_UPDATES / each
