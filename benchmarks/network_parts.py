"""Measurements of the learner and of inference, each in a process set up as in a run.

(Engine and policy compare their arithmetic with float32 when they are made.)
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from statistics import fmean

import numpy as np
import torch

from benchmarks.harness import Figure, WrongResult, seconds_per_call, work_rate
from benchmarks.memory_paths import SEED, fill
from learner.engine.engine import Engine
from learner.engine.optimizer import Optimizer
from learner.learner import Rounds, prepare
from learner.make_engine import make_engine
from learner.networks.modules import initial_parameters
from learner.networks.policy import Policy
from learner.team.member import MemberRounds
from learner.team.shared_team import SharedTeam
from learner.team.team import ALONE, Team
from shared.machine.subprocesses import die_with
from shared.memory.arena import memory_file
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Waiter
from shared.process.child import Doorbells

WINDOW_STEPS = 100_000
"""Largest replay buffer, in steps: 0.7 GB exceeds any cache, and a million steps would take long to fill."""
BATCHES = {"cpu": (2, 8, 32), "cuda": (32, 96, 192)}
"""Batch sizes of inference by device type; a run takes 32 on a CPU and all envs on a GPU."""
FOREVER = np.iinfo(np.int64).max


def rounds_without_others(
    memory: Memory, waiter: Waiter | None = None, team: Team = ALONE, kind: type[Rounds] = Rounds
) -> tuple[Engine, Rounds]:
    """The learner's own loop and its engine in a process that is no part of a run: nothing waits for a scribe."""
    board, plan = memory.board, memory.plan
    board.written[:] = FOREVER
    engine = make_engine(plan.config, plan.network, memory.ring, team=team)
    doorbells = Doorbells(tuple(Doorbell.create().fd for _ in range(len(plan.processes))), plan.processes)
    rounds = kind(memory, waiter or Waiter(board, Role.LEARNER, doorbells[Role.LEARNER]), engine, doorbells, team)
    rounds.restore()
    return engine, rounds


def memory_of_noise(plan: Plan) -> Memory:
    """The memory of a run in which all lanes have finished, with a replay buffer of noise."""
    prepare(plan.config)
    window = min(plan.config.learn.replay_size, max(WINDOW_STEPS, 2 * plan.run_schedule.round_steps))
    # There is no evaluator to read the versions; the rounds may exceed those of the run.
    config = plan.config.with_settings(eval_every_steps=0, replay_size=window)
    memory = Memory.create(Plan(config, plan.actions))
    fill(memory.ring, plan.actions)
    memory.board.lane_finished.publish_all(FOREVER)
    return memory


def update_speed(memory: Memory, rounds: Rounds, clock: Callable[[], float]) -> Callable[[float], float]:
    """A measurement: updates per second of the clock, over whole rounds. One round warms up."""
    schedule = memory.run_schedule
    numbers = count(schedule.first_learning_round + schedule.window_ticks // schedule.round_ticks)

    def run_round() -> int:
        number = next(numbers)
        rounds.run_round(number)
        return schedule.updates_in(number)

    run_round()
    return partial(work_rate, run_round, clock=clock)


def learner_alone(plan: Plan) -> Callable[[float], float]:
    """A worker's measurement: updates/s of the learner's own loop with its commits and all its members."""
    memory, members = memory_of_noise(plan), plan.config.machine.learner_members
    fd, doorbells = memory_file("learner"), [Doorbell.create() for _ in range(members)]
    rank = start_members(members)
    waiter = Waiter(memory.board, memory.plan.processes.learners[rank], doorbells[rank])
    team = SharedTeam(rank, fd, waiter, doorbells) if members > 1 else ALONE
    _, rounds = rounds_without_others(memory, waiter, team, MemberRounds if rank else Rounds)
    measure = update_speed(memory, rounds, time.perf_counter)
    if rank:  # it learns until the learner ends
        measure(FOREVER)
    return measure


def start_members(members: int) -> int:
    """Make copies of this worker until there are so many members; return the rank of each. They end together.

    An error of any member reaches the harness: each returns to where the worker was.
    """
    learner = os.getpid()
    for rank in range(1, members):
        # One that was stopped, as by a terminal, has not ended.
        signal.signal(signal.SIGCHLD, lambda *_: os.waitpid(-1, os.WNOHANG) != (0, 0) and os._exit(1))
        if os.fork() == 0:
            die_with(learner)
            return rank
    return 0


def part_of_update(plan: Plan, members: int) -> Callable[[float], tuple[float, float]]:
    """A worker's measurement: CPU seconds of a member's part of an update but the optimizer, and of that.

    The other members of its team compute nothing, and it waits for none of them. So its numbers are not those of a run.
    """
    memory, team, step, spent = memory_of_noise(plan), Team(), Optimizer.step, list[float]()

    def timed(optimizer: Optimizer) -> None:
        began = time.thread_time()
        step(optimizer)
        spent.append(time.thread_time() - began)

    Optimizer.step, team.size = timed, members  # type: ignore[assignment, method-assign]
    speed = update_speed(memory, rounds_without_others(memory, None, team, MemberRounds)[1], time.thread_time)

    def measure(seconds: float) -> tuple[float, float]:
        spent.clear()
        update = 1.0 / speed(seconds)
        return update - fmean(spent), fmean(spent)

    return measure


def inference(plan: Plan) -> Callable[[float], list[Figure]]:
    """A worker's measurement: from stacks of frames in memory to values, by batch size."""
    policies = {batch: make_policy(plan, batch) for batch in BATCHES[plan.config.machine.device.partition(":")[0]]}

    def measure(seconds: float) -> list[Figure]:
        name, times = f"inference, {plan.config.machine.precision}", seconds_per_call([*policies.values()], seconds)
        return [
            Figure(f"{name}, {batch}", batch / each, "rows/s", note=f"{1e6 * each / batch:,.0f} us a row")
            for batch, each in zip(policies, times, strict=True)
        ]

    return measure


def make_policy(plan: Plan, batch: int) -> Callable[[], object]:
    """A function that answers a batch of noise, and raises `WrongResult` if an answer differs from the first one."""
    prepare(plan.config)
    machine = plan.config.machine
    torch.set_num_threads(machine.inference_threads)
    policy = Policy(plan.network, torch.device(machine.device), machine.precision, batch)
    policy.load(initial_parameters(plan.network, SEED))
    shape = (batch, *plan.network.frames.observation)
    stacks = np.random.default_rng(SEED).integers(0, 256, shape, np.uint8)
    expected = policy.values(stacks).copy()

    def answer() -> None:
        if not np.array_equal(policy.values(stacks), expected):
            raise WrongResult("The same stacks were answered with other values.")

    return answer
