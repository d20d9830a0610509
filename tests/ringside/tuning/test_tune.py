"""`tune` over a program that trains nothing: what is tried, pruned, resumed and reported."""

from __future__ import annotations

import json
import re
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ringside
from ringside import planning
from ringside.cluster import placed_programs
from ringside.cluster.placed_programs import ClusterPrograms
from ringside.cluster.program_host import ProgramHost
from ringside.programs import placing
from ringside.programs.local_programs import LocalPrograms
from ringside.programs.lost_nodes import MOST_LOSSES
from ringside.programs.places import Programs
from ringside.programs.placing import ClusterOptions
from ringside.tasks.train import configuration
from ringside.tuning.search import StudyResult, run_study
from ringside.tuning.space import Dimension, checked_space, default_space, make_space, read_space
from ringside.tuning.study import DATABASE
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.files.lock import locked
from shared.process.ownership import LOCK_FILE
from shared.root import ROOT
from shared.text import flags_of
from tests.conftest import Refused
from tests.support.cluster_of_objects import Fault, ObjectCluster
from tests.support.written_runs import write_run

pytestmark = pytest.mark.skipif(
    find_spec("optuna") is None, reason="there is no Optuna here: the extra tune of setup.cfg"
)

FAKE = """
import json, os, shutil, sys, time
from pathlib import Path
sys.path[:0] = [os.environ["FAKE_ROOT"]]
from ringside.recording.metrics import MetricsLog
from tests.support.written_runs import write_run
words = sys.argv[1:-1]
with open(os.environ["FAKE_LOG"], "a") as log: log.write(json.dumps(words) + "\\n")
flags = dict(zip(words[::2], words[1::2]))
path = Path(flags.get("--run-dir") or flags["--resume"])
number = int(path.name[-4:])
if number == int(os.environ.get("FAKE_FAILS", -1)): sys.exit("it failed")
if "--resume" in flags: shutil.rmtree(path)
if number == int(os.environ.get("FAKE_BAD", -1)):
    path.mkdir(parents=True)
    with MetricsLog(path / "metrics.jsonl") as log:
        for i in range(2): log.log_evaluation(i, i, 100 * i, {"mean_return": -100.0})
    time.sleep(60)
rate = float(flags.get("--learning-rate", 1e-4))
write_run(path, "pong", returns=[1.0, 2.0], evaluations=[1.0, 5.0, 1e4 * rate], learning_rate=rate, learning_starts=100)
if number == int(os.environ.get("FAKE_UNFINISHED", -1)):
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"finished": False}))
"""
SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-3, "log": True}}
CONFIG = Config().with_settings(game="pong", total_steps=100_000, eval_every_steps=20_000, device="cpu")
TUNED: dict[str, Any] = {"trials": 2, "space": SPACE, "prune": True}


class Program:
    """A study with the fake under it."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out = tmp_path / "study"
        self._log = tmp_path / "told.jsonl"
        self.notes: list[str] = []
        (tmp_path / "fake.py").write_text(FAKE)
        self.launcher = tmp_path / "fake.py"
        monkeypatch.setenv("FAKE_LOG", str(self._log))
        monkeypatch.setenv("FAKE_ROOT", str(ROOT))
        monkeypatch.setattr("ringside.programs.local_programs.POLL_SECONDS", 0.02)
        monkeypatch.setattr("ringside.tuning.search._report", lambda task, tuner, results: task.out / "report.html")

    def __call__(self, **changes: Any) -> StudyResult:
        words = {"out": self.out, "note": self.notes.append, "launcher": self.launcher, **TUNED, **changes}
        words.setdefault("cluster", ClusterOptions())
        return run_study(words.pop("config", CONFIG), "nature", **words)

    @property
    def calls(self) -> list[list[str]]:
        """Words with which the fake was called."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(tmp_path, monkeypatch)


def test_trials_are_runs_with_settings_of_the_space_and_the_best_is_kept(program: Program) -> None:
    result = program()
    assert [trial.state for trial in result.trials] == ["complete", "complete"]
    rates = [trial.settings["learning_rate"] for trial in result.trials]
    assert len(set(rates)) == 2
    assert [trial.value for trial in result.trials] == pytest.approx([1e4 * rate for rate in rates])
    assert result.best is not None
    assert result.best.settings["learning_rate"] == max(rates)
    for words, rate, trial in zip(program.calls, rates, result.trials, strict=True):
        flags = dict(zip(words[::2], words[1::2], strict=True))
        assert (flags["--preset"], flags["--game"], float(flags["--learning-rate"])) == ("nature", "pong", rate)
        assert flags["--run-dir"] == str(trial.run_dir)
    assert result.best_config is not None
    assert ringside.starting_point(None, None, config=result.best_config).learn.learning_rate == max(rates)


