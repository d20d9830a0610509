"""Cases of the benchmarks of runs and rungs of the ladder, without a run; words and records of measured runs."""

from contextlib import nullcontext
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest

from benchmarks import emulator, ladder, presets, scaling, throughput
from benchmarks.harness import Options, Report, WrongResult
from benchmarks.measured_run import NEVER_LEARNS, Throughput, acting_words, check_records, measured_words, plan_of
from shared.config.presets import PRESETS
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.memory.plan import Plan

WORKERS = ["--preset", "a3c-async", "--actors", "2"]


def options(only: str, *words: str, end_to_end: bool = False) -> Options:
    sizes = {"game": "pong", "seconds": 10.0, "repeats": 2}
    return Options(only=only, names=only.split(","), words=list(words), end_to_end=end_to_end, **sizes)


def a_run(**summary: Any) -> Throughput:
    """Figures of a run in which a twentieth of the steps are resets."""
    memory = {"shared_bytes": 1e8, "private_bytes": {"worker 0": 3e8, "worker 1": 4e8, "scribe": 5e7}}
    memory["device_bytes"] = {"learner": 8e9, "inference": 1e9}
    roles = {name: {"busy": busy} for name, busy in {"worker 0": 0.8, "worker 1": 1.0, "evaluator": 0.5}.items()}
    limit = {"sentence": "The workers limit it."}
    return Throughput(100.0, 95.0, 8.0, 3, 1.0, {"memory": memory, "roles": roles, "limit": limit} | summary)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Flags of the runs that would be measured; each makes 100 steps/s, and a bare emulator 190 for each process."""
    asked: list[list[str]] = []

    def measure(words: list[str], seconds: float, *, learning: bool = True) -> Throughput:
        asked.append([*words, "learns" if learning else "acts"])
        return a_run()

    for module in (throughput, presets):
        monkeypatch.setattr(module, "measure_run", measure)
        monkeypatch.setattr(module, "measure_at_once", lambda jobs, seconds: [25.0])
    for module in (throughput, scaling):
        monkeypatch.setattr(module, "bare_speed", lambda game, seconds, processes: 190.0 * processes)
        monkeypatch.setattr(module, "usable_cores", lambda: 6)
    return asked


def shares(report: Report) -> dict[str, float | None]:
    return {name: row.ratio for name, row in report.rows.items()}


def test_a_run_is_compared_with_its_two_sides(measured: list[list[str]], report: Report) -> None:
    throughput.run(options("speed,evaluation,round", "--device", "cpu"), report)
    assert (report.missing, report.wrong) == ({}, {})
    names = ("bare emulator, all cores", "learner alone", "the two alone")
    assert [report.rows[name].median for name in names] == [1140, 100, 100]
    assert shares(report)["actors alone"] == pytest.approx(95 / 1140), "without resets, which it does not count"
    assert (shares(report)["end to end"], report.rows["end to end"].limit) == (1.0, "the two alone")
    assert shares(report)["concurrent, an update every 400 steps"] == 1.0
    assert (report.rows["the two alone"].note, report.rows["samples a step"].note) == ("the smaller", "asked: 8")
    assert ["40_000_000" in words for words in measured if words[-1] == "acts"] == [True, True]
    evaluated = next(words for words in measured if "--eval-every-steps" in words)
    assert evaluated[evaluated.index("--eval-every-steps") + 1] == "2880", "three rounds: more would wait"


def test_alternate_plays_and_learns_in_turn(measured: list[list[str]], report: Report) -> None:
    throughput.run(options("speed", "--schedule", "alternate", "--device", "cpu"), report)
    assert report.rows["the two alone"].values == (50.0, 50.0)


def test_a_run_of_workers_is_measured_whole_and_without_its_order(measured: list[list[str]], report: Report) -> None:
    throughput.run(options("speed,evaluation,round", *WORKERS), report)
    rows = report.rows
    assert not [name for name in rows if name.startswith(("actors", "learner"))]
    assert list(rows)[-2:] == ["async, as it is", "ordered, as it is"]
    assert (rows["end to end"].limit, rows["end to end"].ratio) == (throughput.BARE, pytest.approx(100 / 1140))
    assert rows["samples a step"].note == "asked: 1"
    assert (rows["busy, worker"].values, rows["private, worker"].values) == ((0.9, 0.9), (400.0, 400.0))
    assert (rows["on the GPU, learner"].median, rows["on the GPU, inference"].median) == (8e3, 1e3)
    assert report.notes["limit"] == "What the run says of itself: The workers limit it."


def test_an_idle_evaluator_is_wrong(monkeypatch: pytest.MonkeyPatch, measured: list[list[str]], report: Report) -> None:
    idle = a_run(roles={"evaluator": {"busy": 0.0}})
    monkeypatch.setattr(throughput, "measure_run", lambda words, seconds: idle)
    throughput.run(options("evaluation", "--device", "cpu"), report)
    assert "never at work" in report.wrong[throughput.EVALUATED]


def test_actors_are_compared_with_the_emulator_and_with_one(measured: list[list[str]], report: Report) -> None:
    scaling.run(options("alone,whole", "--device", "cpu", "--envs", "8"), report)
    assert [name for name in report.rows if name.startswith("bare")] == [f"bare emulator, {n}" for n in (1, 2, 4)]
    assert "lanes" in report.notes, "six cores, four lanes"
    assert (shares(report)["whole run, 4"], report.rows["efficiency of 4 actors"].values) == (1.0, (0.25, 0.25))
    assert shares(report)["actors alone, 2"] == pytest.approx(95 / 380)
    assert "2" in measured[2]
    report.rows.clear()
    scaling.run(options("alone", *ON_POLICY), report)
    assert "a2c" not in measured[-1], "which learns with every round"
    for words, says in ((WORKERS[:2], "ladder --only async"), (["--actors", "2"], "omit both")):
        with pytest.raises(ConfigError, match=says):
            scaling.run(options("alone", *words), report)


def test_members_are_compared_with_one_up_to_the_physical_cores(
    measured: list[list[str]], report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "physical_cores", lambda: 5)
    monkeypatch.setattr(scaling, "measure_at_once", lambda jobs, seconds: [(8e-3 / jobs[0][2], 1e-3)])
    scaling.run(options("learner", "--device", "cpu", "--learner-parts", "8"), report)
    assert [name for name in report.rows if "alone" in name] == [f"learner alone, {members}" for members in (1, 2, 4)]
    assert report.rows["efficiency of 4 members"].values == (0.25, 0.25)
    assert (measured, report.notes) == ([], {})
    scaling.run(options("parts", "--device", "cpu"), report)
    rows = report.rows
    assert list(rows)[-2:] == ["one of 16: all but the optimizer", "one of 16: optimizer"]
    assert (rows["one of 4: all but the optimizer"].values, rows["one of 4: optimizer"].unit) == ((2, 2), "ms")
    assert shares(report)["one of 8: all but the optimizer"] == 1 / 8
    assert "16 parts" in report.notes["parts"]


@pytest.mark.parametrize("end_to_end", [False, True])
def test_presets_stand_beside_the_plain_one_and_those_of_workers_have_runs_alone(
    measured: list[list[str]], report: Report, *, end_to_end: bool
) -> None:
    presets.run(options("rainbow,a3c-async", "--device", "cpu", end_to_end=end_to_end), report)
    rows = report.rows
    assert (rows["rainbow, samples"].limit, rows["rainbow, samples"].ratio) == ("nature, samples", 1.0)
    assert rows["rainbow, samples"].median == 32 * rows["rainbow, learner"].median
    assert [name for name in rows if "a3c" in name] == (["a3c-async, run"] if end_to_end else [])
    assert ("nature, run" in rows) == end_to_end
    assert "Without a learner: a3c-async" in report.notes.get("workers", "") or end_to_end


def test_an_emulator_that_stands_still_is_seen() -> None:
    bare = emulator.Bare("pong", seed=1)
    bare.play(0, [1] * 50)
    bare.check()
    bare.steps += 10
    with pytest.raises(WrongResult, match="instead of"):
        bare.check()


def test_a_lane_whose_frames_differ_from_those_of_its_envs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    players = emulator.Players("breakout")
    spent = players.play_block()
    assert (spent[:, 0] > 0).all()
    assert spent[1, 2] == spent[2, 2] > 0
    monkeypatch.setattr(players.envs[1], "step", players.envs[0].step)
    with pytest.raises(WrongResult, match="the lane's slots differ"):
        players.play_block()


TABLES = {table: [rung for rung in ladder.RUNGS if rung.table == table] for table in ladder.TABLES}


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Measurements of runs and of single processes, which a test may change."""
    made = Mock(**{"run.return_value": Throughput(200.0, 200.0, 8.0, 1, 1.0, {}), "serial.return_value": [100.0]})
    monkeypatch.setattr(ladder, "measure_run", made.run)
    monkeypatch.setattr(ladder, "measure_at_once", made.serial)
    return made


