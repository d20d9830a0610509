"""`tune` over runs that train nothing: what is tried, pruned, resumed and reported."""

import re
import shutil
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib import rcParams

import ringside
from ringside.cluster import placed_programs
from ringside.cluster.placed_programs import ClusterPrograms, ProgramHost
from ringside.cluster.placing import ClusterOptions, Programs
from ringside.command.train import configuration
from ringside.report import plots
from ringside.run import planning
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

optuna = pytest.importorskip("optuna", reason="there is no Optuna here: the extra tune of setup.cfg")

from ringside.command import study  # noqa: E402  (after the package that it needs)
from tests.support import fake_trials  # noqa: E402

SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-3, "log": True}}
CONFIG = Config().with_settings(game="pong", total_steps=100_000, eval_every_steps=20_000, device="cpu")


class Program:
    """A study over the fake runs. `patch` changes more."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out, self.patch = tmp_path / "study", monkeypatch
        self.notes: list[str] = []
        self.calls: list[Config] = []
        self.faults: dict[int, str] = {}
        monkeypatch.setattr(fake_trials, "CALLS", self.calls)
        monkeypatch.setattr(fake_trials, "FAULTS", self.faults)
        monkeypatch.setattr(planning, "plan", fake_trials.plan)
        monkeypatch.setattr(study, "run_plan", fake_trials.run)
        monkeypatch.setattr(study.Search, "_report", lambda search, runs: search.directory / "report.html")

    def __call__(
        self, config: Config = CONFIG, trials: int = 2, space: Any = SPACE, *, prune: bool = True, **cluster: Any
    ) -> study.StudyResult:
        own = (trials, space, self.out, prune, ClusterOptions(**cluster), self.notes.append)
        return study.Search(config, "nature", *own).run()

    def open_trial(self, number: int) -> Path:
        """A trial whose process has died after its run had begun; the directory of its run."""
        opened = study._open_journal(self.out / study.JOURNAL, prune=True)
        trial = opened.ask()
        assert trial.number == number
        trial.suggest_float("learning_rate", 1e-4, 1e-3, log=True)
        trial.report(1.0, 0)
        return write_run(self.out / f"trial-{number:04}", evaluations=[1.0], ended=None)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(tmp_path, monkeypatch)


def test_trials_are_runs_with_settings_of_the_space_and_the_best_is_kept(program: Program) -> None:
    result = program()
    rates = [trial.settings["learning_rate"] for trial in result.trials]
    assert ([trial.state for trial in result.trials], len(set(rates))) == (["complete", "complete"], 2)
    assert [trial.value for trial in result.trials] == pytest.approx([1e4 * rate for rate in rates])
    assert (result.best.settings["learning_rate"], result.stopped) == (max(rates), False)
    for config, rate, trial in zip(program.calls, rates, result.trials, strict=True):
        assert config == CONFIG.with_settings(learning_rate=rate, run_dir=trial.run_dir)
    assert ringside.starting_point(None, None, config=result.best.run_dir).learn.learning_rate == max(rates)
    program.out = program.out.with_name("again")
    assert [trial.settings["learning_rate"] for trial in program().trials] == rates


def test_the_same_call_continues_and_adds_trials(program: Program) -> None:
    first = program()
    assert (program(trials=2).trials, len(program.calls)) == (first.trials, 2), "all are done"
    later = program(trials=3)
    assert later.trials[:2] == first.trials
    assert len({trial.settings["learning_rate"] for trial in later.trials}) == 3
    for space in ({"n_step": {"choices": [1, 3]}}, {"learning_rate": {"low": 1e-4, "high": 1e-3}}):
        with pytest.raises(ConfigError, match="holds a study with another space"):
            program(space=space)
    with pytest.raises(ConfigError, match=r"holds a study with another settings and length of trials:"):
        program(config=Config().with_settings(game="pong", batch_size=64, eval_every_steps=20_000, device="cpu"))
    for changed in ({"total_steps": 200_000}, {"eval_every_steps": 10_000}, {"eval_episodes": 5}, {"stop_at": 3.0}):
        with pytest.raises(ConfigError, match="holds a study with another length of trials"):
            program(config=CONFIG.with_settings(**changed))
    assert program(trials=3, config=CONFIG.with_settings(actors=2)).trials == later.trials
    with pytest.raises(ConfigError, match="a trial would have no evaluation"):
        program(config=CONFIG.with_settings(eval_every_steps=100_001))


@pytest.mark.parametrize(("fault", "score"), [("is stopped", None), ("is stopped", 90.0), ("never began", 0.5)])
def test_a_stopped_trial_ends_the_call_and_is_continued(program: Program, fault: str, score: float | None) -> None:
    program.faults[0] = fault
    config = CONFIG.with_settings(stop_at=score)
    result = program(config)
    assert ([trial.state for trial in result.trials], result.stopped, result.best) == (["running"], True, None)
    assert any("trial 0: it was stopped before its end" in note for note in program.notes)
    program.faults.clear()
    assert [trial.state for trial in program(config).trials] == ["complete", "complete"]
    program.faults[0], program.out = "is stopped", program.out.with_name("reached")
    assert program(CONFIG.with_settings(stop_at=5.0)).trials[0].state == "complete", "its score is reached"


def test_a_trial_that_was_interrupted_is_resumed_with_its_settings(program: Program) -> None:
    program(trials=1)
    run_dir = program.open_trial(1)
    (run_dir / "checkpoints").mkdir()
    (run_dir / "checkpoints" / "checkpoint-00000001.json").touch()
    result = program(trials=3, config=CONFIG.with_settings(actors=2))
    assert [trial.state for trial in result.trials] == ["complete"] * 3
    resumed, new = program.calls[1:]
    rate = result.trials[1].settings["learning_rate"]
    changed = {"learning_rate": rate, "run_dir": run_dir, "actors": 2}
    assert resumed == CONFIG.with_settings(resume=run_dir, **changed)
    assert new.run.resume is None


def test_a_trial_that_another_process_runs_is_left_to_it(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program(trials=1)
    run_dir = program.open_trial(1)
    for lock in (run_dir / LOCK_FILE, program.out / "trial-0001.lock"):
        with locked(lock, "--run-dir", "a test"):
            result = program(trials=3)
        assert [trial.state for trial in result.trials] == ["complete", "running", "complete"]

    def slower(*arguments: Any) -> None:
        held.__enter__()
        raise ConfigError("It belongs to another run.")

    held = locked(run_dir / LOCK_FILE, "--run-dir", "a test")
    with monkeypatch.context() as patched:
        patched.setattr(study, "run_plan", slower)
        assert [trial.state for trial in program(trials=3).trials] == ["complete", "running", "complete"]
    held.__exit__(None, None, None)
    assert [trial.state for trial in program(trials=3).trials] == ["complete"] * 3


def test_a_trial_whose_process_died_early_is_begun_again(program: Program) -> None:
    program(trials=1)
    shutil.rmtree(program.open_trial(1))
    assert [trial.state for trial in program().trials] == ["complete", "complete"]


def test_a_trial_that_another_process_has_told_meanwhile_is_not_run_again(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(trials=1)
    program.open_trial(1)

    def tell(path: Path, *words: str) -> Any:
        """The other process tells the result of its trial and releases its lock before this one takes it."""
        if path.name == "trial-0001.lock":
            study._open_journal(program.out / study.JOURNAL, prune=True).tell(1, 5.0)
        return locked(path, *words)

    monkeypatch.setattr(study, "locked", tell)
    assert ([trial.value for trial in program().trials][1:], len(program.calls)) == ([5.0], 1)


def test_no_trial_is_run_beyond_those_that_were_asked_for(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = optuna.Study.ask
    monkeypatch.setattr(optuna.Study, "ask", lambda opened: (ask(opened), ask(opened))[1])  # another process asks, too
    program.out.mkdir(parents=True)
    with locked(program.out / "trial-0000.lock", "--out", "another process"):
        assert ((found := program(trials=1)).trials, found.stopped, program.calls) == ((), False, [])


def test_a_trial_that_had_ended_when_the_study_was_stopped_counts(program: Program) -> None:
    program(trials=1)
    write_run(program.open_trial(1), evaluations=[1.0, 7.0])
    result = program(trials=2)
    assert len(program.calls) == 1, "its run, which has ended, is not resumed"
    assert [(trial.state, trial.value) for trial in result.trials][1] == ("complete", 7.0)


def test_a_trial_below_the_median_is_pruned(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "FIRST_TRIALS", 1)
    program.faults[1] = "is bad"
    result = program()
    assert [trial.state for trial in result.trials] == ["complete", "pruned"]
    assert result.trials[1].evaluations == [(0, -100.0), (1, -100.0)]
    assert any("trial 1: pruned after -100.00" in note for note in program.notes)
    program.out = program.out.with_name("whole")
    assert [trial.state for trial in program(prune=False).trials] == ["complete", "complete"]


def test_a_trial_that_fails_ends_no_study(program: Program) -> None:
    program.faults[0] = "fails"
    result = program()
    assert [trial.state for trial in result.trials] == ["failed", "complete"]
    assert any("trial 0: failed: It failed." in note for note in program.notes)


def test_a_trial_that_is_refused_as_any_other_would_be_stays_open(program: Program) -> None:
    program.faults[1] = "is refused"  # which stands for any
    with pytest.raises(ConfigError, match="There is no room"):
        program()
    assert program.calls == []
    program.faults[0] = program.faults.pop(1)
    assert [trial.state for trial in program().trials] == ["failed", "complete"], "its settings are at fault"


def test_a_study_on_a_cluster_survives_a_lost_node(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    faults, space = ["died"], program.out.with_name("space.toml")
    hosts = on_objects(program.patch, 2, lambda method, call: faults.pop() if method == "poll" and faults else None)
    space.write_text("[learning_rate]\nlow = 1e-4\nhigh = 1e-3\nlog = true\n")
    result = program(trials=4, space=space, ray="auto")
    assert [trial.state for trial in result.trials] == ["complete"] * 4
    assert len({trial.settings["learning_rate"] for trial in result.trials}) == 4
    assert all(trial.value == pytest.approx(1e4 * trial.settings["learning_rate"]) for trial in result.trials)
    assert (hosts.most_at_once, all(host.released for host in hosts.hosts)) == (2, True)
    assert capsys.readouterr().out.count("its node died; it continues elsewhere") == 1


def on_objects(monkeypatch: pytest.MonkeyPatch, room: int, *faults: Fault) -> ObjectCluster:
    """Have `--ray` lead to a cluster of objects with room for so many workers at once."""
    launcher = ROOT / "tests" / "support" / "fake_trials.py"
    hosts = ObjectCluster(partial(ProgramHost, launcher=launcher), *faults, room=room)

    def placed(cluster: ClusterOptions, shared: Path) -> AbstractContextManager[Programs]:
        return nullcontext(ClusterPrograms(hosts, cluster.cpus_per_run, shared))

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("ringside.cluster.placing._placed", placed)
    monkeypatch.setattr(placed_programs, "_POLL_SECONDS", 0.02)
    return hosts


def test_a_cluster_needs_its_option_and_a_space_that_nodes_can_read(program: Program) -> None:
    with pytest.raises(ConfigError, match="are for clusters: pass --ray, too"):
        program(gpus_per_run=0.5)
    with pytest.raises(ConfigError, match="the space must be a file"):
        program(ray="auto")
    assert not program.out.exists()


def test_the_plots_of_a_study_are_in_its_report(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(planning, "plan", fake_trials.plan)
    monkeypatch.setattr(study, "run_plan", fake_trials.run)
    drawn, save = list[bool](), plots.save
    monkeypatch.setattr(plots, "save", lambda *words: drawn.append(rcParams["text.parse_math"]) or save(*words))
    result = program()
    assert drawn[:3] == [True] * 3, "ticks of a logarithm are formulas"
    page = result.report.read_text()
    assert page.index("Evaluations of each trial") < page.index("Result by each setting") < page.index("Scores by game")
    for name in ("study-history", "study-evaluations", "study-settings"):
        assert (result.report.parent / f"{name}.png").stat().st_size > 1_000


def test_a_space_of_a_file_has_ranges_and_choices(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text("[learning-rate]\nlow = 1e-5\nhigh = 1e-3\nlog = true\n[n_step]\nchoices = [1, 3]\n")
    space = study.make_space(file, Config())
    assert space == {
        "learning_rate": optuna.distributions.FloatDistribution(1e-5, 1e-3, log=True),
        "n_step": optuna.distributions.CategoricalDistribution((1, 3)),
    }


def test_a_setting_and_not_its_ends_decides_whether_a_range_is_whole() -> None:
    whole = {
        "n_step": {"low": 1.0, "high": 5.0, "step": 2.0},
        "replay_size": {"low": 1e5, "high": 1e6},
        "atoms": {"low": 11.0, "high": 51.0},
        "learner_parts": {"low": 1.0, "high": 2.0},
    }
    real = {"discount": {"low": 0, "high": 1}, "v_max": {"low": 1, "high": 10, "step": 1}}
    space = study.make_space(whole | real, Config().with_settings(method="c51"))
    kinds = {name: type(each) for name, each in space.items()}
    distributions = optuna.distributions
    wanted = dict.fromkeys(whole, distributions.IntDistribution)
    assert kinds == wanted | dict.fromkeys(real, distributions.FloatDistribution)
    of_method = {"method": {"choices": ["c51", "qr-dqn"]}, "atoms": {"low": 11.0, "high": 51.0}}
    assert study.make_space(of_method, Config())["atoms"] == distributions.IntDistribution(11, 51)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_trial_of_a_default_space_can_start(preset: Any) -> None:
    config = PRESETS[preset].with_settings(device="cpu")
    space = study.make_space(None, config)
    assert space.keys() == study.default_tables(config).keys()
    for end in (0, -1):
        values = {name: study.values_of(each)[end] for name, each in space.items()}
        given = planning.settings_beside_preset(config.with_settings(**values), preset)
        assert values.items() <= configuration(["--preset", preset, *flags_of(given)]).to_flat().items()


WRONG_SPACES = [
    ({}, "names no setting"),
    ({"n_step": {"choices": [1]}, "n-step": {"choices": [3]}}, "The space cannot be used: it names n_step twice"),
    ({"n_step": 3}, "the space of n_step is 3 .* write low and high"),
    ({"n_step": {"low": 3}}, "write low and high"),
    ({"n_step": {"low": 3, "high": 4, "hihg": 5}}, "hihg.* write low and high"),
    ({"n_step": {"low": 3, "high": 1}}, "low=3, high=1.* write low and high"),
    ({"n_step": {"choices": []}}, "write low and high"),
    ({"n_stp": {"low": 1, "high": 2}}, "no setting 'n_stp'; did you mean n_step"),
    ({"n_step": {"choices": ["many"]}}, "n_step 'many' is not a whole number"),
    ({"seed": {"choices": [1, 2]}}, "the same in all trials"),
    ({"entropy_weight": {"low": 0.01, "high": 0.1}}, "--entropy-weight"),
    ({"epsilon_start": {"choices": [0.05]}, "epsilon_end": {"choices": [0.1]}}, "is more than --epsilon-start"),
    ({"n_step": {"low": 1.5, "high": 5}}, "cannot be used: n_step 1.5 is not a whole number"),
    ({"dueling": {"low": 0, "high": 1}}, "cannot be used: dueling 0 is not True or False"),
    ({"method": {"choices": ["sarsa"]}, "n_step": {"low": 1, "high": 3}}, "cannot be used: .*sarsa"),
    ({"n_step": {"low": 1, "high": 5, "step": 0}}, "`step > 0` must hold, but got step=0"),
    ({"n_step": {"low": 1, "high": 5, "step": 1.5}}, "n_step 1.5 is not a whole number"),
    ({"discount": {"low": 0.9, "high": 1.0, "step": float("nan")}}, "--discount nan must be a finite number"),
    ({"learning_rate": {"low": 1e-5, "high": float("inf")}}, "--learning-rate inf must be a finite number"),
    ({"replay_size": {"low": 100_000, "high": 10**40}}, "must be below 4_611_686_018_427_387_904"),
]


@pytest.mark.parametrize(("tables", "says"), WRONG_SPACES)
def test_a_wrong_space_is_refused(tables: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        study.make_space(tables, Config())


def test_a_space_of_a_file_is_refused_with_its_name(refused: Refused, tmp_path: Path) -> None:
    for low, high, says in ((5, 1, "the space of n_step is"), (0, 1, "--n-step 0")):
        (tmp_path / "space.toml").write_text(f"[n_step]\nlow = {low}\nhigh = {high}\n")
        assert f"--space space.toml cannot be used: {says}" in refused("tune", "--space", "space.toml")


@pytest.mark.parametrize("content", ["mine", "mine\n", '{"a": 1}\n', "link"])
def test_a_file_that_is_no_study_is_refused(program: Program, content: str, tmp_path: Path) -> None:
    program.out.mkdir()
    journal = program.out / study.JOURNAL
    if content == "link":
        journal.symlink_to(tmp_path)
    else:
        journal.write_text(content)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(journal))} .* name another --out"):
        program()
    assert content == "link" or journal.read_text() == content


WRONG_CALLS = [
    ({"run_dir": "x"}, "A study says itself what --run-dir is"),
    ({"resume": "x"}, "A study says itself what --resume is"),
    ({"preset": "ppo", "train_every": 4}, "--train-every has no effect"),
]


@pytest.mark.parametrize(("settings", "says"), WRONG_CALLS)
def test_a_call_refuses_what_the_command_refuses(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ringside.tune(**settings)