def test_the_same_call_continues_and_adds_trials(program: Program) -> None:
    first = program()
    assert len(program.calls) == 2
    program(trials=2)
    assert len(program.calls) == 2, "all are done"
    later = program(trials=3)
    assert later.trials[:2] == first.trials
    assert len({trial.settings["learning_rate"] for trial in later.trials}) == 3
    with pytest.raises(ConfigError, match="holds a study with another space"):
        program(space={"n_step": {"choices": [1, 3]}})
    with pytest.raises(ConfigError, match=r"holds a study with another settings and length of trials:"):
        program(config=Config().with_settings(game="pong", batch_size=64, eval_every_steps=20_000, device="cpu"))
    for changed in ({"total_steps": 200_000}, {"eval_every_steps": 10_000}, {"eval_episodes": 5}, {"stop_at": 3.0}):
        with pytest.raises(ConfigError, match="holds a study with another length of trials"):
            program(config=CONFIG.with_settings(**changed))
    assert program(trials=3, config=CONFIG.with_settings(actors=2)).trials == later.trials


def test_a_study_of_an_earlier_version_continues_and_learns_its_score(program: Program) -> None:
    import optuna

    program(trials=1)
    study = optuna.load_study(study_name="ringside", storage=f"sqlite:///{program.out / DATABASE}")
    task = study.user_attrs["task"]
    del task["length of trials"]["stop_at"]
    study.set_user_attr("task", task)
    program(trials=1, config=CONFIG.with_settings(stop_at=3.0))
    with pytest.raises(ConfigError, match="holds a study with another length of trials"):
        program(trials=1)


def test_a_study_of_whole_values_of_a_real_setting_is_another(program: Program) -> None:
    import optuna

    space = {"discount": {"low": 0.0, "high": 1.0}}
    program(trials=1, space=space)
    study = optuna.load_study(study_name="ringside", storage=f"sqlite:///{program.out / DATABASE}")
    task = study.user_attrs["task"]
    task["space"]["discount"] |= {"low": 0, "high": 1}
    study.set_user_attr("task", task)
    with pytest.raises(ConfigError, match="holds a study with another space"):
        program(trials=2, space=space)


def test_a_study_with_one_whole_end_of_a_range_continues(program: Program) -> None:
    import optuna

    space = {"discount": {"low": 0.9, "high": 1.0}}
    program(trials=1, space=space)
    study = optuna.load_study(study_name="ringside", storage=f"sqlite:///{program.out / DATABASE}")
    task = study.user_attrs["task"]
    task["space"]["discount"]["high"] = 1
    study.set_user_attr("task", task)
    assert len(program(trials=2, space=space).trials) == 2


def test_the_file_of_the_best_has_settings_of_its_method_alone(program: Program) -> None:
    config = CONFIG.with_settings(method="c51", atoms=21)
    best = program(trials=1, config=config, space={"method": {"choices": ["dqn"]}}).best_config
    assert best is not None
    assert "atoms" not in best.read_text()
    assert ringside.starting_point(None, None, config=best).algorithm.method == "dqn"


