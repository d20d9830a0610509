"""The bottleneck that a run reports: real runs in which one role is ten times slower or more."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from shared.machine.facts import usable_cores
from tests.support.runs import LAUNCH, finish, records, start, summary

LIGHT = {"envs": "4", "lane_envs": "1", "actors": "1", "inference_threads": "1", "inference_batch": "1"}
LIGHT |= {"round_steps": "100", "learning_starts": "100", "replay_size": "800", "epsilon_steps": "100"}
"""One process of each kind on one core, so that two cores are not all in use, whatever is slow."""

SLOWED = {
    "actors": {"env": "tests.support.slowed:busy", "network": "small", "train_every": "50", "total_steps": "400"},
    "learner": {"env": "tests.support.slowed:idle", "network": "nature", "train_every": "2", "batch_size": "96"}
    | {"total_steps": "1_000"},
    "inference": {"env": "tests.support.slowed:idle", "network": "nature", "train_every": "800", "round_steps": "800"}
    | {"total_steps": "3_200"},
    "scribe": {"env": "tests.support.slowed:idle", "network": "small", "train_every": "16", "batch_size": "4"}
    | {"round_steps": "16", "replay_size": "96", "total_steps": "800"},
    "evaluator": {"env": "tests.support.slowed:idle", "network": "small", "train_every": "50", "total_steps": "1_000"}
    | {"eval_every_steps": "100", "eval_episodes": "400"},
}
PROGRAMS = {"scribe": ("-m", "tests.support.slow_scribe")}
"""Program that launches a run with a slow role that is not an environment."""

pytestmark = pytest.mark.skipif(usable_cores() < 2, reason="on one core all roles wait for it, whichever is slow")


STRESS = [pytest.param(slow, marks=pytest.mark.stress) for slow in SLOWED if slow != "actors"]


@pytest.mark.parametrize("slow", ["actors", *STRESS])
def test_the_slow_role_is_named(tmp_path: Path, slow: str) -> None:
    printed = finish(start(tmp_path / "run", program=PROGRAMS.get(slow, LAUNCH), **(LIGHT | SLOWED[slow])))
    found = summary(tmp_path / "run")
    limit = found["limit"]
    assert limit["role"] == slow
    assert 0.0 < limit["share_of_limit"] <= 1.0
    assert limit["limit_steps_per_second"] == pytest.approx(limit["steps_per_second"] / limit["share_of_limit"])
    # A learner on a CPU has threads enough for two cores; where there are no more, or others take them, these are the
    # limit.
    taken = limit["name"] == "cores" and re.search(rf"{slow} takes? the most", limit["sentence"])
    assert taken or f"{slow} would allow" in limit["sentence"]
    assert "steps/s that" in printed
    assert f"{slow} would allow" in printed or re.search(rf"{slow} takes? the most", printed)
    assert found["roles"].keys() == {"inference", "learner", "scribe", "actor 0"} | ({slow} - {"actors"})
    assert all(role["cores"] > 0 for role in found["roles"].values())
    assert found["memory"]["private_bytes"].keys() == found["roles"].keys()
    if slow == "evaluator":
        assert limit["name"] == "evaluation"
        return
    if slow == "scribe":  # which keeps no record of its own share
        assert found["roles"][slow]["busy"] == max(role["busy"] for role in found["roles"].values())
        return
    rounds = [record for record in records(tmp_path / "run", "round") if record["samples_per_step"]]
    busy = {each: fmean(record[f"{each}_busy"] for record in rounds) for each in ("learner", "inference", "actors")}
    assert max(busy, key=lambda group: busy[group]) == slow
    assert all(0.0 <= share <= 1.0 for share in busy.values())
