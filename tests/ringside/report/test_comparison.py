"""Grouping of runs by configuration, comparable scores, and the statements before the figures of a report."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringside.records.scores import human_normalized
from ringside.report.comparison import FRAMES, Comparison, compare, differences
from ringside.report.records import load
from ringside.report.report_page import notes, training_rules
from shared.config.presets import PRESETS
from shared.config.sections import INEXACT_SCHEDULES
from shared.errors import ConfigError
from shared.text import flag_of
from tests.support.written_runs import write_run


def compared(tmp_path: Path, *runs: dict[str, Any]) -> Comparison:
    return compare([load(write_run(tmp_path / str(i), **run)) for i, run in enumerate(runs)])


def test_seeds_games_and_what_cannot_matter_make_no_other_configuration(tmp_path: Path) -> None:
    other = {"seed": 2, "actors": 3, "run_dir": "elsewhere", "plain": True, "device": "cuda:1", "eval_every_steps": 500}
    found = compared(tmp_path, {"seed": 1}, other, {"seed": 1, "game": "breakout"})
    (arm,) = found.arms
    assert (arm.label, arm.changes, arm.games) == ("nature", "", ["breakout", "pong"])
    assert [run.seed for run in arm.of("pong")] == [1, 2]


def test_everything_else_does(tmp_path: Path) -> None:
    changes = {"learning_rate": 1e-3, "precision": "bf16", "returns": [1.0] * 5, "envs": 8, "schedule": "free"}
    for name, value in changes.items():
        _, other = compared(tmp_path / name, {}, {name: value}).arms
        assert other.label.startswith(f"nature {flag_of('total_steps' if name == 'returns' else name)} ")


def test_configurations_stand_in_the_order_in_which_they_were_named(tmp_path: Path) -> None:
    other = {"batch_size": 16, "returns": [1.0] * 9}
    found = compared(tmp_path, {"batch_size": 64}, other, {"batch_size": 64, "seed": 2})
    assert [arm.runs[0].settings["batch_size"] for arm in found.arms] == [64, 16]
    assert found.arms[0].label == "nature --total-steps 4_000 --batch-size 64"


def test_a_configuration_is_named_by_its_preset_and_what_differs_from_it(tmp_path: Path) -> None:
    settings = {"batch_size": 64, "learning_rate": 0.1, "discount": 0.9, "network": "small", "double": True, "envs": 8}
    first, second = compared(tmp_path, {"n_step": 3}, settings | {"n_step": 3}).arms
    assert (first.label, first.changes) == ("nature", "--n-step 3")
    label = "nature --envs 8 --batch-size 64 --discount 0.9 --learning-rate 0.1 --network small --double"
    assert (second.label, second.changes) == (label, "--n-step 3")
    before = {"envs": 96, "batch_size": 32, "discount": 0.99, "learning_rate": 2.5e-4, "network": "nature"}
    values = {name: [value, settings[name]] for name, value in (before | {"double": False}).items()}
    assert differences([first.runs[0], second.runs[0]]) == values


def test_configurations_of_two_presets_are_named_by_them(tmp_path: Path) -> None:
    for preset in ("rainbow", "ppo"):
        other = {name: value for name, value in PRESETS[preset].to_flat().items() if value is not None}
        kept = {name: value for name, value in other.items() if name not in ("game", "seed", "total_steps")}
        assert [arm.label for arm in compared(tmp_path / preset, {}, kept).arms] == ["nature", preset]


def test_a_label_has_few_digits_and_is_one_of_its_kind(tmp_path: Path) -> None:
    rates = (6.82407842709883e-05, 6.82407842709884e-05, 7.44714490408307e-05)
    found = compared(tmp_path, *({"learning_rate": rate} for rate in rates))
    shown = ("6.824e-05", "6.824e-05 (2)", "7.447e-05")
    assert [arm.label for arm in found.arms] == [f"nature --learning-rate {rate}" for rate in shown]


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
    assert [str(died.path) in each and "experiment and seed" in each for each in found.left_out] == [True, True]


def test_a_run_that_began_with_weights_is_of_another_configuration(tmp_path: Path) -> None:
    found = compared(tmp_path, {}, {"init_from": "w"})
    assert [arm.label for arm in found.arms] == ["nature", "nature --init-from w"]


OTHER_BITS = [
    ({"deterministic": "off"}, {"deterministic": "off"}),
    ({"learner_parts": 2}, {}),
    *(({"schedule": schedule}, {"schedule": schedule}) for schedule in INEXACT_SCHEDULES),
]


@pytest.mark.parametrize(("first", "second"), OTHER_BITS)
def test_other_bits_are_another_run(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> None:
    found = compared(tmp_path, first, second)
    assert (len(found.arms), len(found.runs), found.left_out) == (1, 2, ())


def test_an_inexact_run_repeats_none(tmp_path: Path) -> None:
    first, second = (load(write_run(tmp_path / name)) for name in ("first", "second"))
    assert len(compare([first, second]).runs) == 1
    for run in (first, second):
        run.summary["exact"] = False
        assert len(compare([first, second]).runs) == 2
        run.summary["exact"] = True


def test_protocols_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        compared(tmp_path, {}, {"protocol": "machado"})
    for word in ("machado", "nature", str(tmp_path / "0"), "make a report for each"):
        assert word in str(error.value)


def test_nothing_to_compare_says_why() -> None:
    with pytest.raises(ConfigError, match=r"It is empty\. It is gone\."):
        compare([], ["It is empty.", "It is gone."])


def test_all_runs_are_judged_by_the_same_measure(tmp_path: Path) -> None:
    for name, second, scores in (
        ("final evaluation", {"final": -12.0}, [-10.0, -12.0]),
        ("last evaluation beside training", {}, [-18.0, -18.0]),
        ("last 100 training episodes", {"evaluations": []}, [-19.5, -19.5]),
    ):
        found = compared(tmp_path / name, {"final": -10.0}, {"seed": 2} | second)
        assert (found.measure.name, found.scores(found.arms[0], "pong").tolist()) == (name, scores)


def test_aggregates_are_over_games_that_all_configurations_have(tmp_path: Path) -> None:
    games = [{"game": game, "final": score} for game, score in (("pong", 5.0), ("breakout", 50.0), ("adventure", 1.0))]
    found = compared(tmp_path, *games, {"game": "pong", "final": 6.0, "batch_size": 64})
    assert found.aggregated_games == ["pong"]
    first = found.aggregates(found.arms[0])["IQM"]
    assert (first.value, first.low) == (human_normalized("pong", 5.0), None)
    assert "no score: adventure, breakout." in " ".join(notes(found, 200_000_000))
    without = compared(tmp_path / "without", {"game": "adventure"}, {"game": "adventure", "seed": 2})
    assert without.aggregates(without.arms[0]) == {}
    assert without.scores(without.arms[0], "adventure").tolist() == [-18.0, -18.0]


ENV = "tests.support.pixel_game:factory"
OF_RUN = ("protocol", "final", "eval_episodes")
SEEDS = [{"seed": seed, "final": -5.0} for seed in (1, 2, 3)]


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


def test_few_seeds_are_said(tmp_path: Path) -> None:
    for seeds, part in ((1, "one seed only"), (2, "two seeds only")):
        (note,) = said(tmp_path / part, *SEEDS[:seeds])
        assert part in note


DOPAMINE = {"protocol": "dopamine"}
FEW = "Scores are means of few episodes, {}, where the protocol has 30"
OTHER = {"eval_epsilon": 0.001, "eval_max_frames": 108_000}
SAID_OF_OTHER = "Evaluated with epsilon 0.001; the protocol has 0.05. Episodes were evaluated up to 108,000 frames; "
SAID_OF_OTHER += "the protocol has 18,000."
FILLED, FILLS = {"episodes": 9, "eval_steps": 125_000}, "9 episodes, as many as fill 125,000 steps,"
FILL = " and of finished weights as many as fill 125,000 steps."
RULES = [
    ({"episodes": 1}, "1 episode", "18,000", 0.05, f"{FEW.format(1)}."),
    (OTHER, "30 episodes", "108,000", 0.001, SAID_OF_OTHER),
    ({"eval_actions": "sample", "eval_epsilon": 0.0}, "30 episodes", "18,000", None, ""),
    (DOPAMINE | FILLED, FILLS, "108,000", 0.001, ""),
    (DOPAMINE | {"episodes": 2}, "2 episodes", "108,000", 0.001, f"{FEW.format(2)},{FILL}"),
    # An evaluation beside training: what its records say.
    ({"final": None, "eval_episodes": 2}, "2 episodes", "18,000", 0.05, f"{FEW.format(2)}."),
]


@pytest.mark.parametrize(("changes", "episodes", "frames", "epsilon", "said"), RULES)
def test_rules_beside_those_of_the_protocol(
    tmp_path: Path, changes: dict[str, Any], episodes: str, frames: str, epsilon: float | None, said: str
) -> None:
    """`epsilon`: None where actions are sampled."""
    judged = {"eval_actions": "greedy"} | {name: changes[name] for name in changes if name not in OF_RUN}
    of_run = {name: changes[name] for name in changes if name in OF_RUN}
    found = compared(tmp_path, *(seed | of_run | {"judged": judged} for seed in SEEDS))
    actions = "sampled actions" if epsilon is None else f"greedy actions and epsilon {epsilon}"
    assert found.evaluation_rules == f"{episodes} of at most {frames} frames with {actions}"
    assert " ".join(notes(found, None)) == said


def test_runs_that_were_judged_differently(tmp_path: Path) -> None:
    odd = {"episodes": 1, "device": "cuda:0", "precision": "tf32", "version": 3}
    assert said(tmp_path, *SEEDS[:2], SEEDS[2] | {"judged": odd}) == [
        "The runs were evaluated under different rules: 30 episodes of at most 18,000 frames with greedy actions and "
        "epsilon 0.05; 1 episode of at most 18,000 frames with greedy actions and epsilon 0.05.",
        "Scores are means of few episodes, 1, where the protocol has 30.",
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
    assert notes(found, FRAMES)[-1].startswith(f"Not a game of ale-py: {ENV}.")
    assert not training_rules(found)
    start = "no sticky actions, 1 to 30 no-ops at the start, minimal action set, 4 frames a step, "
    rules = training_rules(compared(tmp_path / "pong", {}))
    assert rules == f"{start}training episodes of at most 108,000 frames"


def test_arithmetic_and_bits(tmp_path: Path) -> None:
    runs = [seed | {"device": device} for seed, device in zip(SEEDS, ("cpu", "cuda:0", "cpu"), strict=True)]
    found = compared(tmp_path, *runs)
    found.runs[0].summary["exact"] = False
    bits = f"A repetition would not give the same bits: {found.runs[0].path}."
    assert notes(found, None) == [bits, "Runs of nature were computed differently: --device cpu and cuda:0."]
    precisions = (run | {"precision": precision} for precision in ("fp32", "bf16") for run in SEEDS)
    alone = "The configurations differ in --precision alone: fp32 and bf16."
    assert said(tmp_path / "precision", *precisions) == [alone]


@pytest.mark.parametrize("cores", [0, -1, None, "two", 2])
def test_cores_that_others_used(tmp_path: Path, cores: object) -> None:
    runs = [write_run(tmp_path / str(i), **seed) for i, seed in enumerate(SEEDS)]
    for run, taken in zip(runs, (0.1, 1.5, None), strict=True):
        summary = json.loads((run / "summary.json").read_text())
        summary["limit"] |= {"usable_cores": cores, "other_programs_cores": taken, "stolen_cores": 0.0}
        (run / "summary.json").write_text(json.dumps(summary))
    sentence = f"Other programs or virtual machines used up to 75% of the cores of {runs[1]}: speeds shown are too low."
    assert notes(compare([load(run) for run in runs]), None) == ([sentence] if cores == 2 else [])