def test_a_trial_that_was_stopped_before_its_end_is_continued(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UNFINISHED", "0")
    result = program()
    assert [trial.state for trial in result.trials] == ["running", "complete"]
    assert result.best is not None
    assert result.best.number == 1
    assert any("trial 0: it was stopped before its end" in note for note in program.notes)
    monkeypatch.delenv("FAKE_UNFINISHED")
    assert [trial.state for trial in program().trials] == ["complete", "complete"]


def test_a_trial_that_reached_its_score_is_complete(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_UNFINISHED", "0")
    assert program(trials=1, config=CONFIG.with_settings(stop_at=0.5)).trials[0].state == "complete"


def test_settings_that_no_file_may_have_are_not_in_that_of_the_best(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").touch()  # as if it were installed
    monkeypatch.syspath_prepend(tmp_path)
    best = program(trials=1, config=CONFIG.with_settings(track="wandb", wandb_group="one")).best_config
    assert best is not None
    assert "wandb" not in best.read_text()
    ringside.starting_point(None, None, config=best)


def test_a_trial_that_was_interrupted_is_resumed(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    program(trials=1, config=CONFIG.with_settings(stop_at=30.0))
    study = optuna.load_study(study_name="ringside", storage=f"sqlite:///{program.out / 'study.db'}")
    trial = study.ask()
    rate = trial.suggest_float("learning_rate", 1e-4, 1e-3, log=True)
    trial.report(1.0, 0)
    checkpoints = program.out / "trial-0001" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "checkpoint-00000001.json").touch()
    with warnings.catch_warnings(record=True) as warned:
        result = program(trials=2, config=CONFIG.with_settings(actors=2, stop_at=30.0))
    assert not [each for each in warned if "already" in str(each.message)]
    flags = dict(zip(program.calls[-1][::2], program.calls[-1][1::2], strict=True))
    assert flags == {
        "--resume": str(program.out / "trial-0001"),
        "--total-steps": "100_000",
        "--eval-every-steps": "20_000",
        "--actors": "2",
        "--stop-at": "30.0",
    }
    assert (result.trials[1].state, result.trials[1].settings["learning_rate"]) == ("complete", rate)


def test_a_trial_waits_for_the_run_of_a_launcher_that_was_killed(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    import optuna

    monkeypatch.setattr("shared.files.lock.POLL_SECONDS", 0.01)
    program(trials=1)
    study = optuna.load_study(study_name="ringside", storage=f"sqlite:///{program.out / 'study.db'}")
    study.ask().suggest_float("learning_rate", 1e-4, 1e-3, log=True)
    trial = program.out / "trial-0001"
    trial.mkdir()
    with ExitStack() as held:
        held.enter_context(locked(trial / LOCK_FILE, "--run-dir", "a test"))

        def note(sentence: str) -> None:
            program.notes.append(sentence)
            if "may still be saving" in sentence:
                assert len(program.calls) == 1, "its directory is in use"
                held.close()

        result = program(trials=2, note=note)
    assert sum(f"{trial} is in use by a run that may still be saving" in each for each in program.notes) == 1
    assert [each.state for each in result.trials] == ["complete", "complete"]


def test_a_directory_that_is_in_use_for_long_ends_the_call(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.programs.former_runs.FORMER_RUN_SECONDS", 0.0)
    trial = program.out / "trial-0000"
    trial.mkdir(parents=True)
    with locked(trial / LOCK_FILE, "--run-dir", "a test"), pytest.raises(ConfigError, match="is in use by another run"):
        program(trials=1)
    assert program(trials=1).trials[0].state == "complete"


def test_a_trial_that_had_ended_when_the_study_was_stopped_counts(program: Program) -> None:
    import optuna

    program(trials=1)
    study = optuna.load_study(study_name="ringside", storage=f"sqlite:///{program.out / 'study.db'}")
    study.ask().suggest_float("learning_rate", 1e-4, 1e-3, log=True)
    write_run(program.out / "trial-0001", evaluations=[1.0, 7.0])
    result = program(trials=2)
    assert len(program.calls) == 1, "its run, which has ended, is not resumed"
    assert [(trial.state, trial.value) for trial in result.trials][1] == ("complete", 7.0)


def test_a_trial_below_the_median_is_pruned(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.tuning.study.FIRST_TRIALS", 1)
    monkeypatch.setenv("FAKE_BAD", "1")
    result = program()
    assert [trial.state for trial in result.trials] == ["complete", "pruned"]
    assert result.trials[1].evaluations == [(0, -100.0), (1, -100.0)]
    assert any("trial 1: pruned after -100.00" in note for note in program.notes)


def test_a_trial_that_fails_ends_no_study(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAILS", "0")
    result = program()
    assert [trial.state for trial in result.trials] == ["failed", "complete"]


def on_objects(program: Program, monkeypatch: pytest.MonkeyPatch, room: int, *faults: Fault) -> ObjectCluster:
    """Have `--ray` lead to a cluster of objects with room for so many trials at once."""
    hosts = ObjectCluster(partial(ProgramHost, launcher=program.launcher), *faults, room=room)

    @contextmanager
    def placed(cluster: ClusterOptions, shared: Path, launcher: Path) -> Iterator[Programs]:
        yield LocalPrograms(launcher) if cluster.ray is None else ClusterPrograms(hosts, cluster.cpus_per_run, shared)

    monkeypatch.setattr(placing, "_placed", placed)
    monkeypatch.setattr(placed_programs, "_POLL_SECONDS", 0.02)
    return hosts


def test_a_study_on_a_cluster_runs_trials_at_once_and_survives_the_loss_of_a_node(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[int] = []

    def dies(method: str, call: int) -> str | None:
        if method == "poll" and not lost:
            lost.append(call)
            return "died"
        return None

    hosts = on_objects(program, monkeypatch, 2, dies)
    result = program(trials=4, cluster=ClusterOptions(ray="auto"))
    assert [trial.state for trial in result.trials] == ["complete"] * 4
    assert len({trial.settings["learning_rate"] for trial in result.trials}) == 4
    assert all(trial.value == pytest.approx(1e4 * trial.settings["learning_rate"]) for trial in result.trials)
    assert hosts.most_at_once == 2
    assert len(hosts.hosts) == 5
    assert all(host.released for host in hosts.hosts)
    assert sum("its node died; it continues elsewhere" in note for note in program.notes) == 1


def test_a_trial_on_a_cluster_is_pruned(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.tuning.study.FIRST_TRIALS", 1)
    monkeypatch.setenv("FAKE_BAD", "1")
    on_objects(program, monkeypatch, 1)
    result = program(cluster=ClusterOptions(ray="auto"))
    assert [trial.state for trial in result.trials] == ["complete", "pruned"]


@pytest.mark.stress
def test_a_trial_that_loses_every_node_stays_for_the_next_call(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(method: str, call: int) -> str | None:
        return "died" if method == "poll" else None

    on_objects(program, monkeypatch, 1, *[dies] * MOST_LOSSES)
    result = program(trials=1, cluster=ClusterOptions(ray="auto"))
    assert [trial.state for trial in result.trials] == ["running"]
    assert any("lost 5 times in a row" in note for note in program.notes)
    assert [trial.state for trial in program(trials=1).trials] == ["complete"]


def test_the_options_of_a_cluster_need_one(program: Program) -> None:
    with pytest.raises(ConfigError, match="are for clusters: pass --ray, too"):
        program(cluster=ClusterOptions(gpus_per_run=0.5))
    assert not program.out.exists()


def test_the_plots_of_a_study_are_in_its_report(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("FAKE_LOG", str(program.out.parent / "told.jsonl"))
    monkeypatch.setenv("FAKE_ROOT", str(ROOT))
    result = program()
    assert result.report is not None
    page = result.report.read_text()
    assert "Search for settings" in page
    assert '<div class="pair study">' in page, "its third picture is as wide as the page"
    assert page.index("Evaluations of each trial") < page.index("Result by each setting") < page.index("Scores by game")
    for name in ("study-history", "study-evaluations", "study-settings"):
        assert (result.report.parent / f"{name}.png").stat().st_size > 1_000


def test_spaces_are_read_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text("[learning-rate]\nlow = 1e-5\nhigh = 1e-3\nlog = true\n[n_step]\nchoices = [1, 3]\n")
    space = read_space(file)
    assert space == {"learning_rate": Dimension(1e-5, 1e-3, log=True), "n_step": Dimension(choices=(1, 3))}
    checked_space(space, Config())


def test_a_setting_and_not_its_ends_decides_whether_a_range_is_whole() -> None:
    ranges = {
        "n_step": {"low": 1.0, "high": 5.0, "step": 2.0},
        "replay_size": {"low": 1e5, "high": 1e6},
        "discount": {"low": 0, "high": 1},
        "atoms": {"low": 11.0, "high": 51.0},
        "v_max": {"low": 1, "high": 10, "step": 1},
        "learner_threads": {"low": 1.0, "high": 2.0},
    }
    space = checked_space(make_space(ranges), Config().with_settings(method="c51"))
    kinds = {name: {type(each.low), type(each.high)} for name, each in space.items()}
    whole, real = {int}, {float}
    assert kinds == {
        "n_step": whole,
        "replay_size": whole,
        "discount": real,
        "atoms": whole,
        "v_max": real,
        "learner_threads": whole,
    }
    assert (space["n_step"].step, type(space["v_max"].step)) == (2, float)
    of_method = {"method": {"choices": ["c51", "qr-dqn"]}, "atoms": {"low": 11.0, "high": 51.0}}
    assert type(checked_space(make_space(of_method), Config())["atoms"].high) is int


@pytest.mark.parametrize("preset", PRESETS)
def test_every_trial_of_a_default_space_can_start(preset: Any) -> None:
    config = PRESETS[preset].with_settings(device="cpu")
    space = default_space(config)
    checked_space(space, config)
    for end in (0, -1):
        values = {name: dimension.examples[end] for name, dimension in space.items()}
        given = planning.settings_beside_preset(config.with_settings(**values), preset)
        assert values.items() <= configuration(["--preset", preset, *flags_of(given)]).to_flat().items()


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({}, "names no setting"),
        ({"n_step": {"choices": [1]}, "n-step": {"choices": [3]}}, "The space names n_step twice"),
        ({"n_step": 3}, "write low and high"),
        ({"n_step": {"low": 3}}, "write low and high"),
        ({"n_step": {"low": 3, "high": 1}}, "write low and high"),
        ({"learning_rate": {"low": 0.0, "high": 1.0, "log": True}}, "write low and high"),
        ({"n_step": {"choices": []}}, "write low and high"),
        ({"n_stp": {"choices": [1]}}, "no setting 'n_stp'; did you mean n_step"),
        ({"n_step": {"choices": ["many"]}}, "n_step 'many' is not a whole number"),
        ({"seed": {"choices": [1, 2]}}, "the same in all trials"),
        ({"protocol": {"choices": ["nature", "dopamine"]}}, "the same in all trials"),
        ({"eval_episodes": {"low": 1, "high": 2}}, "the same in all trials"),
        ({"n_step": {"choices": [1]}, "n-step": {"choices": [3]}}, "names n_step twice"),
        ({"entropy_weight": {"low": 0.01, "high": 0.1}}, "--entropy-weight"),
        (
            {"epsilon_start": {"choices": [0.05, 1.0]}, "epsilon_end": {"choices": [0.1]}},
            "is more than --epsilon-start",
        ),
        ({"n_step": {"low": 1.5, "high": 5}}, "cannot be used: n_step 1.5 is not a whole number"),
        ({"dueling": {"low": 0, "high": 1}}, "cannot be used: dueling 0 is not True or False"),
        ({"method": {"choices": ["sarsa"]}, "n_step": {"low": 1, "high": 3}}, "cannot be used: .*sarsa"),
        ({"n_step": {"low": 1, "high": 5, "step": 0}}, "the step 0: it must be a whole number above 0"),
        ({"n_step": {"low": 1, "high": 5, "step": -8}}, "the step -8: it must be a whole number above 0"),
        ({"n_step": {"low": 1, "high": 5, "step": 1.5}}, "the step 1.5: it must be a whole number above 0"),
        ({"discount": {"low": 0.9, "high": 1.0, "step": 0.0}}, "the step 0.0: it must be a number above 0"),
        ({"n_step": {"low": 1, "high": 5, "step": float("nan")}}, "a number that is not finite"),
        ({"learning_rate": {"low": 1e-5, "high": float("inf")}}, "a number that is not finite"),
        ({"total_steps": {"low": 1, "high": 10**40}}, "not below 4_611_686_018_427_387_904"),
    ],
)
def test_a_wrong_space_is_refused(tables: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        checked_space(make_space(tables), Config())


def test_a_space_of_a_file_is_refused_with_its_name(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("[n_step]\nlow = 5\nhigh = 1\n")
    assert "--space space.toml: The space of n_step is" in refused("tune", "--space", "space.toml")
    (tmp_path / "space.toml").write_text("[n_step]\nlow = 0\nhigh = 1\n")
    assert "--space space.toml cannot be used: --n-step 0" in refused("tune", "--space", "space.toml")


@pytest.mark.parametrize("kind", ["text", "another version", "another table", "link"])
def test_a_file_that_is_no_study_is_refused(program: Program, kind: str) -> None:
    program.out.mkdir()
    database = program.out / DATABASE
    if kind == "text":
        database.write_text("mine")
    elif kind == "link":
        database.symlink_to(program.launcher)
    else:
        with closing(sqlite3.connect(database)) as connection:
            if kind == "another table":
                connection.execute("create table studies (name text)")
            else:
                columns = "version_info_id integer, schema_version, library_version"
                connection.execute(f"create table version_info ({columns})")
                connection.execute("insert into version_info values (1, 99, '99.0')")
            connection.commit()
    with pytest.raises(ConfigError, match=f"^{re.escape(str(database))} .* name another --out"):
        program(**TUNED)
    assert kind != "text" or database.read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"run_dir": "x"}, "A study says itself what --run-dir is"),
        ({"resume": "x"}, "A study says itself what --resume is"),
        ({"env": "m:f", "game": "pong"}, "--game and --env both name what is played"),
        ({"preset": "ppo", "train_every": 4}, "--train-every has no effect"),
    ],
)
def test_a_call_refuses_what_the_command_refuses(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ringside.tune(**settings)


def test_the_command_refuses_what_a_study_decides(refused: Refused, tmp_path: Path) -> None:
    assert "omit it and use --out" in refused("tune", "--run-dir", "x")
    assert "--trials 0 must lie between 1 and 100_000" in refused("tune", "--trials", "0")
    assert "--trials 1_000_000 must lie between 1 and 100_000" in refused("tune", "--trials", "1e6")
    assert "--space nowhere.toml cannot be read" in refused("tune", "--space", "nowhere.toml")
