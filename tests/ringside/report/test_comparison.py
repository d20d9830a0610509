"""Grouping of runs by configuration, comparable scores, and the statements about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringside.records.scores import human_normalized
from ringside.report.comparison import Comparison, compare, differences
from ringside.report.notes import notes
from ringside.report.records import RecordsError, load
from shared.config.presets import PRESETS
from shared.config.sections import INEXACT_SCHEDULES
from shared.text import flag_of
from tests.support.written_runs import write_run


def compared(tmp_path: Path, *runs: dict[str, Any]) -> Comparison:
    return compare([load(write_run(tmp_path / str(i), **run)) for i, run in enumerate(runs)])


def test_seeds_games_and_what_cannot_matter_make_no_other_configuration(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        {"seed": 1},
        {"seed": 2, "actors": 3, "run_dir": "elsewhere", "plain": True, "device": "cuda:1", "eval_every_steps": 500},
        {"seed": 1, "game": "breakout"},
    )
    (arm,) = found.arms
    assert (arm.label, arm.changes, arm.games) == ("nature", "", ["breakout", "pong"])
    assert [run.seed for run in arm.of("pong")] == [1, 2]


@pytest.mark.parametrize(
    "change",
    [{"learning_rate": 1e-3}, {"precision": "bf16"}, {"returns": [1.0] * 5}, {"envs": 8}, {"schedule": "free"}],
)
def test_everything_else_does(tmp_path: Path, change: dict[str, Any]) -> None:
    found = compared(tmp_path, {}, change)
    name = "total_steps" if "returns" in change else next(iter(change))
    assert len(found.arms) == 2
    assert found.arms[1].label.startswith(f"nature {flag_of(name)} ")


def test_configurations_stand_in_the_order_in_which_they_were_named(tmp_path: Path) -> None:
    found = compared(
        tmp_path, {"batch_size": 64}, {"batch_size": 16, "returns": [1.0] * 9}, {"batch_size": 64, "seed": 2}
    )
    assert [arm.runs[0].settings["batch_size"] for arm in found.arms] == [64, 16]
    assert found.arms[0].label == "nature --total-steps 4_000 --batch-size 64"


def test_a_configuration_is_named_by_its_preset_and_what_differs_from_it(tmp_path: Path) -> None:
    settings = {"batch_size": 64, "learning_rate": 0.1, "discount": 0.9, "network": "small", "double": True, "envs": 8}
    first, second = compared(tmp_path, {"n_step": 3}, settings | {"n_step": 3}).arms
    assert (first.label, first.changes) == ("nature", "--n-step 3")
    assert second.label == "nature --double --envs 8 --batch-size 64 --discount 0.9 and 2 more"
    assert second.changes == "--learning-rate 0.1 --network small --n-step 3"
    assert differences([first.runs[0], second.runs[0]]) == {
        "envs": [96, 8],
        "batch_size": [32, 64],
        "discount": [0.99, 0.9],
        "learning_rate": [2.5e-4, 0.1],
        "network": ["nature", "small"],
        "double": [False, True],
    }


@pytest.mark.parametrize("preset", ["rainbow", "ppo"])
def test_configurations_of_two_presets_are_named_by_them(tmp_path: Path, preset: str) -> None:
    other = {name: value for name, value in PRESETS[preset].to_flat().items() if value is not None}
    kept = {name: value for name, value in other.items() if name not in ("game", "seed", "total_steps")}
    assert [arm.label for arm in compared(tmp_path, {}, kept).arms] == ["nature", preset]


def test_a_label_has_few_digits_and_is_one_of_its_kind(tmp_path: Path) -> None:
    rates = (6.82407842709883e-05, 6.82407842709884e-05, 7.44714490408307e-05)
    assert [arm.label for arm in compared(tmp_path, *({"learning_rate": rate} for rate in rates)).arms] == [
        "nature --learning-rate 6.824e-05",
        "nature --learning-rate 6.824e-05 (2)",
        "nature --learning-rate 7.447e-05",
    ]


def test_a_method_that_is_not_registered_has_its_name(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["algorithm"]["method"] = "mine"
    (run / "config.json").write_text(json.dumps(config))
    assert compare([load(run)]).arms[0].label == "mine"


def test_the_same_experiment_counts_once_and_the_one_with_an_end_stays(tmp_path: Path) -> None:
    """Else a seed that was run twice would pass for two."""
    died = load(write_run(tmp_path / "died", returns=[1.0, 2.0], ended=None))
    again = load(write_run(tmp_path / "again", returns=[1.0, 2.0], final=1.0))
    found = compare([died, again, load(died.path)])
    assert (found.runs, found.measure.name) == ([again], "final evaluation")
    assert len(found.left_out) == 2
    assert all(str(died.path) in sentence and "experiment and seed" in sentence for sentence in found.left_out)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"deterministic": "off"}, {"deterministic": "off"}),
        ({"learner_threads": 2}, {}),
        *(({"schedule": schedule}, {"schedule": schedule}) for schedule in INEXACT_SCHEDULES),
    ],
)
def test_other_bits_are_another_run(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> None:
    found = compared(tmp_path, first, second)
    assert (len(found.arms), len(found.runs), found.left_out) == (1, 2, ())


def test_an_inexact_run_repeats_none(tmp_path: Path) -> None:
    first, second = (load(write_run(tmp_path / name)) for name in ("first", "second"))
    assert len(compare([first, second]).runs) == 1
    for run in (first, second):
        assert run.summary is not None
        run.summary["exact"] = False
        assert len(compare([first, second]).runs) == 2
        run.summary["exact"] = True


def test_protocols_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(RecordsError) as error:
        compared(tmp_path, {}, {"protocol": "machado"})
    for word in ("machado", "nature", str(tmp_path / "0"), "make a report for each"):
        assert word in str(error.value)


def test_nothing_to_compare_says_why() -> None:
    with pytest.raises(RecordsError, match=r"It is empty\. It is gone\."):
        compare([], ["It is empty.", "It is gone."])


def test_all_runs_are_judged_by_the_same_measure(tmp_path: Path) -> None:
    both = compared(tmp_path / "a", {"final": -10.0}, {"final": -12.0, "seed": 2})
    assert both.measure.name == "final evaluation"
    assert both.scores(both.arms[0], "pong").tolist() == [-10.0, -12.0]
    one = compared(tmp_path / "b", {"final": -10.0}, {"seed": 2})
    assert one.measure.name == "last evaluation beside training"
    assert one.scores(one.arms[0], "pong").tolist() == [-18.0, -18.0]
    none = compared(tmp_path / "c", {"final": -10.0}, {"seed": 2, "evaluations": []})
    assert none.measure.name == "last 100 training episodes"
    assert none.scores(none.arms[0], "pong").tolist() == [-19.5, -19.5]


def test_aggregates_are_over_games_that_all_configurations_have(tmp_path: Path) -> None:
    games = [{"game": game, "final": score} for game, score in (("pong", 5.0), ("breakout", 50.0), ("adventure", 1.0))]
    found = compared(tmp_path, *games, {"game": "pong", "final": 6.0, "batch_size": 64})
    assert found.aggregated_games == ["pong"]
    first = found.aggregates(found.arms[0])
    assert first["IQM"].value == human_normalized("pong", 5.0)
    assert first["IQM"].low is None
    assert "missing: adventure, breakout." in " ".join(notes(found, 200_000_000))
    without = compared(tmp_path / "without", {"game": "adventure"}, {"game": "adventure", "seed": 2})
    assert without.aggregates(without.arms[0]) == {}
    assert without.scores(without.arms[0], "adventure").tolist() == [-18.0, -18.0]
