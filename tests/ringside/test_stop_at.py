"""--stop-at: the score that counts, and a run that ends by it and continues with other evaluations."""

from dataclasses import replace
from pathlib import Path

import pytest

from ringside.records.metrics import EvaluationStatus
from ringside.run.training import score_reached
from ringside.watch.status import Status
from shared.config.settings import Config
from tests.support.runs import finish, records, start, summary

STATUS = Status("pong", "nature", "concurrent", Path(), total_steps=1, rounds=1)
EVALUATED = EvaluationStatus(100, 30, mean_return=18.0, best_mean=20.0)


MEANS = [
    (0, replace(STATUS, episodes=100, mean_return_100=18.0), True),
    (0, replace(STATUS, episodes=99, mean_return_100=18.0), False),
    (0, replace(STATUS, episodes=100, mean_return_100=17.9), False),
    (0, STATUS, False),
    (1, replace(STATUS, episodes=100, mean_return_100=20.0), False),
    (1, replace(STATUS, evaluation=EVALUATED), True),
    (1, replace(STATUS, evaluation=replace(EVALUATED, mean_return=17.0)), False),
]


@pytest.mark.parametrize(("every", "status", "stops"), MEANS)
def test_a_run_stops_at_the_mean_that_counts(every: int, status: Status, stops: bool) -> None:
    config = Config().with_settings(stop_at=18.0, eval_every_steps=every)
    sentence = score_reached(config, status)
    assert sentence is None if not stops else sentence is not None and "18.00, has reached --stop-at 18" in sentence
    assert score_reached(Config(), status) is None


@pytest.mark.stress
def test_a_run_that_reached_its_score_goes_on_with_other_evaluations(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("eval_every_steps = 960\neval_episodes = 3\neval_envs = 2\nstop_at = -1000\n")
    game = {"env": "tests.support.pixel_game:factory"}
    output = finish(start(run_dir, "--config", str(tmp_path / "mine.toml"), **game, total_steps="9_600"))
    assert "has reached --stop-at -1000. Stopping: the run is saved " in output
    stopped = summary(run_dir)
    assert (stopped["finished"], records(run_dir, "evaluation")[0]["episodes"]) == (False, 3)
    end = (stopped["steps"] // 960 + 2) * 960
    assert "--resume" in output
    assert "--stop-at unset" in output, "the same score would end the run at once"
    words = ("--eval-every-steps", "480", "--eval-episodes", "2", "--stop-at", "unset")
    finish(start(run_dir, "--resume", str(run_dir), *words, **game, total_steps=str(end)))
    after = records(run_dir, "evaluation")
    assert [record["evaluation"] for record in after] == list(range(len(after)))
    later = [record["steps"] for record in after if record["steps"] > stopped["steps"]]
    assert later == list(range(stopped["steps"] + 480, end + 1, 480))
    assert (after[-1]["episodes"], summary(run_dir)["finished"]) == (2, True)
