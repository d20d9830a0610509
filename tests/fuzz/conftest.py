"""The runs that are mutated, made once."""

import json
from pathlib import Path

import pytest

from shared.process.live import FORMAT, Live
from tests.fuzz.readers import ENV
from tests.support.runs import finish, start

SECONDS = 300.0
"""Seconds after which a small run counts as hung, for a machine under load."""
FLAGS = {"total_steps": "2_400", "replay_size": "960", "checkpoint_every_minutes": "0.001"}
FLAGS |= {"eval_every_steps": "960", "eval_episodes": "2", "eval_envs": "2"}
"""Five rounds, of which two are in the replay; two checkpoints, and weights that did best in an evaluation."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two whole runs: `breakout`, and `catch`, which plays an env of the user's own."""
    directory = tmp_path_factory.mktemp("whole-runs")
    for name, changes in (("breakout", {}), ("catch", {"env": ENV})):
        finish(start(directory / name, **(FLAGS | changes)), SECONDS)
        rules = {"episodes": 4, "eval_epsilon": 0.05, "eval_max_frames": 18_000}
        judged = {"mean": 1.5, "sd": 1.0, "median": 1.0, "best": 3.0, "version": 5} | rules
        (directory / name / "evaluation-final.json").write_text(json.dumps(judged))
        assert len(list((directory / name / "checkpoints").glob("checkpoint-*.json"))) == 2
    live = Live(FORMAT, process=1, started=1, descriptor=3, action_names=("left", "stay", "right"))
    live.write(directory / "catch")
    return directory
