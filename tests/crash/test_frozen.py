"""Hung processes are noticed and replaced: every side of every wait is frozen (SIGSTOP) while the other side waits.

| who waits | for what | who is frozen | bounded by |
|---|---|---|---|
| all | the memory to be prepared | scribe | `Waiter.wait` of the others, `HangDetector` |
| actor | the reply to a lane | inference | `Waiter.wait`, `HangDetector` |
| actor | the commit of a round | learner | `Waiter.wait`, `HangDetector` |
| inference | requests of lanes | actors | `Waiter.wait`, `HangDetector` |
| inference | the evaluator's question | evaluator | `Waiter.wait`, `HangDetector` |
| learner | the last snapshot of a round | actors | `Waiter.wait`, `HangDetector` |
| learner | a free slot in the queue of evaluations | evaluator, scribe | `Waiter.wait`, `HangDetector` |
| learner | rounds that must be recorded before lanes overwrite them | scribe | `Waiter.wait`, `HangDetector` |
| evaluator | a version in the queue | learner | `Waiter.wait`, `HangDetector` |
| evaluator | the reply to its question | inference | `Waiter.wait`, `HangDetector` |
| scribe | a round to record | learner | `Waiter.wait`, `HangDetector` |
| scribe | the last evaluations | evaluator | `Waiter.wait`, `HangDetector` |
| supervisor | all to leave when asked | anyone | grace, then SIGKILL |
| supervisor | the last checkpoint | scribe | `HangDetector`, then `SAVE_SECONDS` |
| supervisor | a killed process to be reaped | (in the kernel alone) | `REAP_SECONDS` |
| anyone | the supervisor | supervisor | they do not: it reads and writes the board alone |
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringside.run.hang_detector import STOPPED_SECONDS
from shared.memory.board import Phase
from shared.memory.process_table import Role
from tests.crash.storm import ACTORS, ALL_ROLES, FLAGS, Moment, Storm, Undisturbed, begin, result_of
from tests.support.runs import finish, start, summary

pytestmark = [pytest.mark.stress, pytest.mark.timeout(300)]


def test_all_roles_frozen_at_once_are_replaced(undisturbed: Undisturbed, run_dir: Path) -> None:
    storm = begin(run_dir, "all frozen at once")
    storm.until(lambda: storm.board.committed >= 3)
    storm.freeze(*ALL_ROLES)
    storm.until(storm.all_at_work)
    storm.end(undisturbed("4_800"))


def _preparing(storm: Storm) -> bool:
    return not storm.board.prepared[0]


def _lanes_wait_for_replies(storm: Storm) -> bool:
    mailbox = storm.memory.mailbox
    return bool(storm.board.committed >= 2 and (mailbox.request.values != mailbox.reply.values).any())


def _lanes_wait_for_the_commit(storm: Storm) -> bool:
    return bool(storm.board.committed >= 2 and storm.board.lane_finished.values.min() > storm.board.committed)


def _the_learner_waits_for_lanes(storm: Storm) -> bool:
    run_schedule, round_ = storm.memory.run_schedule, storm.board.committed
    done = round_ >= 3 and storm.board.updates[0] >= run_schedule.updates_before(round_ + 1)
    return bool(done and storm.board.lane_finished.values.min() <= round_)


def _in_mid_round(storm: Storm) -> bool:
    run_schedule, round_ = storm.memory.run_schedule, storm.board.committed
    return bool(round_ >= 2 and storm.board.lane_done.values.min() >= round_ * run_schedule.round_ticks + 10)


def _the_evaluator_asks(storm: Storm) -> bool:
    return storm.memory.evaluations.asked is not None


def _the_queue_of_evaluations_is_long(storm: Storm) -> bool:
    return bool(storm.memory.evaluations.pending)


def _the_last_round_is_committed(storm: Storm) -> bool:
    return bool(storm.board.complete)


INFERENCE, LEARNER, SCRIBE, EVALUATOR = ((role,) for role in ALL_ROLES[:4])
WAITS: dict[Moment, Sequence[tuple[int, ...]]] = {
    _preparing: [SCRIBE, INFERENCE, LEARNER, EVALUATOR, ACTORS],
    _lanes_wait_for_replies: [INFERENCE, ACTORS[:1]],
    _lanes_wait_for_the_commit: [LEARNER, ACTORS],
    _the_learner_waits_for_lanes: [LEARNER, ACTORS[1:]],
    _in_mid_round: [LEARNER, SCRIBE, ACTORS],
    _the_evaluator_asks: [INFERENCE, EVALUATOR],
    _the_queue_of_evaluations_is_long: [EVALUATOR, SCRIBE],
    _the_last_round_is_committed: [EVALUATOR, SCRIBE],
}
"""Roles that are frozen, by the moment."""


@pytest.mark.parametrize(
    ("frozen", "moment"),
    [(roles, moment) for moment, frozen in WAITS.items() for roles in frozen],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "+".join(map(str, map(int, value))),
)
def test_either_side_of_a_wait_may_freeze(
    undisturbed: Undisturbed, run_dir: Path, frozen: tuple[int, ...], moment: Moment
) -> None:
    slow = moment is _the_learner_waits_for_lanes  # which else it may never do
    env = "tests.support.slowed:catch" if slow else FLAGS["env"]
    storm = begin(run_dir, f"{frozen} frozen, {moment.__name__}", eval_every_steps="480", env=env)
    storm.watch_for(lambda: moment(storm))
    storm.freeze(*frozen)
    plain = undisturbed("4_800")
    finish(storm.process)
    last = summary(run_dir)
    assert (last["weights_sha256"], last["episodes"]) == (plain.weights_sha256, plain.episodes)
    if moment is not _the_last_round_is_committed:
        assert storm.board.restarts.sum() == len(frozen)


@pytest.mark.parametrize("frozen", ALL_ROLES, ids=[f"process {int(number)}" for number in ALL_ROLES])
def test_a_frozen_role_does_not_keep_a_run_from_stopping(undisturbed: Undisturbed, run_dir: Path, frozen: int) -> None:
    storm = begin(run_dir, "frozen when asked to stop")
    storm.until(lambda: storm.board.committed >= 4)
    storm.freeze(frozen)
    storm.process.send_signal(signal.SIGTERM)
    finish(storm.process)
    assert 4 <= summary(run_dir)["rounds"] < 10
    finish(start(run_dir, "--resume", str(run_dir), env=FLAGS["env"]))
    assert result_of(run_dir) == undisturbed("4_800")


def test_a_run_that_is_suspended_as_a_whole_goes_on_as_if_nothing_was(undisturbed: Undisturbed, run_dir: Path) -> None:
    """Ctrl-Z and `fg`: no process counts as hung, however long it took."""
    storm = begin(run_dir, "suspended")
    for committed in (1, 3, 5):
        storm.until(lambda: storm.board.committed >= committed)  # noqa: B023
        os.killpg(storm.process.pid, signal.SIGSTOP)
        time.sleep(2 * STOPPED_SECONDS)  # what is tested is that time alone does nothing
        os.killpg(storm.process.pid, signal.SIGCONT)
    storm.end(undisturbed("4_800"))


def test_all_roles_work_while_the_supervisor_is_frozen(undisturbed: Undisturbed, run_dir: Path) -> None:
    storm = begin(run_dir, "supervisor frozen")
    storm.until(lambda: storm.board.committed >= 2)
    os.kill(storm.process.pid, signal.SIGSTOP)
    storm.watch_for(lambda: bool(storm.board.complete and storm.board.phase[Role.LEARNER] == Phase.DONE))
    os.kill(storm.process.pid, signal.SIGCONT)
    storm.end(undisturbed("4_800"))
