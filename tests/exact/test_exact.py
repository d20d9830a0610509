"""The promise: final weights depend on configuration and seed alone.

Each test compares `weights_sha256` of real runs of Breakout with that of the undisturbed one. All learn for eight
rounds, and every env ends at least one episode (checked once, below). `make test` compares the shorter runs of
test_family.py, test_on_policy.py and test_workers.py.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.root import ROOT
from tests.exact.conftest import Undisturbed, kill_when
from tests.support.runs import SMALL, begun, finish, flags_in, kill, records, same_summary, start, summary, wait_until

pytestmark = pytest.mark.stress


def test_the_run_is_worth_comparing(undisturbed: Undisturbed) -> None:
    assert {record["env"] for record in records(undisturbed(), "episode")} == set(range(int(SMALL["--envs"])))
    last = summary(undisturbed())
    assert (last["rounds"], last["updates"], last["steps"]) == (10, 8 * 480 // 4, 4_800)
    assert (last["redone_ticks"], last["redone_updates"], last["restarts"]) == (0, 0, 0)


@pytest.mark.parametrize("change", ["actors=1", "actors=4", "seed=2"])
def test_the_seed_changes_weights_and_the_actors_do_not(undisturbed: Undisturbed, run_dir: Path, change: str) -> None:
    finish(start(run_dir, **flags_in(change)))
    assert (summary(run_dir)["weights_sha256"] == summary(undisturbed())["weights_sha256"]) == ("actors" in change)


FAILING_CALLBACK = """
import json, sys, ringside
def fail(status):
    if status.updates > 300:
        raise LookupError("what is plotted here?")
ringside.train(on_status=fail, **json.loads(sys.argv[1]))
"""


def test_a_callback_that_fails_loses_nothing(undisturbed: Undisturbed, run_dir: Path) -> None:
    settings: dict[str, object] = {
        flag.removeprefix("--").replace("-", "_"): int(word) if word.replace("_", "").isdigit() else word
        for flag, word in SMALL.items()
    }
    words = [sys.executable, "-c", FAILING_CALLBACK, json.dumps(settings | {"run_dir": str(run_dir)})]
    failed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert failed.returncode == 1
    assert "LookupError: what is plotted here?" in failed.stderr
    assert "Learning begins in" in failed.stdout
    assert "updates/s" in failed.stdout, "a script speaks as the command does"
    assert 0 < summary(run_dir)["rounds"] < 10
    finish(start(run_dir, "--resume", str(run_dir)))
    assert summary(run_dir)["weights_sha256"] == summary(undisturbed())["weights_sha256"]


def test_one_bit_of_one_frame_changes_the_weights(tmp_path: Path) -> None:
    """The comparison can fail: the same game, but one bit of one frame of each env is another."""
    for name, env in (("plain", "tests.support.pixel_game:factory"), ("flipped", "tests.exact.flipped:Flipped")):
        finish(start(tmp_path / name, env=env))
    assert summary(tmp_path / "plain")["weights_sha256"] != summary(tmp_path / "flipped")["weights_sha256"]


SPANS = flags_in("snapshot_every_steps=400 total_steps=1_600 learning_starts=400 replay_size=800")
ALTERNATE = SPANS | flags_in("schedule=alternate lane_envs=1 inference_batch=1")


@pytest.mark.parametrize("envs", ["1", "8"])
def test_alternate_is_exact_too(tmp_path: Path, run_dir: Path, envs: str) -> None:
    """Schedule `alternate`: the learner is killed far from its last snapshot and does hundreds of updates again."""
    flags = ALTERNATE | {"envs": envs}
    finish(start(tmp_path / "plain", actors="1", **flags))
    process, memory = begun(run_dir, actors="4" if envs == "8" else "1", **flags)
    kill_when(process, "learner", lambda: memory.board.updates[0] >= 150)
    kill(process, "actor 0")
    wait_until(process, lambda: memory.board.restarts.sum() == 2 and memory.board.updates[0] >= 200)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert 0 < summary(run_dir)["rounds"] < summary(tmp_path / "plain")["rounds"]
    assert summary(run_dir)["restarts"] == 2
    finish(start(run_dir, "--resume", str(run_dir), actors="2" if envs == "8" else "1"))
    same_summary(run_dir, tmp_path / "plain")
