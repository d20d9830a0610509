"""The promise holds for a learner of several processes: their number changes no weight, and any of them may be killed.

Real runs.
"""

import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from shared.memory.run_memory import Memory
from shared.text import words_of
from tests.exact.conftest import Undisturbed, kill_when, stop_at
from tests.exact.odd_member import BARRIER
from tests.support import runs
from tests.support.runs import begun, finish, flags_in, same_summary, start, start_words, summary, wait_until

pytestmark = [pytest.mark.stress, pytest.mark.timeout(300)]

CATCH = {"env": "tests.support.pixel_game:factory"}
ADAM = flags_in("optimizer=adam optimizer_decay=0.999 optimizer_epsilon=1e-5 clip_gradient=0.5")
CASES = {
    "dqn": CATCH,
    "alternate": CATCH | flags_in("schedule=alternate snapshot_every_steps=480"),
    "rainbow": CATCH | flags_in("method=c51 prioritized double noisy dueling"),
    "ppo": CATCH | ADAM | flags_in("method=ppo epochs=2 schedule=concurrent batch_size=40"),
}
ODD_MEMBER = ("-m", "tests.exact.odd_member")
SECONDS = 150.0
"""Longest run, and longest way from one kill to the next, on a machine under load."""


def _begun(run_dir: Path, case: str, *, members: int, **changes: str) -> tuple[subprocess.Popen[str], Memory]:
    return begun(run_dir, actions=3, **CASES[case] | {"learner_members": str(members)} | changes)


@pytest.fixture
def alone(undisturbed: Undisturbed) -> Undisturbed:
    """Run directory of a run by one member, by its case."""
    return lambda case: undisturbed(**CASES[case])


def _require_same(run_dir: Path, alone: Path) -> None:
    last = same_summary(run_dir, alone)
    assert last["updates"] > 0
    assert last["exact"]


@pytest.mark.parametrize(("case", "members", "later"), [("dqn", 2, 1), ("ppo", 1, 4)])
def test_a_killed_member_and_a_resume_with_another_number_change_nothing(
    alone: Undisturbed, run_dir: Path, case: str, members: int, later: int
) -> None:
    process, memory = _begun(run_dir, case, members=members)
    half = memory.run_schedule.updates_before(memory.run_schedule.rounds // 2)
    kill_when(process, "member 1" if members > 1 else "learner", lambda: memory.board.updates[0] >= half)
    stop_at(process, memory, 7)
    stopped = summary(run_dir)
    assert 7 <= stopped["rounds"] < 10
    assert stopped["restarts"] == members, "the learner, too"
    finish(start(run_dir, "--resume", str(run_dir), learner_members=str(later), env=CATCH["env"]))
    _require_same(run_dir, alone(case))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("preset", ["der", "der-dopamine", "drq"])
def test_an_update_every_step_survives_kills_and_a_stop(tmp_path: Path, run_dir: Path, preset: str) -> None:
    """One env and the sizes of the preset: two members, a killed one, a killed actor, a stop, and four members."""
    flags = {"total_steps": 320, "learning_starts": 200, "snapshot_every_steps": 40}
    words = "--plain", *words_of(game="breakout", preset=preset, learner_parts=4, **flags)
    finish(start_words(*words, "--learner-members", "1", "--run-dir", str(tmp_path / "alone")), 2 * SECONDS)
    process = start_words(*words, "--learner-members", "2", "--run-dir", str(run_dir))
    memory = runs.memory_of(process, run_dir)
    for boundary, role in ((225, "member 1"), (262, "actor 0")):
        kill_when(process, role, lambda boundary=boundary: memory.board.committed >= boundary, SECONDS)
    wait_until(process, lambda: memory.board.committed >= 270, SECONDS)
    stop_at(process, memory, 285)
    assert summary(run_dir)["restarts"] == 3
    assert 285 <= summary(run_dir)["rounds"] < 320
    finish(start_words("--plain", "--resume", str(run_dir), "--learner-members", "4"), 2 * SECONDS)
    assert same_summary(run_dir, tmp_path / "alone")["updates"] == 120


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("members", [2, 4])
def test_the_number_of_members_changes_nothing(alone: Undisturbed, run_dir: Path, case: str, members: int) -> None:
    finish(_begun(run_dir, case, members=members)[0], SECONDS)
    _require_same(run_dir, alone(case))
    assert summary(run_dir)["restarts"] == 0


@pytest.mark.parametrize("case", CASES)
def test_any_member_may_be_killed_again_and_again(alone: Undisturbed, run_dir: Path, case: str) -> None:
    process, memory = _begun(run_dir, case, members=4)
    schedule, board = memory.run_schedule, memory.board
    kills = ("member 1", "learner", "member 3", "member 2", "learner")
    for n, role in enumerate(kills):
        # A round of `alternate` has few updates, so the places are parts of the run.
        updates = (n + 1) * schedule.updates_before(schedule.rounds) // (len(kills) + 2)
        kill_when(process, role, lambda n=n, u=updates: board.restarts.sum() == 4 * n and board.updates[0] > u, SECONDS)
    finish(process, SECONDS)
    _require_same(run_dir, alone(case))
    assert summary(run_dir)["restarts"] == 20


@pytest.mark.parametrize("stopped", ["learner", "member 1"])
def test_a_member_that_is_stopped_is_replaced(alone: Undisturbed, run_dir: Path, stopped: str) -> None:
    process, memory = _begun(run_dir, "dqn", members=2)
    wait_until(process, lambda: memory.board.updates[0] >= 300)
    runs.child(process, stopped).send_signal(signal.SIGSTOP)
    finish(process)
    _require_same(run_dir, alone("dqn"))
    assert summary(run_dir)["restarts"] == 2


def test_numbers_that_are_not_finite_are_reported_once(run_dir: Path) -> None:
    """All members repeat the round for the report, and the learner writes it."""
    process, memory = _begun(run_dir, "dqn", members=2, total_steps="1_000_000")
    wait_until(process, lambda: memory.board.committed >= 3)
    memory.ring.field["raw_reward"][:] = np.nan
    output = finish(process, code=1)
    (path,) = run_dir.glob("nan-report-*.json")
    assert f"{path} says which update did it" in output


def test_members_that_compute_other_numbers_end_the_run(run_dir: Path) -> None:
    process = start(run_dir, program=ODD_MEMBER, **CATCH | {"learner_members": "2"})
    assert "The members of the learner disagree about the parameters after round" in finish(process, code=1)


@pytest.mark.parametrize("barrier", range(501, 506))
def test_a_member_killed_at_any_wait_of_an_update_changes_nothing(
    alone: Undisturbed, run_dir: Path, barrier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BARRIER, str(barrier))
    finish(start(run_dir, program=ODD_MEMBER, **CATCH | {"learner_members": "2"}), SECONDS)
    assert summary(run_dir)["restarts"] == 2, "the learner, too"
    _require_same(run_dir, alone("dqn"))
