"""The promise holds for what came after the DQN of 2015, too: methods, noise, several steps, priorities.

Real runs of Breakout whose window wraps, as in test_exact.py, but shorter: six rounds, of which four learn. All at once
is what `make test` compares: the DQN alone takes `make stress`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.runs import begun, finish, gone, kill, same_summary, start, summary, wait_until

EVERYTHING = (
    *("--method", "iqn", "--iqn-samples", "4", "--iqn-policy-samples", "4", "--munchausen", "--dueling", "--noisy"),
    *("--n-step", "3", "--prioritized"),
)
CATEGORICAL = ("--method", "c51", "--double", "--prioritized", "--importance-start", "0.6", "--importance-end", "0.6")
QUANTILES = (
    *("--method", "qr-dqn", "--atoms", "7", "--double", "--value-rescaling", "--normalize", "last", "--n-step", "5"),
    *("--epsilon-ladder", "3", "--clip-gradient", "10"),
)
NORMALIZED = (*EVERYTHING, "--normalize", "all", "--initial", "orthogonal")
BTR = (*EVERYTHING, "--pooling", "--spectral-norm", "--normalize", "last", "--clip-gradient", "10")
PRIORITIES = ("--prioritized", "--n-step", "3")
OWN = ("--network", "tests.support.own_networks:Residual")

SHORT = {"total_steps": "2_880", "replay_size": "1_440", "optimizer": "adam", "optimizer_decay": "0.999"}
IMPALA = SHORT | {"network": "impala", "train_every": "40"}
"""A residual network takes long on a CPU."""
ALTERNATE = SHORT | {"schedule": "alternate", "snapshot_every_steps": "480"}
ANNEALED = SHORT | {"optimizer": "radam", "learning_rate_end": "0", "anneal_steps": "2_880"}
RARELY = SHORT | {"train_every": "1200"}
"""Most rounds have no update at all."""

COMBINATIONS = [
    pytest.param(NORMALIZED, ANNEALED | {"train_every": "8"}, id="everything"),
    *(
        pytest.param(words, flags, id=name, marks=pytest.mark.stress)
        for name, words, flags in (
            ("categorical", CATEGORICAL, SHORT),
            ("quantiles", QUANTILES, SHORT),
            ("btr", BTR, IMPALA),
            ("alternate", EVERYTHING, ALTERNATE),
            ("rarely", PRIORITIES, RARELY),
            ("bf16", EVERYTHING, SHORT | {"precision": "bf16"}),
            ("own", OWN, SHORT),
            ("own-bf16", OWN + EVERYTHING, SHORT | {"precision": "bf16"}),
        )
    ),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("words", "flags"), COMBINATIONS)
def test_nothing_that_happens_to_a_run_changes_its_weights(
    tmp_path: Path, words: tuple[str, ...], flags: dict[str, str]
) -> None:
    """Two actors, a killed actor, a killed learner, a stop, and a resume with four, against one actor undisturbed."""
    finish(start(tmp_path / "plain", *words, actors="1", **flags))
    undisturbed = summary(tmp_path / "plain")
    assert undisturbed["episodes"] > 0
    every = int(flags.get("train_every", 4))
    assert undisturbed["updates"] == 2_880 // every - 960 // every

    run_dir = tmp_path / "run"
    process, memory = begun(run_dir, *words, actors="2", **flags)
    run_schedule, board = memory.run_schedule, memory.board
    learns, rounds = run_schedule.first_learning_round, run_schedule.rounds
    wait_until(
        process,
        lambda: board.lane_done.values.min() >= learns * run_schedule.round_ticks + run_schedule.round_ticks // 2,
    )
    kill(process, "actor 0")
    later = learns + (rounds - learns) // 4
    wait_until(process, lambda: board.committed >= later and board.updates[0] > run_schedule.updates_before(later))
    kill(process, "learner")
    half = learns + (rounds - learns) // 2
    # A supervisor that stops restarts no process.
    wait_until(process, lambda: board.committed >= half and board.restarts.sum() >= 2)
    os.killpg(process.pid, signal.SIGTERM)  # reaches every process, as from systemd and batch systems
    finish(process)
    assert gone(process)
    stopped = summary(run_dir)
    assert 0 < stopped["rounds"] < undisturbed["rounds"]
    assert stopped["restarts"] == 2
    assert stopped["redone_updates"] > 0 or every > 480, "some rounds have no update"
    assert stopped["weights_sha256"] != undisturbed["weights_sha256"]
    finish(start(run_dir, "--resume", str(run_dir), *(words[:2] if "--network" in words else ()), actors="4"))
    assert same_summary(run_dir, tmp_path / "plain")["actors"] == 4


@pytest.mark.stress
def test_a_run_that_has_ended_goes_on_with_its_priorities(tmp_path: Path) -> None:
    """With more --total-steps: what was played fitted into a window that the end had bounded."""
    flags = SHORT | {"replay_size": "1_920"}
    finish(start(tmp_path / "whole", *CATEGORICAL, **flags))
    run_dir = tmp_path / "run"
    finish(start(run_dir, *CATEGORICAL, **(flags | {"total_steps": "1_440"})))
    assert summary(run_dir)["rounds"] == 3
    finish(start(run_dir, "--resume", str(run_dir), total_steps="2_880"))
    same_summary(run_dir, tmp_path / "whole")


@pytest.mark.stress
def test_combined_parts_change_the_weights(tmp_path: Path) -> None:
    """The comparisons above can fail: another beta, or no priorities, and the weights are others."""
    found = set()
    for name, words in (
        ("beta", (*CATEGORICAL[:-2], "--importance-end", "1")),
        ("uniform", ("--method", "c51", "--double")),
        ("same", CATEGORICAL),
    ):
        finish(start(tmp_path / name, *words, **(SHORT | {"total_steps": "1_440"})))
        found.add(summary(tmp_path / name)["weights_sha256"])
    assert len(found) == 3


@pytest.mark.stress
def test_free_comes_back_with_its_priorities(tmp_path: Path) -> None:
    """Not exact, but a killed learner continues."""
    run_dir = tmp_path / "run"
    process, memory = begun(run_dir, *EVERYTHING, **(SHORT | {"schedule": "free"}))
    wait_until(process, lambda: memory.board.committed >= 3)
    kill(process, "learner")
    finish(process)
    assert (summary(run_dir)["rounds"], summary(run_dir)["restarts"]) == (6, 1)
