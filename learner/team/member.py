"""A further member of the learner: it computes its parts of every update.

It reads what the learner reads, and runs the same program. On a GPU it is a rank with the whole state. It writes
nothing but its own fields of the board. The learner, member 0, commits, publishes and writes snapshots.
"""

from __future__ import annotations

from contextlib import suppress

from learner.engine.engine import NonFiniteError
from learner.engine.faults import device_faults_named
from learner.engine.nan_report import repeat_updates
from learner.learner import Rounds, make_member, progress_at, settled
from shared.config.settings import ResolvedConfig
from shared.memory.board import Phase
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter


class MemberRounds(Rounds):
    """The part of a further member in every round: the updates, without commits and records."""

    def _wait_for_lanes(self, boundary: int) -> None:
        """Do nothing: the learner waits, and the updates begin when all members are there."""

    def _publish(self, done: int) -> None:
        """Do nothing: the learner publishes."""

    def _record_updates(self, round_: int, done: int, part: int) -> None:
        """Do nothing: the learner counts them."""

    def _commit(self, boundary: int) -> None:
        """Forget the metrics, which the learner records; prefetch the next round if its ticks are there."""
        self._record.clear()
        self._prefetch(boundary)
        self._waiter.note_progress(progress_at(boundary))


def config_for_rank(config: ResolvedConfig, rank: int) -> ResolvedConfig:
    """The learner's configuration with the GPU of a rank, `rank` devices after the learner's."""
    kind, _, index = config.machine.device.partition(":")
    return config.with_settings(device=f"{kind}:{int(index) + rank}") if index else config


def main(child_spec: ChildSpec) -> None:
    """Do a member's part until the last round is committed or the run stops.

    Raises:
        DeviceFault: the GPU does not do its part. FatalError: the members do not compute alike.
    """
    memory, waiter = enter(child_spec)
    config = config_for_rank(memory.plan.config, child_spec.number + 1)
    with suppress(Stopped), device_faults_named():
        engine, team = make_member(child_spec, memory, waiter, config)
        rounds = MemberRounds(memory, waiter, engine, child_spec.doorbells, team)
        try:
            with settled(engine, team):
                round_ = rounds.restore()
                while not memory.board.finished:
                    # Wait, then read `last`: it is named before that commit, after which the learner begins.
                    waiter.wait(lambda: memory.board.committed >= round_)  # noqa: B023
                    if round_ < memory.board.last.read():
                        rounds.run_round(round_)
                        round_ += 1
        except NonFiniteError:
            repeat_updates(memory, waiter, engine)  # as the learner does for its report
            waiter.wait(lambda: False)
        memory.board.phase[child_spec.process] = Phase.DONE
