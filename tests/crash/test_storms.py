"""Kill any process at any moment, as often as you like: the weights are those of the undisturbed run.

The last lines that these tests print are their tally.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ringside.run.children import ChildProcess
from shared.machine.proc_files import stat_fields
from shared.memory.process_table import ProcessTable, Role
from shared.memory.run_memory import Memory
from tests.crash.storm import Storm, Tally, Undisturbed, begin
from tests.exact.test_on_policy import METHODS
from tests.shared.process.test_spawning import Unpickled
from tests.support.runs import records
from tests.support.waiting import until

BURST = 20
"""Kills within two seconds."""
LONG = {"total_steps": "14_400"}
"""Thirty rounds."""
EACH = {"snapshot_every_steps": "480"}
"""A snapshot at the end of each round."""
SPANS = {"snapshot_every_steps": "2_880"}
"""Six rounds between two snapshots, which change no weight."""
ACTORS = (Role.ACTOR, Role.ACTOR + 1)
ALL = (Role.INFERENCE, Role.LEARNER, Role.SCRIBE, Role.EVALUATOR, *ACTORS)


def burst(storm: Storm, kills: int = BURST, seconds: float = 2.0) -> None:
    """Kill random processes, whatever they are doing: those that only just start, too."""
    target = storm.tally.kills + kills
    while storm.tally.kills < target and storm.rages():
        storm.kill()
        storm.pause(seconds / kills)


def test_a_storm_sees_and_kills_who_has_no_name_yet() -> None:
    process = ChildProcess(target=print, args=(Unpickled(signal.pause),), daemon=True)
    storm = object.__new__(Storm)
    storm.process = cast("subprocess.Popen[str]", SimpleNamespace(pid=os.getpid()))
    storm.memory = cast(Memory, SimpleNamespace(plan=SimpleNamespace(processes=ProcessTable.make({Role.ACTOR: 1}))))
    storm.random, storm.tally, storm._struck = random.Random(1), Tally("one"), set()
    process.start()
    until(lambda: storm.living() == {process.pid: None})
    assert storm.kill() == 1
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert storm.tally.kills == 1
    assert storm.living() == {}


@pytest.mark.parametrize(("seconds", "early"), [(0.9, 1), (1.1, 0)])
def test_a_kill_in_the_first_second_is_counted_as_such(
    monkeypatch: pytest.MonkeyPatch, seconds: float, early: int
) -> None:
    started = int(stat_fields(Path("/proc/self/stat"))[19]) / os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(time, "clock_gettime", lambda clock: started + seconds)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    storm = object.__new__(Storm)
    storm.tally, storm._struck = Tally("one"), set()
    storm._strike(os.getpid(), signal.SIGKILL)
    assert (storm.tally.kills, storm.tally.early) == (1, early)


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_a_burst_of_kills_changes_nothing(undisturbed: Undisturbed, tmp_path: Path) -> None:
    storm = begin(tmp_path / "run", "one burst")
    storm.until(lambda: storm.board.committed >= 3)
    burst(storm)
    storm.until(storm.all_at_work)
    storm.end(undisturbed("4_800"))
    assert storm.tally.kills == BURST


ON_POLICY = [
    METHODS[method] | {"schedule": schedule, "batch_size": "48"} | LONG | snapshots
    for method, schedule, snapshots in (
        ("ppo", "alternate", SPANS),
        ("ppo", "concurrent", EACH),
        ("vtrace", "alternate", EACH),
        ("vtrace", "concurrent", SPANS),
        ("pqn", "alternate", EACH),
        ("pqn", "concurrent", SPANS),
    )
]
BURSTS = [(0, LONG), (1, LONG), (1, LONG | SPANS), *((1, flags) for flags in ON_POLICY)]


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("seed", "flags"), BURSTS, ids=[" ".join(flags.values()) for _, flags in BURSTS])
def test_bursts_with_a_breath_between_them(
    undisturbed: Undisturbed, tmp_path: Path, seed: int, flags: dict[str, str]
) -> None:
    storm = begin(tmp_path / "run", f"bursts of {BURST}, {' '.join(flags.values())}, seed {seed}", seed, **flags)
    while storm.rages():
        burst(storm)
        storm.breathe()
    storm.end(undisturbed(**flags))


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("breathes", [True, False])
def test_the_fork_server_and_another(undisturbed: Undisturbed, tmp_path: Path, breathes: bool) -> None:
    """At any moment of its life and of a round; a process that it did not fork is killed at the same time."""
    storm = begin(tmp_path / "run", f"the fork server, {'now and then' if breathes else 'again and again'}", **LONG)
    while storm.rages() and storm.server_kills < 40:
        storm.kill_server()
        storm.kill(storm.random.choice((Role.SCRIBE, Role.EVALUATOR, *ACTORS)))
        if breathes:
            storm.breathe()
        storm.pause(3.0 * storm.random.random())
    storm.end(undisturbed(LONG["total_steps"]))


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_one_every_three_seconds_for_a_whole_run(undisturbed: Undisturbed, tmp_path: Path) -> None:
    storm = begin(tmp_path / "run", "one every three seconds", **LONG)
    while storm.rages():
        storm.pause(3.0)
        storm.kill()
    storm.end(undisturbed(LONG["total_steps"]))


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_rounds_since_the_newest_snapshot_are_repeated_in_silence(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """A snapshot every six rounds; learner and actors go back to it, and no process publishes or records again."""
    storm = begin(tmp_path / "run", "between snapshots", **SPANS)
    storm.until(lambda: storm.board.committed >= 4)
    storm.kill(Role.LEARNER, *ACTORS)
    storm.until(storm.all_at_work)
    storm.end(undisturbed("4_800"))
    assert storm.board.redone[Role.LEARNER] >= 2 * 480 // 4, "the updates of two rounds, and perhaps of the fifth"
    assert storm.memory.weights.current == 8, "the first version, and one after every round that learned"
    assert [record["round"] for record in records(tmp_path / "run", "round")] == [0, 2, 4, 6, 8]


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_two_at_once(undisturbed: Undisturbed, tmp_path: Path) -> None:
    storm = begin(tmp_path / "run", "two at once", **LONG)
    pairs = [(one, other) for one in ALL for other in ALL if one < other]
    storm.random.shuffle(pairs)
    for pair in pairs:
        storm.breathe()
        storm.pause(storm.random.random() * 0.3)  # anywhere in a round
        if storm.rages():
            storm.kill(*pair)
    storm.end(undisturbed(LONG["total_steps"]))
    assert storm.tally.kills >= len(pairs)


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
def test_during_start_up(undisturbed: Undisturbed, tmp_path: Path, seed: int) -> None:
    """A starting process is killed at a random moment of its start, many times before any process works."""
    storm = begin(tmp_path / "run", f"during start-up, seed {seed}", seed)
    while storm.rages() and storm.tally.kills < 40:
        storm.pause(0.3 * storm.random.random())
        storm.kill_one_starting()
    storm.end(undisturbed("4_800"))


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_in_the_first_second_of_a_life(undisturbed: Undisturbed, tmp_path: Path, seed: int) -> None:
    """A process that was just started is killed, before or after it has its name; if there is none, any other."""
    storm = begin(tmp_path / "run", f"in the first second of a life, seed {seed}", seed, **LONG)
    while storm.rages() and storm.tally.early < 80:
        storm.pause(0.4 * storm.random.random())
        if storm.rages() and not storm.kill_one_early():
            storm.kill()
    storm.end(undisturbed(LONG["total_steps"]))
    assert storm.tally.early == 80


def _at_the_end_of_a_round(storm: Storm) -> bool:
    """True if all ticks and updates of the present round are done and the commit is due."""
    run_schedule, round_ = storm.memory.run_schedule, storm.board.committed
    ticks = storm.board.lane_done.values.min() >= (round_ + 1) * run_schedule.round_ticks - 1
    return bool(round_ >= 0 and ticks and storm.board.updates[0] >= run_schedule.updates_before(round_ + 1))


def _within_a_snapshot(storm: Storm) -> bool:
    """True if a lane has done the ticks of a round and its snapshot of the next boundary is not whole."""
    ended = storm.board.lane_done.values // storm.memory.run_schedule.round_ticks
    return bool((ended > storm.board.lane_finished.values).any())


def _within_a_checkpoint(storm: Storm) -> bool:
    """True if a file of a checkpoint is half-written."""
    return any((storm.run_dir / "checkpoints").glob(".*"))


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "moment", "roles", "changes"),
    [
        ("during a commit", _at_the_end_of_a_round, (Role.LEARNER, Role.INFERENCE), {}),
        ("while a snapshot is written", _within_a_snapshot, ACTORS, {}),
        ("during a checkpoint", _within_a_checkpoint, (Role.SCRIBE,), {"checkpoint_every_minutes": "0.001"}),
    ],
    ids=["commit", "snapshot", "checkpoint"],
)
def test_at_the_worst_moment(
    undisturbed: Undisturbed,
    tmp_path: Path,
    name: str,
    moment: Callable[[Storm], bool],
    roles: tuple[int, ...],
    changes: dict[str, str],
) -> None:
    storm = begin(tmp_path / "run", name, **(LONG | changes))
    while storm.rages() and storm.tally.kills < 60:
        storm.until(lambda: moment(storm))
        if storm.rages():
            storm.kill(storm.random.choice(roles))
        storm.until(storm.all_at_work)
    storm.end(undisturbed(LONG["total_steps"]))
    assert storm.tally.kills >= 2, "the moment was met; snapshots are short, and one core sees few of them"
