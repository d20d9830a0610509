"""The promise holds for what came after the DQN of 2015, too: methods, noise, several steps, priorities.

Real runs of Breakout whose window wraps, as in test_exact.py, but shorter: six rounds, of which four learn. All at once
is what `make test` compares: the DQN alone takes `make stress`.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.exact.conftest import kill_when
from tests.support.runs import Flags, begun, finish, flags_in, same_summary, start, summary, wait_until

SHORT = flags_in("total_steps=2_880 replay_size=1_440 optimizer=adam optimizer_decay=0.999")
IQN = flags_in("method=iqn iqn_samples=4 iqn_policy_samples=4 munchausen dueling")
EVERYTHING = SHORT | IQN | flags_in("noisy n_step=3 prioritized")
CATEGORICAL = SHORT | flags_in("method=c51 double prioritized importance_start=0.6 importance_end=0.6")
QUANTILES = SHORT | flags_in("method=qr-dqn atoms=7 double value_rescaling normalize=last n_step=5")
BTR = EVERYTHING | flags_in("network=impala pooling spectral_norm normalize=last clip_gradient=10 train_every=40")
"""A residual network takes long on a CPU."""
ANNEALED = flags_in("optimizer=radam learning_rate_end=0 anneal_steps=2_880 train_every=16")
NORMALIZED = EVERYTHING | ANNEALED | flags_in("normalize=all initial=orthogonal")
RARELY = SHORT | flags_in("prioritized n_step=3 train_every=1200")
"""Most rounds have no update at all."""
OWN = {"network": "tests.support.own_networks:Residual"}

COMBINATIONS: dict[str, Flags] = {
    "everything": NORMALIZED,
    "categorical": CATEGORICAL,
    "quantiles": QUANTILES | flags_in("epsilon_ladder=3 clip_gradient=10"),
    "btr": BTR,
    "alternate": EVERYTHING | flags_in("schedule=alternate snapshot_every_steps=480"),
    "rarely": RARELY,
    "bf16": EVERYTHING | {"precision": "bf16"},
    "own": SHORT | OWN,
    "own-bf16": EVERYTHING | OWN | {"precision": "bf16"},
}
USUAL, *OTHERS = COMBINATIONS
"""The first is what `make test` runs; the others take `make stress`."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [USUAL, *(pytest.param(case, marks=pytest.mark.stress) for case in OTHERS)])
def test_nothing_that_happens_to_a_run_changes_its_weights(tmp_path: Path, run_dir: Path, case: str) -> None:
    """Two actors, a killed actor, a killed learner, a stop, and a resume with four, against one actor undisturbed."""
    flags = COMBINATIONS[case]
    finish(start(tmp_path / "plain", actors="1", **flags))
    undisturbed = summary(tmp_path / "plain")
    assert undisturbed["episodes"] > 0
    every = int(flags.get("train_every", 4))
    assert undisturbed["updates"] == 2_880 // every - 960 // every

    process, memory = begun(run_dir, actors="2", **flags)
    schedule, board = memory.run_schedule, memory.board
    learns, rounds = schedule.first_learning_round, schedule.rounds
    kill_when(process, "actor 0", lambda: board.lane_done.values.min() >= (learns + 0.5) * schedule.round_ticks)
    late = learns + (rounds - learns) // 4
    kill_when(process, "learner", lambda: board.committed >= late and board.updates[0] > schedule.updates_before(late))
    half = learns + (rounds - learns) // 2
    # A supervisor that stops restarts no process.
    wait_until(process, lambda: board.committed >= half and board.restarts.sum() >= 2)
    os.killpg(process.pid, signal.SIGTERM)  # reaches every process, as from systemd and batch systems
    finish(process)
    stopped = summary(run_dir)
    assert 0 < stopped["rounds"] < undisturbed["rounds"]
    assert stopped["restarts"] == 2
    assert stopped["redone_updates"] > 0 or every > 480, "some rounds have no update"
    learned_on = stopped["updates"] < undisturbed["updates"]
    assert (stopped["weights_sha256"] != undisturbed["weights_sha256"]) == learned_on
    finish(start(run_dir, "--resume", str(run_dir), actors="4", **(OWN if OWN.items() <= flags.items() else {})))
    assert same_summary(run_dir, tmp_path / "plain")["actors"] == 4


@pytest.mark.stress
def test_a_run_that_has_ended_goes_on_with_its_priorities(tmp_path: Path, run_dir: Path) -> None:
    """With more --total-steps: what was played fitted into a window that the end had bounded."""
    flags = CATEGORICAL | {"replay_size": "1_920"}
    finish(start(tmp_path / "whole", **flags))
    finish(start(run_dir, **flags | {"total_steps": "1_440"}))
    assert summary(run_dir)["rounds"] == 3
    finish(start(run_dir, "--resume", str(run_dir), total_steps="2_880"))
    same_summary(run_dir, tmp_path / "whole")


@pytest.mark.stress
def test_combined_parts_change_the_weights(tmp_path: Path) -> None:
    """The comparisons above can fail: another beta, or no priorities, and the weights are others."""
    beta, uniform = CATEGORICAL | {"importance_end": "1"}, SHORT | flags_in("method=c51 double")
    found = set()
    for number, flags in enumerate((beta, uniform, CATEGORICAL)):
        finish(start(tmp_path / str(number), **flags | {"total_steps": "1_440"}))
        found.add(summary(tmp_path / str(number))["weights_sha256"])
    assert len(found) == 3


@pytest.mark.stress
def test_free_comes_back_with_its_priorities(run_dir: Path) -> None:
    """Not exact, but a killed learner continues."""
    process, memory = begun(run_dir, **EVERYTHING | {"schedule": "free"})
    kill_when(process, "learner", lambda: memory.board.committed >= 3)
    finish(process)
    assert (summary(run_dir)["rounds"], summary(run_dir)["restarts"]) == (6, 1)
