"""Evaluation beside training: every one of a fixed version, and the same with any number of actors and kills."""

from pathlib import Path

import pytest

from tests.exact.conftest import kill_when
from tests.support.runs import begun, evaluations, finish, flags_in, start, summary

CATCH = {"env": "tests.support.pixel_game:factory"}
FLAGS = CATCH | flags_in("eval_every_steps=960 eval_episodes=6 eval_envs=4 total_steps=3_840")
METHODS = {"greedy": "", "sampled": "method=a2c schedule=alternate snapshot_every_steps=480"}


@pytest.mark.stress
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_evaluations_do_not_depend_on_who_plays_or_dies(tmp_path: Path, method: str) -> None:
    flags = FLAGS | flags_in(method)
    finish(start(tmp_path / "plain", actors="1", **flags))
    expected = evaluations(tmp_path / "plain")
    assert [record["steps"] for record in expected] == [960, 1_920, 2_880, 3_840]
    assert all(record["episodes"] == 6 for record in expected)
    assert len({record["mean_return"] for record in expected}) > 1
    assert (tmp_path / "plain" / "checkpoints" / "best.safetensors").exists()

    process, memory = begun(tmp_path / "killed", actors="2", **flags, actions=3)
    kill_when(process, "evaluator", lambda: memory.evaluations.queued.read() > 0)
    finish(process)
    assert evaluations(tmp_path / "killed") == expected
    assert summary(tmp_path / "killed")["restarts"] == 1
