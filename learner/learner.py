"""The learner process: rounds of updates, and the commit that closes a round.

A commit has this order: snapshots of lanes, the metrics of a record that ends, the learner's snapshot, the weights, a
version to evaluate, `committed`. A restarted learner loads its newest whole snapshot. It repeats rounds that are
already committed and publishes nothing of them again.

With further members this process is member 0, and they share its updates (learner/team).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import torch

from learner.commits import Commits
from learner.engine.accelerator import is_gpu
from learner.engine.device import device_bytes_reader, prepare_torch
from learner.engine.engine import Engine, NonFiniteError
from learner.engine.faults import device_faults_named
from learner.engine.interfaces import CHUNK_UPDATES
from learner.engine.nan_report import report_nonfinite_update
from learner.engine.round_means import RoundMetrics
from learner.make_engine import make_engine
from learner.team.gpu_ranks import RankGroup
from learner.team.shared_team import SharedTeam
from learner.team.team import ALONE, Team
from shared.config.settings import ResolvedConfig
from shared.errors import DeviceFault, FatalError
from shared.memory.board import Phase
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped, Waiter
from shared.process.child import ChildSpec, Doorbells, enter

SLICE_UPDATES = 16
"""Most updates of a slice, between two reads of the stop word; the granularity of `publish_every_updates`, too."""
SLICE_SECONDS = 0.5
"""Aim for the length of a slice, reached by fewer updates where these are slow.

