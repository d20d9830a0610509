"""A run on an env that does not repeat itself survives kills and resumes, and says that it is inexact."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.exact.conftest import stop_at
from tests.support.runs import begun, finish, kill, records, start, start_words, summary, wait_until

ENV = {"env": "tests.support.odd_envs:factory@wrong=seed", "total_steps": "4_800"}


def test_kills_and_a_resume_cut_episodes_and_the_run_goes_on(tmp_path: Path) -> None:
    process, memory = begun(tmp_path / "run", **ENV, actions=3)
    for boundary, role in ((3, "actor 0"), (4, "actor 1"), (5, "learner")):
        wait_until(process, lambda at=boundary: memory.board.committed >= at)
        kill(process, role)
    output = stop_at(process, memory, 6, signal.SIGINT)
    assert "does not repeat itself after reset(seed=...)" in output
    assert "The run is not exact: a kill or a resume cuts its episodes." in output
    stopped = summary(tmp_path / "run")
    assert (stopped["exact"], stopped["inexact_since_steps"], stopped["restarts"]) == (False, 0, 3)
    assert stopped["redone_ticks"] == 0, "no tick was played again"
    finish(start(tmp_path / "run", "--resume", str(tmp_path / "run"), env=ENV["env"]))
    last = summary(tmp_path / "run")
    assert (last["finished"], last["exact"], last["inexact_since_steps"]) == (True, False, 0)
    lengths = {record["length"] for record in records(tmp_path / "run", "episode")}
    assert len(lengths) == 1, "every fall is whole; those that were cut have no record"


def test_an_exact_run_can_be_required(tmp_path: Path) -> None:
    words = ("launch.py", "--env", ENV["env"], "--run-dir", str(tmp_path / "run"), "--require-exact")
    output = finish(start_words(program=words), code=2)
    assert "Omit --require-exact to train on it all the same." in output
    assert len(output.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()
