"""Deaths and hangs: every kind of silence, and the number of deaths in a row that ends a run, by cause."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringside.run import hang_detector
from ringside.run.children import Cause, Child, crash_report, diagnose
from ringside.run.hang_detector import HangDetector, ProcessState, process_state
from shared.memory.board import Phase
from shared.process.child import DEVICE_FAULT, ENV_FAULT, FATAL
from shared.root import ROOT
from tests.support.waiting import until

LOOK = 0.25


class _Process:
    """A process that is looked at every quarter of a second."""

    def __init__(self, watch: HangDetector | None = None) -> None:
        self.watch = watch or HangDetector()
        self.beat, self.cpu_seconds, self.seconds = 1, 0.0, 0.0

    def lives(self, seconds: float, every: float = LOOK, phase: Phase = Phase.WORKING) -> None:
        """It sends a heartbeat `every` so many seconds."""
        for look in range(round(seconds / LOOK)):
            self.beat += look % round(every / LOOK) == 0
            assert self.watch.check(self.beat, phase, LOOK, self._see("S", 0.0)) is None

    def silent(
        self, seconds: float, state: str = "S", share: float = 0.0, phase: Phase = Phase.WORKING, late: float = LOOK
    ) -> str | None:
        """It gives none; it gets a `share` of a processor. Why it hangs, and `self.seconds` when that is said."""
        for look in range(1, round(seconds / late) + 1):
            why = self.watch.check(self.beat, phase, late, self._see(state, share * late))
            if why:
                self.seconds = look * late
                return why
        return None

    def _see(self, state: str, used: float) -> Callable[[], ProcessState]:
        self.cpu_seconds += used
        return lambda: ProcessState(state, self.cpu_seconds)


def _known(every: float = LOOK) -> _Process:
    """A process whose pace is known."""
    process = _Process()
    process.lives(every * (hang_detector.KNOWN_HEARTBEATS + 2), every)
    process.lives(LOOK)
    return process


def test_the_page_on_reliability_names_the_bounds_and_the_numbers_of_deaths() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    module, words = hang_detector, {2: "second", 5: "five", 100: "a hundred"}
    own, device, outside = (words[cause.value] for cause in (Cause.OWN, Cause.DEVICE, Cause.OUTSIDE))
    for said in (
        f"dies {own} times in a row without progress by its own fault, or {outside} times by SIGKILL",
        f"At the {device} time without progress",
        f"is stopped (SIGSTOP) for more than {module.STOPPED_SECONDS:.0f} s",
        f"{words[module.MULTIPLE]} times its longest gap between heartbeats, from {module.FLOOR_SECONDS:.0f} to "
        f"{module.CEILING_SECONDS:.0f} s",
        f"Waiting for a disk or a driver counts up to {module.BLOCKED_SECONDS:.0f} s",
    ):
        assert said in page


STARTING, WORKING, WAITING, REPLAYING, DONE = Phase.STARTING, Phase.WORKING, Phase.WAITING, Phase.REPLAYING, Phase.DONE


SILENCES = [
    ("S", 0.0, WORKING, hang_detector.FLOOR_SECONDS, "no heartbeat"),
    ("R", 1.0, WORKING, hang_detector.FLOOR_SECONDS, "no heartbeat"),  # an endless loop
    ("S", 0.0, DONE, hang_detector.FLOOR_SECONDS, "no heartbeat"),  # an env whose `close` hangs
    *(("S", 0.0, phase, hang_detector.CEILING_SECONDS, "no heartbeat") for phase in (STARTING, REPLAYING)),
    *(("T", 0.0, phase, 3.0, "SIGSTOP") for phase in (STARTING, WORKING, REPLAYING, WAITING)),
    *((state, 0.0, WORKING, hang_detector.BLOCKED_SECONDS, f"state {state}") for state in "Dt"),
]


@pytest.mark.parametrize(("state", "share", "phase", "bound", "says"), SILENCES)
def test_silence_beyond_a_bound_is_a_hang(state: str, share: float, phase: Phase, bound: float, says: str) -> None:
    """The bound is that of state and phase."""
    process = _Process() if phase == DONE else _known()  # only a process at work needs a known pace
    process.lives(LOOK, phase=phase)
    assert not process.silent(bound - 1.0, state, share, phase)
    assert says in (process.silent(2.0 + LOOK, state, share, phase) or "")


def test_silence_is_measured_in_the_pace_of_the_role_and_in_time_with_a_processor() -> None:
    slow, starving, overloaded = _known(every=3.0), _known(), _known()
    assert "no heartbeat" in (slow.silent(100) or "")
    assert 3.0 * (hang_detector.MULTIPLE - 1) < slow.seconds <= 3.0 * hang_detector.MULTIPLE + 2 * LOOK
    assert not starving.silent(10 * hang_detector.FLOOR_SECONDS, "R", share=0.0)
    assert overloaded.silent(100 * hang_detector.FLOOR_SECONDS, "R", share=0.05)
    assert overloaded.seconds > 10 * hang_detector.FLOOR_SECONDS


def test_a_stop_that_ends_in_time_counts_for_nothing() -> None:
    process = _known()
    for _ in range(20):
        assert not process.silent(hang_detector.STOPPED_SECONDS - LOOK, "T")
        assert not process.silent(hang_detector.FLOOR_SECONDS / 4)  # it runs, and has not come to its next heartbeat
        process.lives(LOOK)


def test_until_the_pace_is_known_the_bound_is_the_ceiling() -> None:
    process = _Process()
    process.lives(2.0)
    assert process.watch.bound(Phase.WORKING) == hang_detector.CEILING_SECONDS
    process.lives(hang_detector.KNOWN_HEARTBEATS * LOOK)
    assert process.watch.bound(Phase.WORKING) == hang_detector.FLOOR_SECONDS
    assert _known(every=40.0).watch.bound(Phase.WORKING) == hang_detector.CEILING_SECONDS


def test_waiting_tells_nothing_of_the_pace_of_work() -> None:
    process = _Process()
    process.lives(10 * hang_detector.KNOWN_HEARTBEATS * LOOK, phase=Phase.WAITING)
    assert process.watch.bound(Phase.WORKING) == hang_detector.CEILING_SECONDS
    process.lives(LOOK, phase=Phase.WAITING)
    for _ in range(hang_detector.KNOWN_HEARTBEATS):
        assert not process.silent(4.0)  # the wait was over without a heartbeat
        process.lives(LOOK, phase=Phase.WAITING)
    assert process.watch.bound(Phase.WORKING) == pytest.approx(4.0 * hang_detector.MULTIPLE)


def test_neither_late_looks_nor_a_clock_that_jumps_are_a_hang() -> None:
    """Ctrl-Z of the whole group, a suspended machine, a supervisor without a processor: no false alarm."""
    process = _known()
    assert not process.silent(10_000, late=10_000.0)
    assert not process.silent(20_000, "T", late=10_000.0)
    process.lives(1.0)
    for beat in (10**18, 5, -(10**18)):
        assert not process.silent(hang_detector.FLOOR_SECONDS - 1)
        process.beat = beat
        assert not process.silent(LOOK)


def test_a_false_alarm_gives_the_next_incarnation_more_time() -> None:
    process = _known()
    lived = [0.0]
    for _ in range(3):
        assert process.silent(1_000)
        assert process.seconds > lived[-1]
        lived.append(process.seconds)
        process.watch.restart()
        process.lives(1.0)
    assert lived[-1] <= hang_detector.CEILING_SECONDS + 2 * LOOK


def test_a_process_that_is_gone_does_not_hang() -> None:
    watch = HangDetector()
    watch.check(1, Phase.WORKING, LOOK, lambda: None)
    assert not any(watch.check(1, Phase.WORKING, 1.0, lambda: None) for _ in range(1_000))


def _seen(process: int, state: str) -> ProcessState:
    """Look until the process is in a state."""
    found: list[ProcessState] = []

    def there() -> bool:
        found.append(process_state(process))
        return found[-1].state == state

    until(there, every=0.0)
    return found[-1]


def test_states_and_processor_time_are_read_of_all_threads() -> None:
    """And a name may hold anything."""
    busy_thread = "import threading; t = threading.Thread(target=lambda: [0 for _ in iter(int, 1)]); t.start()"
    sleep = "open('/proc/self/comm', 'w').write(') R 1 ('); import time; time.sleep(60)"
    busy, sleeper = (subprocess.Popen([sys.executable, "-c", program]) for program in (busy_thread, sleep))
    try:
        before = _seen(busy.pid, "R")  # though its first thread sleeps
        while _seen(busy.pid, "R").cpu_seconds <= before.cpu_seconds:
            pass
        busy.send_signal(signal.SIGSTOP)
        _seen(busy.pid, "T")
        until(lambda: Path(f"/proc/{sleeper.pid}/comm").read_text() == ") R 1 (\n")
        assert _seen(sleeper.pid, "S").cpu_seconds < 1
    finally:
        for each in (busy, sleeper):
            each.kill()
            each.wait()
    assert process_state(busy.pid) is None


@pytest.mark.parametrize("cause", list(Cause))
def test_deaths_without_progress_add_up_by_cause(cause: Cause) -> None:
    """Kills from outside neither hide a fault nor count as one."""
    child, other = Child(SimpleNamespace()), Cause.OWN if cause is Cause.OUTSIDE else Cause.OUTSIDE
    counts = [(child.count_death(other, 7), child.count_death(cause, 7)) for _ in range(3)]
    assert counts == [(1, 1), (2, 2), (3, 3)]
    assert [child.count_death(cause, 8) for _ in range(2)] == [1, 2]  # beyond where it ever was


def test_the_last_line_of_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    """A sparse file of 100 GB, which no machine reads whole."""
    log = tmp_path / "actor-0.log"
    log.touch()
    os.truncate(log, 100 << 30)
    with log.open("ab") as file:
        file.write(b"\nValueError: no such level\n")
    said = crash_report("actor 0", "ended with code 1", 5, 1, log, begin=7)
    assert "The last line of its log: ValueError: no such level (" in said


@pytest.mark.parametrize("code", [0, 1, FATAL])
def test_an_empty_log_is_said_to_be_empty(tmp_path: Path, code: int) -> None:
    """An env that ends its process leaves no traceback, and may choose any code."""
    log = tmp_path / "actor-0.log"
    log.write_text("of an earlier run\n")
    said = crash_report("actor 0", f"ended with code {code}", 5, code, log, begin=log.stat().st_size)
    assert said.startswith(f"actor 0 ended with code {code}, 5 times in a row without progress. It wrote nothing into ")
    assert "traceback" not in said


def test_an_error_of_an_env_is_told_with_the_place_of_its_traceback(tmp_path: Path) -> None:
    log = tmp_path / "actor-0.log"
    error = "mine:factory failed in step() of env 3 at tick 17: KeyError: 'x' (mine.py, line 4)."
    log.write_text(f"Traceback\n{error}\n")
    said = crash_report("actor 0", "met an error of its env", 1, ENV_FAULT, log, begin=0)
    assert said == f"{error} Restarts of actor 0 did not help; the traceback is in {log}."


DEATHS = [
    (1, False, None, ("ended with code 1", Cause.OWN)),
    (-signal.SIGSEGV, False, None, ("was killed by SIGSEGV", Cause.OWN)),
    (-(signal.SIGRTMIN + 1), False, None, (f"was killed by signal {signal.SIGRTMIN + 1}", Cause.OWN)),
    (ENV_FAULT, False, None, ("met an error of its env", Cause.OWN)),
    (DEVICE_FAULT, False, None, ("met a fault of the GPU", Cause.DEVICE)),
    (-signal.SIGKILL, False, None, ("was killed by SIGKILL", Cause.OUTSIDE)),
    (-signal.SIGKILL, False, "was killed for lack of memory", ("was killed for lack of memory", Cause.OWN)),
    (-signal.SIGKILL, True, "was killed for lack of memory", ("hung", Cause.OWN)),
    (-signal.SIGSEGV, False, "was killed for lack of memory", ("was killed by SIGSEGV", Cause.OWN)),
]


@pytest.mark.parametrize(("code", "hung", "starved", "expected"), DEATHS)
def test_a_death_has_a_cause(code: int, hung: bool, starved: str | None, expected: tuple[str, Cause]) -> None:
    assert diagnose(code, hung=hung, oom_kills=SimpleNamespace(explain=lambda: starved)) == expected
