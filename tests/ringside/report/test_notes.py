"""Statements of a report before its figures: only rules that the runs followed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringside.report.comparison import Comparison, compare
from ringside.report.notes import notes, training_rules
from ringside.report.published import FRAMES
from ringside.report.records import load
from tests.support.written_runs import write_run

ENV = "tests.support.pixel_game:factory"
SEEDS = [{"seed": seed, "final": -5.0} for seed in (1, 2, 3)]


def compared(tmp_path: Path, *runs: dict[str, Any]) -> Comparison:
    return compare([load(write_run(tmp_path / str(i), **run)) for i, run in enumerate(runs)])


def said(tmp_path: Path, *runs: dict[str, Any]) -> list[str]:
    return notes(compared(tmp_path, *runs), None)


def test_usual_settings_give_no_note_and_a_single_game_is_not_missed_in_aggregates(tmp_path: Path) -> None:
    found = compared(tmp_path, *SEEDS)
    assert notes(found, None) == notes(found, published_frames=16_000) == []
    assert said(tmp_path / "other", *(run | {"game": "adventure"} for run in SEEDS)) == []


def test_ends_lengths_and_published_agents(tmp_path: Path) -> None:
    found = compared(tmp_path, {"ended": None}, {"seed": 2, "ended": False}, {"seed": 3, "returns": [1.0]})
    lengths = [
        f"Still running, or crashed, and reported up to their last round: {tmp_path / '0'}.",
        f"Stopped early, so the figures are those up to that point: {tmp_path / '1'}.",
        "The runs have unequal lengths, 1,000 to 4,000 steps.",
    ]
    published = "These runs saw at most 16,000 frames, the published agents 200,000,000."
    assert notes(found, None)[:3] == lengths
    assert notes(found, FRAMES)[:4] == [*lengths, published]
    assert published not in notes(found, None)


def test_many_runs_are_not_all_named(tmp_path: Path) -> None:
    told = said(tmp_path, *({"seed": seed, "final": 1.0, "ended": False} for seed in range(1, 8)))
    assert told[0].endswith(f"{tmp_path / '3'} and 3 more.")


@pytest.mark.parametrize(("seeds", "part"), [(1, "one seed only"), (2, "two seeds only")])
def test_few_seeds(tmp_path: Path, seeds: int, part: str) -> None:
    (note,) = said(tmp_path, *SEEDS[:seeds])
    assert part in note


@pytest.mark.parametrize(
    ("changes", "rules", "note"),
    [
        (
            {"judged": {"episodes": 1}},
            "1 episode of at most 18,000 frames with greedy actions and epsilon 0.05",
            "Scores are means of 1 episode only, where the protocol has 30.",
        ),
        (
            {"judged": {"eval_epsilon": 0.001}},
            "30 episodes of at most 18,000 frames with greedy actions and epsilon 0.001",
            "Evaluated with epsilon 0.001; the protocol has 0.05.",
        ),
        (
            {"judged": {"eval_max_frames": 108_000}},
            "30 episodes of at most 108,000 frames with greedy actions and epsilon 0.05",
            "Episodes were evaluated up to 108,000 frames; the protocol ends them after 18,000.",
        ),
        (
            {"judged": {"eval_actions": "sample", "eval_epsilon": 0.0}},
            "30 episodes of at most 18,000 frames with sampled actions",
            None,
        ),
        (
            {"protocol": "dopamine", "judged": {"episodes": 9, "eval_steps": 125_000}},
            "9 episodes, as many as fill 125,000 steps, of at most 108,000 frames with greedy actions and epsilon "
            "0.001",
            None,
        ),
        (
            {"protocol": "dopamine", "judged": {"episodes": 2}},
            "2 episodes of at most 108,000 frames with greedy actions and epsilon 0.001",
            "Scores are means of 2 episodes only, where the protocol has 30, and of finished weights as many as fill "
            "125,000 steps.",
        ),
        (  # an evaluation beside training: what its records say
            {"final": None, "eval_episodes": 2},
            "2 episodes of at most 18,000 frames with greedy actions and epsilon 0.05",
            "Scores are means of 2 episodes only, where the protocol has 30.",
        ),
    ],
)
def test_rules_of_evaluations_and_where_they_are_not_the_protocols(
    tmp_path: Path, changes: dict[str, Any], rules: str, note: str | None
) -> None:
    judged = changes.get("judged", {}) | {"eval_actions": changes.get("judged", {}).get("eval_actions", "greedy")}
    found = compared(tmp_path, *(seed | changes | {"judged": judged} for seed in SEEDS))
    assert found.evaluation_rules == rules
    assert notes(found, None) == ([] if note is None else [note])


def test_runs_that_were_judged_differently(tmp_path: Path) -> None:
    odd = {"episodes": 1, "device": "cuda:0", "precision": "tf32", "version": 3}
    assert said(tmp_path, *SEEDS[:2], SEEDS[2] | {"judged": odd}) == [
        "The runs were evaluated under different rules: 30 episodes of at most 18,000 frames with greedy actions and "
        "epsilon 0.05; 1 episode of at most 18,000 frames with greedy actions and epsilon 0.05.",
        "Scores are means of 1 episode only, where the protocol has 30.",
        f"The final evaluation is not of the last weights in {tmp_path / '2'}.",
        "Evaluations were computed differently: fp32 on cpu, tf32 on cuda:0.",
    ]


def test_a_mean_of_training_episodes_that_are_few(tmp_path: Path) -> None:
    found = compared(tmp_path, *({"seed": seed, "evaluations": []} for seed in (1, 2, 3)))
    assert found.evaluation_rules is None
    (note,) = notes(found, None)
    assert note.startswith("Fewer than 100 training episodes ended in ")
    assert note.endswith("the mean is of those that did, 4 in the shortest run.")


def test_an_environment_of_its_own_follows_no_rules_of_atari(tmp_path: Path) -> None:
    own = {"env": ENV, "evaluations": [1.0], "eval_epsilon": 0.05, "eval_max_frames": 108_000, "eval_episodes": 30}
    found = compared(tmp_path, *({"seed": seed, **own} for seed in (1, 2, 3)))
    assert found.evaluation_rules == "30 episodes of at most 27,000 steps with greedy actions and epsilon 0.05"
    ((name, words),) = training_rules(found.runs)
    assert name == ENV
    assert notes(found, FRAMES)[-1].startswith(f"Not a game of ale-py: {ENV}.")
    for wrong in ("no-op", "frames", "sticky", "nature"):
        assert wrong not in words
    (pong, small) = training_rules(compared(tmp_path / "pong", {}, {"frame_size": 64}).runs)
    assert pong == (
        "Protocol nature",
        "no sticky actions, 1 to 30 no-ops at the start, minimal action set, 4 frames a step, training episodes of at "
        "most 108,000 frames",
    )
    assert small[1] == f"{pong[1]}, with --frame-size 64 --frame-color gray --frame-stack 4"


def test_arithmetic_and_bits(tmp_path: Path) -> None:
    found = compared(
        tmp_path, *(seed | {"device": device} for seed, device in zip(SEEDS, ("cpu", "cuda:0", "cpu"), strict=True))
    )
    assert found.runs[0].summary is not None
    found.runs[0].summary["exact"] = False
    assert notes(found, None) == [
        f"A repetition would not give the same bits: {found.runs[0].path}.",
        "Runs of nature were computed differently: --device cpu and cuda:0.",
    ]
    precisions = (run | {"precision": precision} for precision in ("fp32", "bf16") for run in SEEDS)
    assert said(tmp_path / "precision", *precisions) == [
        "The configurations differ in --precision alone: fp32 and bf16."
    ]


@pytest.mark.parametrize("cores", [0, -1, None, "two", 2])
def test_cores_that_others_used(tmp_path: Path, cores: object) -> None:
    runs = [write_run(tmp_path / str(i), **seed) for i, seed in enumerate(SEEDS)]
    for run, taken in zip(runs, (0.1, 1.5, None), strict=True):
        summary = json.loads((run / "summary.json").read_text())
        summary["limit"] |= {"usable_cores": cores, "other_programs_cores": taken, "stolen_cores": 0.0}
        (run / "summary.json").write_text(json.dumps(summary))
    sentence = f"Other programs, or other machines, used up to 75% of the cores of {runs[1]}: their speeds are too low."
    assert notes(compare([load(run) for run in runs]), None) == ([sentence] if cores == 2 else [])
