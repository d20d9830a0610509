"""A run on an env that does not repeat itself survives kills and resumes, and says that it is inexact."""

import signal
from pathlib import Path

from tests.exact.conftest import kill_when, stop_at
from tests.support.runs import begun, finish, records, start, start_words, summary

ENV = {"env": "tests.support.odd_envs:factory@wrong=seed", "total_steps": "1_000_000"}


def test_kills_and_a_resume_cut_episodes_and_the_run_goes_on(run_dir: Path) -> None:
    process, memory = begun(run_dir, **ENV, actions=3)
    for boundary, role in ((3, "actor 0"), (4, "actor 1"), (5, "learner")):
        kill_when(process, role, lambda at=boundary: memory.board.committed >= at)
    output = stop_at(process, memory, 6, signal.SIGINT)
    assert "does not repeat itself after reset(seed=...)" in output
    assert "The run is not exact: a kill or a resume cuts its episodes." in output
    stopped = summary(run_dir)
    assert (stopped["exact"], stopped["inexact_since_steps"], stopped["restarts"]) == (False, 0, 3)
    assert stopped["redone_ticks"] == 0, "no tick was played again"
    finish(start(run_dir, "--resume", str(run_dir), env=ENV["env"], total_steps=str(stopped["steps"] + 1_920)))
    last = summary(run_dir)
    assert (last["finished"], last["exact"], last["inexact_since_steps"]) == (True, False, 0)
    lengths = {record["length"] for record in records(run_dir, "episode")}
    assert len(lengths) == 1, "every fall is whole; those that were cut have no record"


def test_an_exact_run_can_be_required(run_dir: Path) -> None:
    output = finish(start_words("--env", ENV["env"], "--run-dir", str(run_dir), "--require-exact"), code=2)
    assert "Omit --require-exact to train on it all the same." in output
    assert len(output.strip().splitlines()) == 1
    assert not run_dir.exists()
