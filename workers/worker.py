"""The process of some workers: it plays their lanes, computes their gradients, and applies them.

A round is a gradient of each worker. With `ordered` it has two barriers, which are words in memory: `computed` of every
worker, then `applied` of every process. With `async` a process may be some rounds ahead of the last commit; all wait
for each other at snapshots, at evaluations and at the end. Process 0 also commits. A process that dies does its
part of the round again, but with `async` a gradient that was not yet applied is lost (shared/README.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from actors.lane import Lane
from actors.lanes import Lanes
from actors.make_env import make_env
from learner.answers import Answers
from learner.commits import Commits
from learner.engine.device import prepare_torch
from learner.networks.arithmetic_check import check_arithmetic
from learner.networks.module_model import make_model
from learner.networks.policy import Policy
from shared.errors import FatalError
from shared.memory.board import Phase
from shared.memory.evaluation_queue import next_evaluation_boundary
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped, Waiter
from shared.process.child import ChildSpec, enter
from workers.gradients import Gradients, make_worker_method
from workers.versions import Hogwild, Versions


def main(child_spec: ChildSpec) -> None:
    """Play, compute and apply until the last round is committed or the run stops.

    Raises:
        FatalError: a gradient or the parameters are not finite, or an environment cannot continue.
    """
    memory, waiter = enter(child_spec)
    machine = memory.plan.config.machine
    prepare_torch(torch.device("cpu"), machine.precision, 1, deterministic=machine.is_deterministic)
    process = WorkerProcess(memory, waiter, child_spec)
    with suppress(Stopped):
        process.start()
        try:
            process.run()
        except FloatingPointError as error:  # no policy has actions any more
            raise FatalError(f"{error} A smaller --learning-rate may help.") from error
        memory.board.phase[child_spec.process] = Phase.DONE
    process.close()


class WorkerProcess:
    """The workers of one process, its shard, and the commits of process 0."""

    def __init__(self, memory: Memory, waiter: Waiter, child_spec: ChildSpec) -> None:
        """Make model and policy; no lane is played yet."""
        assert memory.shared_parameters is not None, "the run has workers"
        plan, device = memory.plan, torch.device("cpu")
        play, seed = plan.config.play, plan.config.run.seed
        self._memory, self._board, self._waiter = memory, memory.board, waiter
        self._shared, self._run_schedule = memory.shared_parameters, memory.run_schedule
        doorbells, number = child_spec.doorbells, child_spec.number
        self._others = [doorbell for other, doorbell in enumerate(doorbells.of_role(Role.WORKER)) if other != number]
        self._commits: Commits | None = None
        if waiter.process == plan.committer:
            self._commits = Commits(memory, waiter, doorbells)
        self._lanes = Lanes(
            memory, number, partial(make_env, play, seed, training=True), doorbells.of_role(Role.WORKER), waiter
        )
        precision = plan.config.machine.precision
        check_arithmetic(plan.network, device, precision, self._run_schedule.update_samples, learns=True)
        model = make_model(plan.network, device, precision)
        target = make_model(plan.network, device, precision) if plan.method.has_target_network else None
        method = make_worker_method(plan, device)
        policy = Policy(
            plan.network, device, precision, plan.config.machine.inference_batch, method=method, model=model
        )
        self._answers = Answers(memory, policy)
        self._gradients = Gradients(memory, model, target, method, self._choose)
        parameters = Versions if plan.config.learn.schedule == "ordered" else Hogwild
        self._parameters: Versions | Hogwild = parameters(memory, model, target, number)

    def start(self) -> None:
        """Make the envs, wait until the memory is prepared, start the lanes, and fill the first version with others."""
        self._lanes.start()
        for lane in self._lanes.played:
            self._gradients.resume(lane.index, max(0, self._board.committed))
        self._parameters.fill()
        self._ring_others()
        self._waiter.wait(lambda: bool(self._shared.applied.values.min() >= 0))

    def close(self) -> None:
        """Close the envs."""
        self._lanes.close()

    def run(self) -> None:
        """Do this process's part of every round up to the last one."""
        self._wait(lambda: self._board.committed >= 0)
        round_ = self._board.committed
        while self._may_begin(round_):
            if isinstance(self._parameters, Versions):
                self._run_ordered(round_, self._parameters)
            else:
                self._run_async(round_, self._parameters)
            self._ring_others()
            round_ += 1

    def _may_begin(self, round_: int) -> bool:
        """Wait until a round may begin. Return False if the run is over."""
        self._wait(lambda: round_ < self._limit or self._board.finished)
        return not self._board.finished

    @property
    def _limit(self) -> int:
        """The first round that no process may begin yet.

        It is not far ahead of the last commit. All processes stop where parameters are kept: nothing changes them then.
        """
        run_schedule, committed = self._run_schedule, self._board.committed
        kept = committed - committed % run_schedule.snapshot_rounds + run_schedule.snapshot_rounds
        every = self._memory.plan.config.evaluate.eval_every_steps
        evaluated = next_evaluation_boundary(committed, run_schedule.round_steps, every) if every else kept
        return min(committed + run_schedule.max_rounds_ahead, kept, evaluated, self._board.last.read())

    def _wait(self, ready: Callable[[], bool]) -> None:
        """Wait; meanwhile make the commits that are due, and keep the snapshots of lanes where the run ends."""
        played = self._lanes.played
        while True:
            if self._lanes.keep_last_snapshots():
                self._ring_others()
            if self._commits is not None and self._commit_due:
                self._commit(self._commits, self._board.committed + 1)
            elif ready():
                return
            self._waiter.wait(lambda: ready() or self._commit_due or any(lane.lacks_snapshot for lane in played))

    @property
    def _commit_due(self) -> bool:
        """True if this process commits, and all have done their part of the next round.

        After a restart its lanes first play up to there again: the last boundary needs their snapshots.
        """
        coming = self._board.committed + 1
        begin = coming * self._run_schedule.round_ticks
        if self._commits is None or any(lane.tick < begin for lane in self._lanes.played):
            return False
        return bool(min(self._shared.applied.values.min(), self._board.lane_finished.values.min()) >= coming)

    def _run_ordered(self, round_: int, parameters: Versions) -> None:
        """Compute a gradient of each lane at the version of the round, and make the shard of the next."""
        parameters.load(round_)
        self._play(self._lanes.played, round_)
        for lane in self._lanes.played:
            self._gradients.compute(lane.index, round_)
            self._waiter.heartbeat()
        self._ring_others()
        self._waiter.wait(lambda: bool(self._shared.computed.values.min() > round_))
        parameters.apply(round_)

    def _run_async(self, round_: int, parameters: Hogwild) -> None:
        """For each lane in turn: copy the parameters, play, compute, apply (Mnih et al. 2016, algorithm S3)."""
        for lane in self._lanes.played:
            parameters.load(round_)
            self._play([lane], round_)
            if self._gradients.compute(lane.index, round_):
                parameters.apply(lane.index, round_)
            self._waiter.heartbeat()
        parameters.finish(round_)

    def _play(self, lanes: Sequence[Lane], round_: int) -> None:
        """Play some lanes to the end of a round, tick by tick."""
        end = (round_ + 1) * self._run_schedule.round_ticks
        while playing := [lane for lane in lanes if lane.tick < end]:
            self._answer([lane.index for lane in playing if not lane.replaying])
            for lane in playing:
                self._board.phase[self._waiter.process] = Phase.REPLAYING if lane.replaying else Phase.WORKING
                self._lanes.step(lane)
                self._waiter.heartbeat()

    def _answer(self, lanes: Sequence[int]) -> None:
        """Answer some lanes, those of a batch together; a batch has the same rows whichever lanes are here."""
        indexes = np.array(lanes, np.int64)
        batches = indexes // self._memory.plan.batch_lanes
        for batch in np.unique(batches):
            together = indexes[batches == batch]
            self._answers.answer(together, self._memory.mailbox.request.values[together])

    def _choose(self, worker: int, tick: int, best: NDArray[np.int64]) -> list[int]:
        """Actions of a worker's epsilon-greedy policy."""
        lane = next(lane for lane in self._lanes.played if lane.index == worker)
        return lane.choose(tick, best)

    def _commit(self, commits: Commits, boundary: int) -> None:
        """Close the rounds before `boundary`, as a learner does; the version that follows needs no publication."""
        commits.wait_for_scribe(boundary)
        commits.name_last(boundary, self._lanes.keep_last_snapshots)
        commits.record(boundary, partial(self._gradients.means, boundary))
        commits.snapshot(boundary, partial(self._parameters.store, boundary))
        commits.queue_evaluation(boundary, lambda out: self._parameters.store(boundary, {"online": out}))
        self._board.updates[0] = self._run_schedule.updates_before(boundary)
        commits.publish(boundary)

    def _ring_others(self) -> None:
        for doorbell in self._others:
            doorbell.ring()