def plan_of_rung(rung: ladder.Rung, *words: str) -> Plan:
    wrapped = ("--env-kwargs", "game=pong") if "--env" in rung.words else ()
    return plan_of(measured_words("pong", ["--device", "cpu", *words], *rung.words, *wrapped))


@pytest.mark.parametrize("rung", TABLES["lapan"] + TABLES["fast-dqn"], ids=lambda rung: rung.name)
def test_every_rung_of_dqn_samples_8_transitions_a_step(rung: ladder.Rung) -> None:
    config = plan_of_rung(rung).config
    assert config.learn.batch_size / config.learn.train_every == 8
    assert rung.serial <= (config.learn.schedule == "alternate" and config.machine.actors == 1)
    assert (config.play.env is None) == ("--env" not in rung.words)
    if rung.table == "fast-dqn":
        assert config.play.lane_envs == 1
        assert config.machine.inference_batch == (config.play.envs if "sync" in rung.name else 1)


def test_no_two_rungs_are_the_same() -> None:
    assert [len(rungs) for rungs in TABLES.values()] == [7, 2 + 3 * 4, 9, 12]
    for rungs in TABLES.values():
        assert len({(rung.serial, rung.gradients, rung.words) for rung in rungs}) == len(rungs)
    assert len(ladder.NAMES) == len(set(ladder.NAMES))
    batches = {rung.name: plan_of_rung(rung).config.learn.batch_size for rung in TABLES["lapan"]}
    assert (batches["one-env"], batches["three-envs"], batches["light-parallel"]) == (32, 96, 128)


