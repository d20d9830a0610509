"""Statements of a report before its figures: only rules that the runs followed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringside.report.comparison import Comparison, compare
from ringside.report.notes import notes
from ringside.report.published import FRAMES
from ringside.report.records import load
from ringside.report.rules import training_rules
from tests.support.written_runs import write_run

ENV = "tests.support.pixel_game:factory"
SEEDS = [{"seed": seed, "final": -5.0} for seed in (1, 2, 3)]
OWN = {"env": ENV, "evaluations": [1.0], "eval_epsilon": 0.05, "eval_max_frames": 108_000, "eval_episodes": 30}


def compared(tmp_path: Path, *runs: dict[str, Any]) -> Comparison:
    return compare([load(write_run(tmp_path / str(i), **run)) for i, run in enumerate(runs)])


def said(tmp_path: Path, *runs: dict[str, Any]) -> list[str]:
    return notes(compared(tmp_path, *runs), None)


def test_usual_settings_give_no_note(tmp_path: Path) -> None:
    assert said(tmp_path, *SEEDS) == []
    assert notes(compared(tmp_path / "long", *SEEDS), published_frames=16_000) == []


def test_a_single_game_is_not_missed_in_aggregates(tmp_path: Path) -> None:
    assert said(tmp_path, *(run | {"game": "adventure"} for run in SEEDS)) == []


def test_ends_lengths_and_published_agents(tmp_path: Path) -> None:
    found = compared(tmp_path, {"ended": None}, {"seed": 2, "ended": False}, {"seed": 3, "returns": [1.0]})
    told = notes(found, FRAMES)
    for part in (
        "Still running, or crashed",
        "was stopped early; the figures",
        "unequal lengths, 1,000 to 4,000",
        "16,000 frames",
    ):
        assert any(part in note for note in told), part
    assert not any("published agents" in note for note in notes(found, None))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"judged": {"episodes": 1}},
            "Scores are means of 1 episode only, where the protocol has 30.",
        ),
        (
            {"judged": {"eval_epsilon": 0.001}},
            "Evaluated with epsilon 0.001; the protocol has 0.05.",
        ),
        (
            {"judged": {"eval_max_frames": 108_000}},
            "Episodes were evaluated up to 108,000 frames; the protocol ends them after 18,000.",
        ),
    ],
)
def test_evaluations_that_do_not_follow_the_protocol(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    assert sentence in said(tmp_path, *(seed | changes for seed in SEEDS))


def test_a_protocol_that_counts_steps(tmp_path: Path) -> None:
    runs = [seed | {"protocol": "dopamine", "judged": {"episodes": 9, "eval_steps": 125_000}} for seed in SEEDS]
    found = compared(tmp_path, *runs)
    rules = "9 episodes, as many as fill 125,000 steps, of at most 108,000 frames with greedy actions and epsilon 0.001"
    assert found.evaluation_rules == rules
    assert notes(found, None) == []
    (note,) = said(tmp_path / "few", *(run | {"judged": {"episodes": 2, "eval_steps": None}} for run in runs))
    assert note == (
        "Scores are means of 2 episodes only, where the protocol has 30, and of finished weights as many as fill "
        "125,000 steps."
    )


def test_sampled_actions_are_said_and_have_no_epsilon_of_a_protocol(tmp_path: Path) -> None:
    sampled = {"judged": {"eval_actions": "sample", "eval_epsilon": 0.0}}
    found = compared(tmp_path, *(seed | sampled for seed in SEEDS))
    assert found.evaluation_rules == "30 episodes of at most 18,000 frames with sampled actions"
    assert not [note for note in notes(found, None) if "epsilon" in note]
    mixed = said(tmp_path / "mixed", *SEEDS[:2], SEEDS[2] | sampled)
    assert mixed[0].endswith("18,000 frames with sampled actions.")


def test_runs_that_were_judged_differently(tmp_path: Path) -> None:
    told = said(tmp_path, *SEEDS[:2], SEEDS[2] | {"judged": {"episodes": 1, "device": "cuda:0", "precision": "tf32"}})
    assert told == [
        "The runs were evaluated under different rules: 30 episodes of at most 18,000 frames with greedy actions and "
        "epsilon 0.05; 1 episode of at most 18,000 frames with greedy actions and epsilon 0.05.",
        "Scores are means of 1 episode only, where the protocol has 30.",
        "Evaluations were computed differently: fp32 on cpu, tf32 on cuda:0.",
    ]


def test_evaluations_beside_training_are_what_their_records_say(tmp_path: Path) -> None:
    found = compared(tmp_path, *({"seed": seed, "eval_episodes": 2} for seed in (1, 2, 3)))
    assert found.evaluation_rules == "2 episodes of at most 18,000 frames with greedy actions and epsilon 0.05"
    assert notes(found, None) == ["Scores are means of 2 episodes only, where the protocol has 30."]


def test_a_mean_of_training_episodes_that_are_few(tmp_path: Path) -> None:
    found = compared(tmp_path, *({"seed": seed, "evaluations": []} for seed in (1, 2, 3)))
    assert found.evaluation_rules is None
    (note,) = notes(found, None)
    assert note.startswith("Fewer than 100 training episodes ended in ")
    assert note.endswith("the mean is of those that did, 4 in the shortest run.")


def test_an_evaluation_of_older_weights(tmp_path: Path) -> None:
    (note,) = said(tmp_path, *SEEDS[:2], SEEDS[2] | {"judged": {"version": 3}})
    assert note == f"The final evaluation is not of the last weights in {tmp_path / '2'}."


def test_an_environment_of_its_own_follows_no_rules_of_atari(tmp_path: Path) -> None:
    found = compared(tmp_path, *({"seed": seed, **OWN} for seed in (1, 2, 3)))
    assert found.evaluation_rules == "30 episodes of at most 27,000 steps with greedy actions and epsilon 0.05"
    ((name, words),) = training_rules(found.runs)
    assert name == ENV
    told = " ".join(notes(found, FRAMES))
    assert f"Not a game of ale-py: {ENV}." in told
    for wrong in ("no-op", "frames", "sticky", "nature"):
        assert wrong not in words
    assert "sticky" in training_rules(compared(tmp_path / "pong", {}).runs)[0][1]


def test_arithmetic_and_bits(tmp_path: Path) -> None:
    runs = [
        load(write_run(tmp_path / str(i), **seed, device=device))
        for i, (seed, device) in enumerate(zip(SEEDS, ("cpu", "cuda:0", "cpu"), strict=True))
    ]
    summary = json.loads((runs[0].path / "summary.json").read_text())
    (runs[0].path / "summary.json").write_text(json.dumps(summary | {"exact": False}))
    assert notes(compare([load(run.path) for run in runs]), None) == [
        f"A repetition would not give the same bits: {tmp_path / '0'}.",
        "Runs of nature were computed differently: --device cpu and cuda:0.",
    ]


def test_seeds_of_another_precision(tmp_path: Path) -> None:
    found = said(
        tmp_path, *(run | {"precision": "fp32"} for run in SEEDS), *(run | {"precision": "bf16"} for run in SEEDS)
    )
    assert found == ["The configurations differ in --precision alone: fp32 and bf16."]


def test_cores_that_others_used(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(i), **seed) for i, seed in enumerate(SEEDS)]
    for run, taken in zip(runs, (0.1, 1.5, None), strict=True):
        summary = json.loads((run / "summary.json").read_text())
        summary["limit"] |= {"usable_cores": 2, "other_programs_cores": taken, "stolen_cores": 0.0}
        (run / "summary.json").write_text(json.dumps(summary))
    assert notes(compare([load(run) for run in runs]), None) == [
        f"Other programs, or other machines, used up to 75% of the cores of {runs[1]}: their speeds are too low."
    ]


def test_many_runs_are_not_all_named(tmp_path: Path) -> None:
    told = said(tmp_path, *({"seed": seed, "final": 1.0, "ended": False} for seed in range(1, 8)))
    assert f"{tmp_path / '3'} and 3 more were stopped early; the figures" in told[0]