Heartbeats must come often (ringside/run/hang_detector.py).
"""
SLICES_AHEAD = 8
"""Most unfinished slices that a GPU may have; a stop waits for all of them."""
SLICES_LEFT = 2
"""Slices that may be unfinished when the round ends. The learner blocks for these: queries would slow a short round."""
STUCK_SECONDS = 300.0
"""Time without the end of a slice after which a GPU counts as hung: as long as a process may wait for a driver."""
QUERY_SECONDS = 0.001
"""Interval between two queries of a GPU, which rings no doorbell."""


class Rounds:
    """The learner's part in every round."""

    def __init__(
        self, memory: Memory, waiter: Waiter, engine: Engine, doorbells: Doorbells, team: Team = ALONE
    ) -> None:
        self._memory, self._board, self._run_schedule = memory, memory.board, memory.run_schedule
        self._learn = memory.plan.config.learn
        self._waiter, self._engine, self._team = waiter, engine, team
        self._record: list[RoundMetrics] = []
        self._slice = 1  # how long an update takes is not known yet
        self._commits = Commits(memory, waiter, doorbells)

    def restore(self) -> int:
        """Take the newest snapshot, or fresh parameters; return the round to do next."""
        boundary = max(0, self._team.lead(self._memory.learner_snapshots.newest()))
        state = self._memory.learner_snapshots.read(boundary)
        assert state is not None or not boundary, "the learner writes none before all members have read this one"
        self._engine.load(state)
        self._team.meet(self._engine.checksum(), f"the parameters of boundary {boundary}")
        if boundary > self._board.committed or self._memory.weights.current < 0:
            self._commit(boundary)
        return boundary

    def run_round(self, round_: int) -> None:
        """Do one round: its updates, and its commit unless an earlier incarnation made it."""
        if self._run_schedule.takes_turns:
            self._wait_for_lanes(round_ + 1)
        repeated, count = round_ < self._board.committed, self._run_schedule.updates_in(round_)
        if count:
            self._team.meet(round_, "the round to do")
            # The first call after a start also copies the whole window to a GPU; it counts as part of the start.
            self._engine.begin_round(round_, self._run_schedule.window_end(round_))
        self._waiter.heartbeat()  # before the phase: in an incarnation's first round this silence belongs to its start
        self._board.phase[self._waiter.process] = Phase.REPLAYING if repeated else Phase.WORKING
        if count:
            self._run(round_, count)
            self._wait_for_slices(SLICES_LEFT, partial(self._prefetch, round_ + 1))
            self._record.append(self._engine.end_round())
        if self._run_schedule.target_changes_after(round_):
            self._engine.update_target()
        if count and self._run_schedule.is_snapshot(round_ + 1):
            self._team.meet(self._engine.checksum(), f"the parameters after round {round_}")
        if repeated:
            self._board.redone[self._waiter.process] += count
            if self._run_schedule.is_record(round_ + 1):
                self._record.clear()
        else:
            self._commit(round_ + 1)

    def _run(self, round_: int, count: int) -> None:
        """Do the updates of a round in slices, as long as their pace allows, with heartbeats between them."""
        before = self._run_schedule.updates_before(round_)
        free, every = self._learn.schedule == "free", self._learn.publish_every_updates
        done = published = 0
        while done < count:
            # Slices end where chunks and graphs do: on a GPU a part of a graph is launched kernel by kernel.
            part, began = min(self._slice, count - done, SLICE_UPDATES - done % SLICE_UPDATES), time.monotonic()
            self._engine.run(part)
            self._wait_for_slices(SLICES_AHEAD)
            pace = max((time.monotonic() - began) / part, SLICE_SECONDS / SLICE_UPDATES)
            fits = int(SLICE_SECONDS / pace)
            self._slice = max(1, fits if fits < CHUNK_UPDATES else fits - fits % CHUNK_UPDATES)
            done += part
            self._record_updates(round_, before + done, part)
            self._waiter.note_progress(progress_at(round_, done))
            self._waiter.heartbeat()
            if free and done < count and done - published >= every:
                published = done
                self._publish(before + done)

    def _record_updates(self, round_: int, done: int, part: int) -> None:
        """Record that `done` updates of the run are done, the last `part` of them in this round."""
        board = self._board
        if round_ >= board.committed:  # done by a former incarnation, whose slices may have ended elsewhere
            board.redone[self._waiter.process] += min(part, max(0, board.updates[0] - (done - part)))
        board.updates[0] = max(board.updates[0], done)

    def _publish(self, done: int) -> None:
        """Publish the weights after `done` updates of the run, within a round.

        Repeated updates were published before, and actors never go back to older weights.
        """
        if done > self._memory.weights.content[0]:
            self._wait_for_slices(SLICES_LEFT)
            with suppress(NonFiniteError):  # all members find them when the round ends
                self._engine.check()
                self._memory.weights.publish(done, self._engine.export_into)

    def _wait_for_lanes(self, boundary: int) -> None:
        """Wait until every lane has finished the rounds before `boundary`."""
        self._commits.wait_for_lanes(boundary)

    def _wait_for_slices(self, limit: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until a GPU has at most `limit` unfinished slices, and call `meanwhile` at every query.

        Raises:
            DeviceFault: it does not go on.
        """
        left, since = self._engine.unfinished_slices(), time.monotonic()
        while (now := self._engine.unfinished_slices()) > limit:
            if now < left:
                left, since = now, time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                raise DeviceFault(
                    f"The GPU did not finish a slice of up to {SLICE_UPDATES} updates in {STUCK_SECONDS:.0f} s. The "
                    "kernel log (dmesg, lines with Xid) may say why."
                )
            meanwhile()
            self._waiter.heartbeat()
            self._waiter.doorbell.wait(QUERY_SECONDS)

    def _prefetch(self, round_: int) -> None:
        """Prefetch a round, if it has updates and all ticks of its window are there."""
        comes = self._learn.schedule != "alternate" and round_ < self._board.last.read()
        if comes and self._run_schedule.updates_in(round_) and self._board.lane_finished.values.min() >= round_:
            self._engine.prefetch(round_, self._run_schedule.window_end(round_))

    def _commit(self, boundary: int) -> None:
        """Close the rounds before `boundary`."""
        self._wait_for_lanes(boundary)
        self._prefetch(boundary)
        self._commits.wait_for_scribe(boundary)
        self._commits.name_last(boundary)
        self._commits.record(boundary, self._end_record)
        self._commits.snapshot(boundary, self._engine.store)
        updates = self._run_schedule.updates_before(boundary)
        self._memory.weights.publish(updates, self._engine.export_into)
        self._commits.queue_evaluation(boundary, lambda out: self._engine.store({"online": out}))
        self._commits.publish(boundary)
        self._waiter.note_progress(progress_at(boundary))

    def _end_record(self) -> tuple[int, dict[str, float]]:
        """Updates of the record that ends, and means over them; the next record begins."""
        updates = sum(metrics.updates for metrics in self._record)
        names = self._run_schedule.method.metrics if updates else ()
        means = {name: sum(each.means[name] * each.updates for each in self._record) / updates for name in names}
        self._record.clear()
        return updates, means


def prepare(config: ResolvedConfig) -> None:
    """Have this process compute as configured. Call it before the first tensor operation."""
    machine = config.machine
    prepare_torch(torch.device(machine.device), machine.precision, 1, deterministic=machine.is_deterministic)


def make_member(child_spec: ChildSpec, memory: Memory, waiter: Waiter, config: ResolvedConfig) -> tuple[Engine, Team]:
    """Prepare this process, wait for the ring and the other members, and make its engine."""
    device, team = torch.device(config.machine.device), ALONE
    prepare(config)
    waiter.device_bytes = device_bytes_reader(device)
    waiter.wait(lambda: bool(memory.board.prepared[0]))
    if config.machine.learner_processes > 1:
        team = (RankGroup if is_gpu(device) else SharedTeam).join(child_spec, waiter, device)
    beside = memory.run_schedule.learns_same_round and not memory.run_schedule.takes_turns
    waits = Commits(memory, waiter, child_spec.doorbells).wait_for_lanes if beside else None
    return make_engine(config, memory.plan.network, memory.ring, waiter.heartbeat, team, waits), team


@contextmanager
def settled(engine: Engine, team: Team) -> Iterator[None]:
    """Wait at the end for all that the engine has begun, and leave the team, also when the run is to stop."""
    try:
        yield
    except Stopped:
        team.leave()  # first: a GPU may wait for a rank that has left
        engine.settle()
        raise
    engine.settle()
    team.leave()


def progress_at(round_: int, updates: int = 0) -> int:
    """The learner's progress as one number: rounds, then updates of the present one, fewer than 2^24."""
    return (round_ << 24) + updates


def main(child_spec: ChildSpec) -> None:
    """Learn until the last round is committed or the run stops.

    Raises:
        DeviceFault: the GPU does not do its part. FatalError: the numbers are not finite any more.
    """
    memory, waiter = enter(child_spec)
    with suppress(Stopped), device_faults_named():
        engine, team = make_member(child_spec, memory, waiter, memory.plan.config)
        memory.board.replay_device_bytes[0] = engine.source_device_bytes
        rounds = Rounds(memory, waiter, engine, child_spec.doorbells, team)
        try:
            with settled(engine, team):
                round_ = rounds.restore()
                while round_ < memory.board.last.read():
                    rounds.run_round(round_)
                    round_ += 1
        except NonFiniteError as error:
            try:
                sentence = report_nonfinite_update(memory, waiter, engine, child_spec.run_dir, error)
            except Stopped:
                sentence = "The run was stopped before the update was found."
            engine.settle()
            raise FatalError(f"{error} {sentence}") from error
        memory.board.phase[child_spec.process] = Phase.DONE