def test_jobs_are_rungs_or_presets_with_what_was_published() -> None:
    known = {rung.words for rung in TABLES["lapan"] + TABLES["fast-dqn"]}
    for rung in TABLES["jobs"]:
        assert rung.system
        assert rung.words in known or rung.words[1] in PRESETS
    assert TABLES["jobs"][0].published.startswith("556 steps/s on a GTX 1080")


def test_workers_stand_beside_batches_with_the_same_network() -> None:
    configs = {rung.name: plan_of_rung(rung).config for rung in TABLES["async"]}
    assert list(configs)[-2:] == ["a3c", "impala"]
    assert {config.learn.network for config in configs.values()} == {"a3c"}
    for schedule, workers in product(("async", "ordered"), ladder.ASYNC_WORKERS):
        config = configs[f"{schedule}-{workers}"]
        assert (config.learn.schedule, config.play.workers) == (schedule, workers)


def test_shares_are_of_the_first_rung_of_a_table_or_system(speeds: Mock, report: Report) -> None:
    ladder.run(options("gradients,parallel,ringside,fast-dqn before,fast-dqn both,a3c batched"), report)
    assert {name: (row.part, row.limit, row.ratio) for name, row in report.rows.items()} == {
        "gradients": ("lapan", None, None),
        "parallel": ("lapan", "gradients", 2.0),
        "ringside": ("lapan", "gradients", 2.0),
        "fast-dqn before": ("fast-dqn", None, None),
        "fast-dqn both": ("fast-dqn", "fast-dqn before", 1.0),
        "a3c batched": ("tensorpack", None, None),
    }
    assert report.rows["fast-dqn both"].note.startswith("published: 1,543 steps/s")


