"""The supervisor and processes that do not end, without real processes."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ringside.run import children, supervisor
from ringside.run.children import Child, ChildProcess
from ringside.run.supervisor import FINISH_SECONDS, GRACE_SECONDS, SAVE_SECONDS, Supervisor
from shared.machine.subprocesses import REAP_SECONDS, wait_for_end
from shared.memory.board import Phase, Stop
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.process.child import FATAL, log_path
from shared.process.signals import STOP_SIGNALS, TELL_STACKS
from tests.support.configurations import settled

SLEEPER = "import time; from shared.process.signals import *; enable_stack_dumps(); print(flush=True); time.sleep(60)"
NO_CHECKPOINT = "The run ended without a last checkpoint."


@pytest.fixture
def notes() -> list[str]:
    """Sentences of the supervisor for the user."""
    return []


@pytest.fixture
def stopping(tmp_path: Path, notes: list[str]) -> Iterator[Supervisor]:
    """A supervisor that has abandoned all processes but the scribe."""
    with supervisor_of(tmp_path, notes) as made:
        made._board.stop[0] = Stop.ABANDON
        made._children = {number: endless() for number in (Role.SCRIBE, Role.LEARNER)}
        yield made


@contextmanager
def supervisor_of(run_dir: Path, notes: list[str], **settings: Any) -> Iterator[Supervisor]:
    """A supervisor of a small run, whose scribe alone runs."""
    small = {"actors": 1, "network": "small", "balance": "off"}
    small |= {"round_steps": 80, "replay_size": 160, "total_steps": 800}
    plan = Plan(settled(run_dir=run_dir, **small | settings), 4)
    made = Supervisor(plan, lambda memory: None, notes.append)
    made._children = {Role.SCRIBE: endless()}
    try:
        yield made
    finally:
        made._children.clear()
        made._end_all()
        os.close(made._wakeup.fd)


def ended(code: int) -> Child:
    """A child that has ended with this code."""
    return Child(cast(Any, SimpleNamespace(exitcode=code)))


def time_out_the_scribe(stopping: Supervisor) -> None:
    """Count more time without a heartbeat than the scribe has."""
    for _ in range(int(SAVE_SECONDS) + 2):
        stopping._count_shutdown(1.0)


def endless() -> Child:
    """A child that waits in the kernel, so that no signal ends it."""
    return Child(Mock(spec=["kill", "exitcode"], exitcode=None))


def test_a_killed_process_that_does_not_end_is_waited_for_no_longer_than_its_limit(stopping: Supervisor) -> None:
    learner, scribe = stopping._children[Role.LEARNER], stopping._children[Role.SCRIBE]
    stopping._kill_late()
    stopping._kill_late()
    assert (learner.process.kill.call_count, scribe.process.kill.call_count) == (1, 0), "the scribe still saves"
    learner.killed_at -= REAP_SECONDS + 1.0
    stopping._kill_late()
    assert list(stopping._children) == [Role.SCRIBE]
    assert str(stopping._failure).startswith("learner was killed and does not end: it waits in the kernel for ")


@pytest.mark.parametrize("heartbeat", [7, 8])
def test_a_stop_kills_a_process_that_still_loads_its_libraries(stopping: Supervisor, heartbeat: int) -> None:
    stopping._board.heartbeat[:] = heartbeat
    for child in stopping._children.values():
        child.first_heartbeat = 7
    stopping._stop()
    learner, scribe = (stopping._children[role].process for role in (Role.LEARNER, Role.SCRIBE))
    assert (learner.kill.call_count, scribe.kill.call_count) == (heartbeat == 7, 0)


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_callback_raises_stops_the_run_first(tmp_path: Path, notes: list[str], error: BaseException) -> None:
    """sys.exit() in a callback, too: the scribe must live to save."""
    with supervisor_of(tmp_path, notes) as made:
        made._on_poll = Mock(side_effect=error)
        made._notify()
        assert (made._callback_error is error, made._board.stopping) == (True, True)
        assert notes[0].startswith("A callback failed. Stopping: ")


AGAIN = "it starts again."


ENDS = [
    (Stop.RUN, Phase.WORKING, False, 0, f"learner ended with code 0; {AGAIN}"),  # nobody else would do its work
    (Stop.RUN, Phase.WORKING, False, 1, f"learner ended with code 1; {AGAIN}"),
    (Stop.RUN, Phase.WORKING, True, -signal.SIGSEGV, f"learner was killed by SIGSEGV; {AGAIN}"),
    (Stop.RUN, Phase.DONE, True, -signal.SIGSEGV, "learner did all of its work, but did not exit cleanly."),
    (Stop.ABANDON, Phase.WORKING, False, 0, ""),
    (Stop.ABANDON, Phase.WORKING, False, 1, ""),
]


@pytest.mark.parametrize(("stop", "phase", "over", "code", "note"), ENDS)
def test_a_process_that_ends_starts_again_while_there_is_work(
    stopping: Supervisor, notes: list[str], stop: Stop, phase: Phase, over: bool, code: int, note: str
) -> None:
    stopping._board.stop[0], stopping._board.phase[:] = stop, phase
    if over:
        stopping._board.commits.publish(stopping._plan.run_schedule.rounds)
    restarted = list[int]()
    stopping._restart = restarted.append  # type: ignore[method-assign]
    stopping._children[Role.LEARNER] = ended(code)
    stopping._handle_exit(Role.LEARNER, stopping._children[Role.LEARNER])
    assert (notes, restarted) == ([note] * bool(note), [Role.LEARNER] * (AGAIN in note))
    assert (Role.LEARNER in stopping._children) == bool(restarted)


DEATHS = [
    (Role.INFERENCE, True, 1, [Role.INFERENCE, Role.LEARNER]),
    (Role.LEARNER, True, 1, [Role.INFERENCE, Role.LEARNER]),
    (Role.LEARNER, False, 1, [Role.LEARNER]),
    (Role.SCRIBE, True, 1, [Role.SCRIBE]),
    (Role.INFERENCE, False, 4, [Role.INFERENCE]),
    (Role.LEARNER, False, 4, [Role.LEARNER, 5, 6, 7]),
    (6, False, 4, [Role.LEARNER, 5, 6, 7]),
    (6, True, 4, [Role.INFERENCE, Role.LEARNER, 5, 6, 7]),
    (Role.INFERENCE, True, 4, [Role.INFERENCE, Role.LEARNER, 5, 6, 7]),
]


@pytest.mark.parametrize(("dead", "mps", "members", "together"), DEATHS)
def test_processes_that_share_a_fault_are_started_again_together(
    tmp_path: Path, notes: list[str], dead: int, mps: bool, members: int, together: list[int]
) -> None:
    started = list[int]()
    with supervisor_of(tmp_path, notes, learner_members=members) as made:
        made._uses_mps = mps
        running = (Role.SCRIBE, Role.LEARNER, Role.INFERENCE, *range(5, 4 + members))
        made._children = {index: endless() for index in running}
        for child in made._children.values():
            child.process.kill.side_effect = partial(setattr, child.process, "exitcode", -signal.SIGKILL)

        def start(index: int, incarnation: int) -> None:
            assert all(made._children[each].process.kill.called for each in together), "no process meets a faulty one"
            assert incarnation == 1
            started.append(index)

        made._start = start  # type: ignore[method-assign]
        made._restart(dead)
        assert started == together
        assert [made._board.restarts[index] for index in running] == [index in together for index in running]


@pytest.mark.parametrize(("members", "bound"), [(1, {"actor 0": 0}), (2, {"actor 0": 0, "learner": 1, "member 1": 2})])
def test_a_team_is_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: int, bound: dict[str, int]) -> None:
    monkeypatch.setattr(children, "choose_threads", lambda actors, team, _: [{n} for n in range(actors + team)])
    with supervisor_of(tmp_path, [], learner_members=members) as made:
        specs = [cast(Any, made._maker.make(index, 0))._args[1] for index in range(len(made._processes))]
        assert {spec.name: set(spec.cores) for spec in specs if spec.cores} == {name: {n} for name, n in bound.items()}


@pytest.mark.parametrize(("device", "there"), [("cuda:0", True), ("cuda:0", False), ("cpu", True)])
def test_a_daemon_of_mps_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, there: bool) -> None:
    monkeypatch.setattr("shared.machine.facts.cuda_devices", lambda: 1)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path if there else tmp_path / "none"))
    (tmp_path / "control").touch()
    with supervisor_of(tmp_path, [], device=device) as made:
        assert made._uses_mps == (there and device != "cpu")


def test_the_scribe_is_abandoned_last(stopping: Supervisor) -> None:
    stopping._children[Role.SCRIBE].killed_at = time.monotonic()  # it hung
    stopping._kill_late()
    assert stopping._failure is None, "it may still be started again"
    time_out_the_scribe(stopping)
    stopping._kill_late()
    assert stopping._failure == NO_CHECKPOINT
    for child in stopping._children.values():
        child.killed_at -= REAP_SECONDS + 1.0
    stopping._kill_late()
    assert not stopping._children


@pytest.mark.parametrize(("members", "done"), [(1, False), (2, True)])
def test_after_the_last_commit_no_member_of_a_team_is_started_again(tmp_path: Path, members: int, done: bool) -> None:
    """It would wait without end for others that have left; a learner alone may still record its metrics."""
    with supervisor_of(tmp_path, [], learner_members=members) as made:
        made._board.phase[:] = Phase.WORKING
        assert len(made._processes.learners) == members
        assert not any(made._did_all(index) for index in made._processes.learners)
        made._board.commits.publish(made._plan.run_schedule.rounds)
        assert all(made._did_all(index) == done for index in made._processes.learners)


def test_a_request_while_the_scribe_saves_does_not_wait_for_it(stopping: Supervisor) -> None:
    stopping._stop()
    stopping._requests.count = 1
    assert not stopping._force_exit, "a fault has ended the run, and this is the first request"
    stopping._requests.count = 2
    assert stopping._force_exit
    stopping._kill_late()
    kills = [child.process.kill.call_count for child in stopping._children.values()]
    assert (kills, stopping._failure) == ([1, 1], NO_CHECKPOINT)


def test_time_in_which_no_process_could_end_does_not_count(stopping: Supervisor) -> None:
    """The supervisor was stopped (Ctrl-Z) or the machine slept; or the scribe saves much, and sends heartbeats."""
    stopping._count_shutdown(3_600.0)
    assert stopping._leaving_seconds <= GRACE_SECONDS
    for look in range(10 * int(SAVE_SECONDS)):
        stopping._board.heartbeat[Role.SCRIBE] = look // 100
        stopping._count_shutdown(1.0)
    assert (stopping._leaving_seconds > GRACE_SECONDS, stopping._force_exit) == (True, False)
    time_out_the_scribe(stopping)
    assert stopping._force_exit


def test_a_lack_that_passes_ends_no_run_and_a_second_request_the_tries(stopping: Supervisor) -> None:
    lack = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    process = SimpleNamespace(start=Mock(side_effect=[lack, None, lack, lack]))
    stopping._maker.make = Mock(side_effect=[lack, *[process] * 4])  # type: ignore[method-assign]
    assert stopping._spawn(Role.LEARNER, incarnation=1) is process
    for requests, incarnation in ((0, 0), (2, 1)):
        stopping._requests.count = requests
        with pytest.raises(BlockingIOError):
            stopping._spawn(Role.LEARNER, incarnation)


def test_a_child_starts_with_requests_and_stack_dumps_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_Popen", lambda process: signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    assert ChildProcess._Popen(None) >= {*STOP_SIGNALS, TELL_STACKS}
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*STOP_SIGNALS, TELL_STACKS}


def test_a_process_whose_pipe_is_held_by_its_own_children_is_found_dead(stopping: Supervisor) -> None:
    read, write = os.pipe()  # no process closes it
    stopping._board.stop[0] = Stop.RUN
    stopping._children = {Role.LEARNER: Child(cast(Any, SimpleNamespace(sentinel=read, exitcode=-signal.SIGKILL)))}
    stopping._handle_exit = Mock()  # type: ignore[method-assign]
    stopping._poll()
    os.close(read)
    os.close(write)
    assert [call.args[0] for call in stopping._handle_exit.mock_calls] == [Role.LEARNER]


@pytest.mark.parametrize("requests", [1, 2])
def test_a_fault_found_during_a_stop_is_reported(stopping: Supervisor, tmp_path: Path, requests: int) -> None:
    """A loss that is NaN, for example: the next resume would find it again."""
    stopping._requests.count = requests
    stopping._maker._log_starts[Role.LEARNER] = 0
    log_path(tmp_path, "learner").parent.mkdir(exist_ok=True)
    log_path(tmp_path, "learner").write_text("The loss is NaN.\n")
    stopping._handle_exit(Role.LEARNER, ended(-signal.SIGKILL))
    assert stopping._failure is None
    for role, failure in ((Role.ACTOR, None), (Role.LEARNER, "The loss is NaN.")):
        stopping._children[role] = ended(FATAL)
        stopping._handle_exit(role, stopping._children[role])
        assert stopping._failure == failure, "Ctrl-C may have reached what the env of an actor had started"
    assert list(stopping._children) == [Role.SCRIBE]


def _close_all() -> None:
    """A process that closes every descriptor by which its end is noticed, and continues."""
    os.closerange(0, 1 << 20)
    time.sleep(60)


def test_a_process_is_waited_for_until_its_end_or_its_limit() -> None:
    process = supervisor.multiprocess.get_context("spawn").Process(target=_close_all)
    process.start()
    assert supervisor.wait_for([process.sentinel], 20.0), "its descriptors are closed"
    assert not wait_for_end(process, 0.1)
    assert supervisor._end(process)
    assert process.exitcode == -signal.SIGKILL
    assert wait_for_end(process, 0.0)


def test_an_endless_process_without_descriptors_is_left(stopping: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, waited = stopping._children[Role.LEARNER], list[float]()
    living = supervisor.multiprocess.process._children
    living.add(learner.process)
    monkeypatch.setattr(supervisor, "wait_for_end", lambda process, seconds: waited.append(seconds))
    stopping._handle_exit(Role.LEARNER, learner)
    assert learner.process not in living, "multiprocess does not wait for it either, when the program ends"
    assert (waited, learner.process.kill.call_count, list(stopping._children)) == ([REAP_SECONDS], 1, [Role.SCRIBE])
    assert str(stopping._failure).startswith("learner was killed and does not end: it waits in the kernel for ")


def test_the_board_has_the_cores_of_others_alone(stopping: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    own = list[int]()
    stopping._contention = Mock(read=lambda at, used: own.append(used), at=3, others=2, stolen=1)
    stopping._children = {Role.LEARNER: Child(cast(Any, SimpleNamespace(pid=7)))}
    monkeypatch.setattr(supervisor, "sum_cpu_time", lambda pids: 10**15 * sum(pids))
    monkeypatch.setattr(os, "times", lambda: SimpleNamespace(children_user=3e9, children_system=2e9))
    before = time.process_time_ns()
    stopping._read_contention()
    assert stopping._board.contention.tolist() == [3, 2, 1]
    assert before <= own[0] - 7 * 10**15 - 5 * 10**18 <= time.process_time_ns()
    monkeypatch.setattr(supervisor, "sum_cpu_time", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
    stopping._read_contention()
    assert len(own) == 1


def test_a_process_that_hangs_prints_its_stacks_before_it_is_killed(stopping: Supervisor, notes: list[str]) -> None:
    hung = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    hung.stdout.readline()
    child = Child(cast(Any, SimpleNamespace(pid=hung.pid, exitcode=None, kill=hung.kill)))
    child.hang_detector = Mock(check=lambda *_: "hangs")
    stopping._watch(0, child, 0.25)
    assert child.killed_at is not None
    said = hung.communicate(timeout=20)[1]
    assert (b'File "<string>", line 1 in <module>' in said, hung.returncode) == (True, -signal.SIGKILL)
    assert notes == ["inference hangs; it is killed and replaced."]


EARLY_STOPS = [
    (-1, False, "there is nothing to save yet."),
    (-1, True, "there is nothing new to save."),
    (0, False, "the run is saved at step 0."),
]


@pytest.mark.parametrize(("committed", "resumes", "words"), EARLY_STOPS)
def test_a_stop_before_the_first_step_is_one_at_once(
    tmp_path: Path, notes: list[str], committed: int, resumes: bool, words: str
) -> None:
    with supervisor_of(tmp_path, notes, resume=tmp_path if resumes else None) as made:
        made._board.commits.publish(committed)
        made._finish("Stopping")
        assert (notes, made._board.stopping) == ([f"Stopping: {words}"], True)


@pytest.fixture
def played(tmp_path: Path, notes: list[str]) -> Iterator[Supervisor]:
    """A run whose lanes are two ticks into round 3; the newest snapshot is that of boundary 2."""
    with supervisor_of(tmp_path, notes) as made:
        made._memory.learner_snapshots.write(2, lambda out: None)
        made._board.commits.publish(3)
        made._board.lane_done.publish_all(3 * made._board.run_schedule.round_ticks + 2)
        yield made


def steps_of(made: Supervisor, rounds: int) -> int:
    return rounds * made._board.run_schedule.round_steps


def test_the_first_request_finishes_the_round(played: Supervisor, notes: list[str]) -> None:
    board, dropped = played._board, steps_of(played, 1) + 2 * played._board.run_schedule.envs
    played._finish("Stopping")
    assert (board.stop[0], board.stops_at) == (Stop.FINISH, 4), "the first boundary that no lane has passed"
    assert notes == [
        f"Stopping: the run is saved when its round ends, near step {steps_of(played, 4):,}. Ctrl-C once more stops at "
        f"step {steps_of(played, 2):,}, and drops the {dropped:,} steps after it."
    ]
    played._watch_finish()
    assert not board.stopping
    board.last.publish(4)
    board.commits.publish(4)
    played._watch_finish()
    assert board.stopping
    assert len(notes) == 1, "nothing is dropped"


REQUESTS = [
    (1, False, 1_000, False),
    (1, True, FINISH_SECONDS - 1, False),
    (1, True, FINISH_SECONDS + 1, True),
    (2, False, 0, True),
]


@pytest.mark.parametrize(("requests", "hurries", "seconds", "stops"), REQUESTS)
def test_a_second_request_or_twenty_seconds_of_sigterm_drop_the_round(
    played: Supervisor, notes: list[str], requests: int, hurries: bool, seconds: float, stops: bool
) -> None:
    played._requests.count, played._requests.hurries = 1, hurries
    played._finish("Stopping")
    played._requests.count = requests
    played._finish_until -= seconds
    played._watch_finish()
    assert played._board.stopping == stops
    if stops:
        dropped = steps_of(played, 1) + 2 * played._board.run_schedule.envs
        assert f"saved at step {steps_of(played, 2):,}, and {dropped:,} steps after it are dropped" in notes[1]


@pytest.mark.parametrize("late", [False, True])
def test_a_stop_in_the_last_round_lets_evaluations_end(played: Supervisor, notes: list[str], *, late: bool) -> None:
    board = played._board
    played._finish("Stopping")
    board.commits.publish(board.run_schedule.rounds)
    played._watch_finish()
    assert not board.stopping
    played._requests.count += not late
    played._finish_until = -1.0 if late else played._finish_until
    played._watch_finish()
    assert board.stopping, "but a second request ends them"
    assert notes[1].startswith("Evaluations were not over within 20 s: " if late else "Stopping at once: ")


def test_a_request_after_the_round_was_finished_lets_the_scribe_save(played: Supervisor) -> None:
    played._requests.count = 1
    played._finish("Stopping")
    played._board.last.publish(4)
    played._board.commits.publish(4)
    played._watch_finish()
    played._requests.count = 2
    assert not played._force_exit
    played._requests.count = 3
    assert played._force_exit
