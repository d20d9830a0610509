"""Kill any process at any moment, as often as you like: the weights are those of the undisturbed run.

The last lines that these tests print are their tally.
"""

import os
import random
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ringside.run.children import ChildProcess
from shared.memory.process_table import ProcessTable, Role
from tests.crash.storm import ACTORS, ALL_ROLES, Moment, Storm, Undisturbed, begin
from tests.exact.test_on_policy import METHODS
from tests.shared.process.test_spawning import Unpickled
from tests.support.runs import records, summary
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(1800)
BURST = 20
"""Kills within two seconds."""
LONG = {"total_steps": "14_400"}
"""Thirty rounds."""
EACH = {"snapshot_every_steps": "480"}
"""A snapshot at the end of each round."""
SPANS = {"snapshot_every_steps": "2_880"}
"""Six rounds between two snapshots, which change no weight."""


def burst(storm: Storm, kills: int = BURST, seconds: float = 2.0) -> None:
    """Kill random processes, whatever they are doing: those that only just start, too."""
    target = storm.kills + kills
    while storm.kills < target and storm.rages():
        storm.kill()
        storm.pause(seconds / kills)


def test_a_storm_sees_and_kills_who_has_no_name_yet() -> None:
    process = ChildProcess(target=print, args=(Unpickled(signal.pause),), daemon=True)
    storm: Any = object.__new__(Storm)
    storm.random, storm.kills, storm._struck = random.Random(1), 0, set()
    storm._forked, storm._kills, storm._least = [], Counter(), np.zeros(5)
    storm.board, storm.process = SimpleNamespace(restarts=np.zeros(5)), SimpleNamespace(pid=os.getpid())
    storm.memory = SimpleNamespace(plan=SimpleNamespace(processes=ProcessTable.make({Role.ACTOR: 1})))
    process.start()
    until(lambda: storm.living() == {process.pid: None})
    assert storm.kill() == 1
    process.join()
    assert (process.exitcode, storm.kills, storm.living()) == (-signal.SIGKILL, 1, {})


ON_POLICY = [
    METHODS[method] | {"schedule": schedule, "batch_size": "48"} | LONG | flags
    for method, snapshots in (("ppo", (SPANS, EACH)), ("vtrace", (EACH, SPANS)), ("pqn", (EACH, SPANS)))
    for schedule, flags in zip(("alternate", "concurrent"), snapshots, strict=True)
]
BESIDE = EACH | {"schedule": "alternate", "n_step": "30", "train_every": "160", "total_steps": "4_800"}
BURSTS = [(0, LONG), (1, LONG), (1, LONG | SPANS), (1, BESIDE), *((1, flags) for flags in ON_POLICY)]


@pytest.mark.stress
@pytest.mark.parametrize(("seed", "flags"), BURSTS, ids=[" ".join(flags.values()) for _, flags in BURSTS])
def test_bursts_with_breaths_between(undisturbed: Undisturbed, run_dir: Path, seed: int, flags: dict[str, str]) -> None:
    storm = begin(run_dir, f"bursts of {BURST}, {' '.join(flags.values())}, seed {seed}", seed, **flags)
    while storm.rages():
        burst(storm)
        storm.breathe()
    storm.end(undisturbed(**flags))


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("members", "kills"), [("1", 100), ("2", 200), ("4", 100)])
def test_any_of_a_team_and_its_fork_server(undisturbed: Undisturbed, run_dir: Path, members: str, kills: int) -> None:
    """At any moment of its life and of a round, until so many were killed; the undisturbed run has one member."""
    evaluated = {"eval_every_steps": "9_600"}
    storm = begin(run_dir, f"{members} members", learner_members=members, total_steps="1_000_000", **evaluated)
    while storm.kills < kills:
        burst(storm, 5, 5.0 * storm.random.random())
        storm.breathe()
    storm.process.send_signal(signal.SIGINT)
    storm.end()
    last = summary(run_dir)
    plain = undisturbed(str(last["steps"]), **evaluated)
    assert (last["weights_sha256"], last["episodes"]) == (plain.weights_sha256, plain.episodes)


@pytest.mark.stress
def test_rounds_since_the_newest_snapshot_are_repeated_in_silence(undisturbed: Undisturbed, run_dir: Path) -> None:
    """A snapshot every six rounds; learner and actors go back to it, and no process publishes or records again."""
    storm = begin(run_dir, "between snapshots", **SPANS)
    storm.until(lambda: storm.board.committed >= 4)
    storm.kill(Role.LEARNER, *ACTORS)
    storm.until(storm.all_at_work)
    storm.end(undisturbed("4_800"))
    assert storm.board.redone[Role.LEARNER] >= 2 * 480 // 4, "the updates of two rounds, and perhaps of the fifth"
    assert storm.memory.weights.current == 8, "the first version, and one after every round that learned"
    assert [record["round"] for record in records(run_dir, "round")] == [0, 2, 4, 6, 8]


@pytest.mark.stress
def test_two_at_once(undisturbed: Undisturbed, run_dir: Path) -> None:
    storm = begin(run_dir, "two at once", **LONG)
    pairs = [(one, other) for one in ALL_ROLES for other in ALL_ROLES if one < other]
    storm.random.shuffle(pairs)
    for pair in pairs:
        storm.breathe()
        storm.pause(storm.random.random() * 0.3)  # anywhere in a round
        if storm.rages():
            storm.kill(*pair)
    storm.end(undisturbed(LONG["total_steps"]))
    assert storm.kills >= len(pairs)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(2))
def test_during_start_up(undisturbed: Undisturbed, run_dir: Path, seed: int) -> None:
    """A starting process is killed at a random moment of its start, many times before any process works."""
    storm = begin(run_dir, f"during start-up, seed {seed}", seed)
    while storm.rages() and storm.kills < 40:
        storm.pause(0.3 * storm.random.random())
        storm.kill_one_starting()
    storm.end(undisturbed("4_800"))


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


MOMENTS = [
    (_at_the_end_of_a_round, (Role.LEARNER, Role.INFERENCE), {}),
    (_within_a_snapshot, ACTORS, {}),
    (_within_a_checkpoint, (Role.SCRIBE,), {"checkpoint_every_minutes": "0.001"}),
]


@pytest.mark.stress
@pytest.mark.parametrize(("moment", "roles", "changes"), MOMENTS, ids=["commit", "snapshot", "checkpoint"])
def test_at_the_worst_moment(
    undisturbed: Undisturbed, run_dir: Path, moment: Moment, roles: tuple[int, ...], changes: dict[str, str]
) -> None:
    storm = begin(run_dir, moment.__name__.strip("_").replace("_", " "), **(LONG | changes))
    while storm.rages() and storm.kills < 60:
        storm.until(lambda: moment(storm))
        if storm.rages():
            storm.kill(storm.random.choice(roles))
        storm.until(storm.all_at_work)
    storm.end(undisturbed(LONG["total_steps"]))
    assert storm.kills >= 2, "the moment was met; snapshots are short, and one core sees few of them"