def test_a_wrong_rung_is_named_and_flags_of_the_user_come_last(speeds: Mock, report: Report) -> None:
    speeds.serial.side_effect, flags = WrongResult("It is wrong."), ["--train-every", "4", "--batch-size", "128"]
    ladder.run(options("one-env,parallel", "--device", "cpu", *flags), report)
    words = speeds.run.call_args.args[0]
    assert (report.wrong, words[-4:]) == ({"one-env": "It is wrong."}, flags)
    assert words[words.index("--env-kwargs") + 1] == "game=pong"


SIZES = {"envs": 8, "round_steps": 480, "snapshot_every_steps": 960, "learning_starts": 960, "train_every": 4}
SCHEDULE = make_run_schedule(Config().with_settings(**SIZES))


def record(round_: int) -> dict[str, Any]:
    """Record of two rounds, of two seconds each, in which two episodes end and are reset."""
    stop = round_ + 2
    updates = SCHEDULE.updates_before(stop)
    rate = (updates - SCHEDULE.updates_before(round_)) / 4
    counts = {"round": round_, "steps": stop * 480, "updates": updates, "valid_steps": 958, "episodes": stop}
    return counts | {"steps_per_second": 240.0, "updates_per_second": rate}


WRONG_RECORDS = [
    ({}, None),
    ({"steps": 10 * 480 + 8}, "'steps': 4808"),
    ({"round": 9}, "'round': 9"),
    ({"updates": 959}, "'updates': 959"),
    ({"updates_per_second": 59.5}, "'updates of the round': 238"),
    ({"valid_steps": 900}, "6 episodes ended, but there were 64 resets"),
]


@pytest.mark.parametrize(("changes", "says"), WRONG_RECORDS)
def test_other_work_than_asked_for_is_seen(changes: dict[str, Any], says: str | None) -> None:
    assert SCHEDULE.record_rounds == 2
    records = [record(round_) for round_ in (2, 4, 6, 8)]
    records[-1] |= changes
    with pytest.raises(WrongResult, match=says) if says else nullcontext():
        check_records(SCHEDULE, records)


ON_POLICY = ("--method", "a2c", "--envs", "8", "--frame-size", "128", "--round-steps", "1_280", "--device", "cpu")


MEASURED = [
    (["--device", "cpu"], ["--game", "pong", "--learning-starts", "5_000", "--round-steps", "1000"]),
    (["--device", "cpu", "--envs", "192"], ["--learning-starts", "5_000", "--round-steps", "1920"]),
    (["--round-steps=960"], ["--game", "pong", "--learning-starts", "5_000"]),
    (["--schedule", "alternate"], ["--game", "pong", "--learning-starts", "5_000"]),
    (ON_POLICY, ["--game", "pong"]),
    (["--preset", "a3c-async"], ["--game", "pong"]),
    (["--env=tests.support.pixel_game:factory", "--network", "small"], ["--learning-starts"]),
]


@pytest.mark.parametrize(("words", "before"), MEASURED)
def test_a_measured_run_learns_early_in_short_rounds(words: list[str], before: list[str]) -> None:
    found = measured_words("pong", words)
    assert found[len(found) - len(words) :] == list(words)
    assert found[: len(before)] == before or (before[0] != "--game" and set(before) <= set(found))
    assert ("--game" in found) == ("--env=tests.support.pixel_game:factory" not in words)


def test_more_flags_come_before_those_of_the_user_and_ours_are_refused() -> None:
    found = measured_words("pong", ["--envs", "8"], "--preset", "quick", "--envs", "16")
    assert plan_of(found).config.play.envs == 8
    with pytest.raises(ConfigError, match="--run-dir after -- is given by the benchmark itself"):
        measured_words("pong", ["--run-dir", "x"])


def test_actors_of_an_on_policy_method_are_measured_before_the_first_update_of_dqn() -> None:
    plan = plan_of(["--game", "pong", *ON_POLICY])
    acting = plan_of(acting_words(plan, ON_POLICY))
    assert acting.config.play == plan.config.play
    assert not acting.method.on_policy
    assert (acting.config.play.envs, acting.config.machine.actors) == (8, plan.config.machine.actors)
    assert (acting.run_schedule.round_steps, acting.config.learn.learning_starts) == (1_280, int(NEVER_LEARNS[1]))
