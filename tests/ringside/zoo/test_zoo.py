"""The zoo: every entry is what it says, names are found, an entry is made of a run."""

import json
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

import ringside
from ringside.agents.stored_weights import play_of, rules_of, weights_at
from ringside.agents.zoo_entries import command_of, steps_at_version
from ringside.command.train import configuration
from ringside.records.scores import summarize
from ringside.run import planning
from ringside.zoo import catalogue
from shared.config.presets import PRESETS
from shared.config.protocols import PROTOCOLS
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.files.run_file_names import METRICS_FILE, SUMMARY_FILE
from shared.root import ROOT
from tests.conftest import Launch, Refused
from tests.support.checkpoints import random_weights
from tests.support.written_runs import write_run

CATCH = "tests.support.pixel_game:factory"


def check_entry(entry: Path, env: str | None = None) -> None:
    """An entry's files are there, small, and of the same agent; its evaluation is by the rules of its protocol."""
    assert (entry / catalogue.WEIGHTS).stat().st_size <= catalogue.MOST_BYTES
    names = {path.name for path in entry.iterdir()}
    needed = {catalogue.WEIGHTS, SUMMARY_FILE, catalogue.EVALUATION, catalogue.README}
    assert names - catalogue.SHOWN.keys() == needed
    for name, line in catalogue.SHOWN.items():
        assert (name in names) == (line in (entry / catalogue.README).read_text())
        assert name not in names or (entry / name).stat().st_size <= catalogue.MOST_SHOWN_BYTES
    weights, readme = weights_at(entry, env), (entry / catalogue.README).read_text()
    summary, evaluation = (json.loads((entry / name).read_text()) for name in (SUMMARY_FILE, catalogue.EVALUATION))
    rules = rules_of(weights, play_of(weights))
    for found in (summary, evaluation):
        assert (found["game"], found["protocol"]) == (weights.game, weights.protocol)
    assert evaluation["version"] == weights.version <= summary["rounds"]
    assert (evaluation["eval_epsilon"], evaluation["eval_max_frames"]) == (rules.epsilon, rules.max_frames)
    assert evaluation["episodes"] == PROTOCOLS[weights.protocol].eval_episodes
    figures = summarize(weights.game, evaluation["returns"])
    for name in ("episodes", "mean", "sd", "median", "best", "human_normalized"):
        assert evaluation[name] == getattr(figures, name)
    assert "python launch.py --" in readme
    assert f"{evaluation['mean']:.2f}" in readme
    assert ringside.load_agent(entry, device="cpu")(np.zeros((4, 84, 84), np.uint8)) in range(weights.network.actions)


@pytest.mark.parametrize("name", catalogue.names())
def test_entries_are_what_they_say(name: str) -> None:
    check_entry(catalogue.ZOO / name)
    assert catalogue.weights_in(catalogue.ZOO, name) == catalogue.ZOO / name / catalogue.WEIGHTS


def test_the_table_of_the_zoo_has_the_figures_of_its_entries() -> None:
    lines = (catalogue.ZOO / catalogue.README).read_text().splitlines()
    table = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    rows = {cells[0]: cells[1:] for cells in table if len(cells) == 4}
    assert set(rows) == set(catalogue.names())
    assert sum(path.stat().st_size for path in catalogue.ZOO.glob("*/*")) <= 40e6
    for name, (method, steps, mean) in rows.items():
        files = (catalogue.ZOO / name / file for file in (catalogue.EVALUATION, SUMMARY_FILE))
        evaluation, summary = (json.loads(file.read_text()) for file in files)
        weights = weights_at(name)
        assert method.lower() == weights.network.method
        assert int(steps.replace(",", "")) == steps_at_version(weights.version, summary)
        assert float(mean.replace(",", "")) == pytest.approx(evaluation["mean"], abs=0.05005 if "." in mean else 0.5005)
        assert evaluation["episodes"] == 30


@pytest.fixture
def empty_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another zoo than the repository's, and a working directory where there is nothing."""
    directory = tmp_path / "zoo"
    directory.mkdir()
    monkeypatch.setattr(catalogue, "ZOO", directory)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return directory


def make_run(directory: Path, **settings: object) -> Path:
    """A run directory as a run leaves it, of a small random network."""
    random_weights(directory, CATCH, actions=3, plugin=settings.get("plugin"))
    config = PRESETS["quick"].with_settings(env=CATCH, network="small", run_dir=directory, **settings)
    (directory / "config.json").write_text(json.dumps(config.to_json()))
    summary = {"game": CATCH, "protocol": "nature", "steps": 20 * 1_024, "rounds": 20, "seconds": 3_600.0}
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def test_names_are_found_and_files_come_first(empty_zoo: Path, tmp_path: Path) -> None:
    (empty_zoo / "pong").mkdir()
    expected = shutil.copy(random_weights(tmp_path / "run"), empty_zoo / "pong" / catalogue.WEIGHTS)
    assert catalogue.names() == ("pong",)
    for load in ("pong", "zoo/pong", empty_zoo / "pong", expected):
        assert catalogue.find_weights(load) == expected
    Path("pong").mkdir()
    assert catalogue.find_weights("pong") == Path("pong")
    with pytest.raises(ConfigError, match=r"--load pang does not exist: .*the agents in the zoo are pong\."):
        catalogue.find_weights("pang")


def test_an_agent_that_is_not_here_is_taken_from_a_directory_if_it_has_its_hash(
    empty_zoo: Path, tmp_path: Path, refused: Refused, launch: Launch
) -> None:
    assert "--load pong lies in zoo/ of a clone: pass CLONE/zoo/pong; play" in refused("eval", "pong")
    words = ("export", "pong", "--zoo", str(ROOT / "zoo"), "--onnx", "pong.onnx", "--frames", "8")
    assert launch(*words).returncode == 0
    (tmp_path / "pong").mkdir()
    (tmp_path / "pong" / catalogue.WEIGHTS).write_bytes(random_weights(tmp_path / "run").read_bytes())
    for name in ("zoo/pong", "qbert", "mine"):  # another agent's, missing, unknown
        assert "has a wrong hash; the agents are beam_rider, " in refused("play", name, "--zoo", str(tmp_path))


def test_an_entry_is_made_of_a_run(empty_zoo: Path, tmp_path: Path, launch: Launch, refused: Refused) -> None:
    run = make_run(tmp_path / "run", seed=9, actors=7)
    shutil.copy(write_run(tmp_path / "recorded") / METRICS_FILE, run)
    source = run / "checkpoints" / "best.safetensors"
    add = ("zoo", "--add", str(source), "--env", CATCH)
    assert launch(*add, "--name", "catch", "--device", "cpu").returncode == 0
    entry = empty_zoo / "catch"
    check_entry(entry, CATCH)
    assert {path.name for path in empty_zoo.iterdir()} == {"catch"}
    assert (entry / catalogue.WEIGHTS).read_bytes() == source.read_bytes()
    assert Image.open(entry / catalogue.CURVE).format == "PNG"
    with av.open(str(entry / catalogue.VIDEO)) as video:
        assert next(video.decode(video=0)).height >= 320
    readme = (entry / catalogue.README).read_text()
    for words in (f"--preset quick --env {CATCH}", "--seed 9", "--total-steps 7_168"):  # the weights' version, in steps
        assert words in readme
    assert ("actors" in readme, "protocol" in readme) == (False, False)
    assert readme.count(f"--load zoo/catch --env {CATCH}") == 2, "the commands of the entry work"
    assert launch("zoo").stdout.startswith("catch: tests.support.pixel_game:factory, mean ")
    assert "has a catch already" in refused(*add, "--name", "catch")
    assert launch(*add).stdout.startswith("tests_support_pixel_game_factory: ")


REFUSED = [
    (["--add", "nowhere"], "nowhere does not exist"),
    (["--add", "{run}", "--env", "{env}", "--name", "../pong"], "must be of small letters"),
    (["--add", "{alone}", "--env", "{env}"], "is in no run directory"),
    (["--add", "{run}"], "The agent of --add "),
    (["--plugin", "theirs"], "--plugin is for --add and --push"),
]


@pytest.mark.parametrize(("words", "says"), REFUSED)
def test_refused_additions(empty_zoo: Path, tmp_path: Path, refused: Refused, words: list[str], says: str) -> None:
    run = make_run(tmp_path / "run") / "checkpoints" / "best.safetensors"
    alone = shutil.copy(run, tmp_path / "alone.safetensors")
    assert says in refused("zoo", *(word.format(run=run, alone=alone, env=CATCH) for word in words))
    assert not list(empty_zoo.iterdir())


DAMAGE = [
    ("config.json", CATCH, "forged:factory", f"weights are of {CATCH}, but their run is of 'forged:factory'."),
    ("config.json", '"nature"', "null", "best.safetensors cannot be shared. "),
    ("summary.json", "20480", "null", "best.safetensors cannot be shared. summary.json has steps None"),
    ("summary.json", "20480", "1e300", "summary.json has steps 1e+300, which is no number that a run can have"),
    ("summary.json", "all", "[", "best.safetensors cannot be shared. summary.json is truncated or damaged"),
]


@pytest.mark.parametrize(("file", "old", "new", "says"), DAMAGE)
def test_no_damaged_run_is_added(empty_zoo: Path, refused: Refused, file: str, old: str, new: str, says: str) -> None:
    run = make_run(empty_zoo.with_name("run"))
    source, content = run / "checkpoints" / "best.safetensors", (run / file).read_text()
    (run / file).write_text(new if old == "all" else content.replace(old, new))
    assert says in refused("zoo", "--add", str(source), "--env", CATCH, "--name", "catch")
    assert not list(empty_zoo.iterdir())


def test_an_entry_of_a_plug_in_names_it(empty_zoo: Path, tmp_path: Path, launch: Launch, refused: Refused) -> None:
    plugin = "tests.support.waiting"  # any module that can be imported
    source = make_run(tmp_path / "run", plugin=plugin) / "checkpoints" / "best.safetensors"
    words = ["zoo", "--add", str(source), "--env", CATCH, "--name", "catch", "--device", "cpu"]
    assert f"pass --plugin {plugin} if you trust it." in refused(*words)
    assert launch(*words, "--plugin", plugin).returncode == 0
    assert not (empty_zoo / "catch" / catalogue.CURVE).exists(), "the run has no records"
    readme = (empty_zoo / "catch" / catalogue.README).read_text()
    assert readme.count(f"--load zoo/catch --env {CATCH} --plugin {plugin}") == 2
    assert f"--preset quick --plugin {plugin}" in readme


def test_a_zoo_that_cannot_be_written_is_told_in_a_sentence(empty_zoo: Path, tmp_path: Path, refused: Refused) -> None:
    source = make_run(tmp_path / "run") / "checkpoints" / "best.safetensors"
    empty_zoo.rmdir()
    said = refused("zoo", "--add", str(source), "--env", CATCH, "--name", "catch", "--device", "cpu")
    assert f"No entry can be written into {empty_zoo}: No such file or directory." in said


def test_a_command_says_what_differs_from_the_nearest_preset() -> None:
    assert command_of(Config(), 10_000) == "python launch.py --total-steps 10_000"
    quick = PRESETS["quick"].with_settings(game="pong", precision="bf16", run_dir="somewhere", balance="off")
    assert command_of(quick, 1_000_000) == "python launch.py --preset quick --game pong --precision bf16"
    rainbow = PRESETS["rainbow"].with_settings(noisy=False, munchausen=True, v_max=20.0, eval_episodes=7)
    shown = command_of(rainbow, rainbow.learn.total_steps)
    assert shown == "python launch.py --preset rainbow --no-noisy --munchausen --eval-episodes 7 --v-max 20.0"
    assert configuration(shown.split()[2:]) == rainbow
    assert " --device 'cpu; ls' " in command_of(quick.with_settings(device="cpu; ls"), 1_000_000)
    assert "--plugin their.module" in command_of(quick.with_settings(plugin="their.module"), 1_000_000)
    with pytest.raises(ConfigError, match="--init-from"):
        command_of(quick.with_settings(init_from="elsewhere"), 1_000)


def test_a_command_of_an_on_policy_run_has_the_flags_that_its_method_takes() -> None:
    settings = {"envs": 16, "round_steps": 160, "batch_size": 160, "total_steps": 1_600}
    config = PRESETS["quick"].with_settings(method="a2c", eval_actions="greedy", **settings)
    shown = command_of(resolve(config.with_settings(device="cpu", precision="fp32")), 1_600).split()[2:]
    assert (shown[shown.index("--eval-actions") + 1], "--eval-epsilon" in shown) == ("greedy", False)
    assert resolve(configuration(shown)).experiment() == resolve(config).experiment()


def test_a_run_may_begin_with_an_agent_of_the_zoo() -> None:
    for name in ("pong", "zoo/pong"):
        found = planning.check(Config().with_settings(game="pong", init_from=name, device="cpu"))
        assert found.config.run.init_from.samefile(catalogue.ZOO / "pong" / catalogue.WEIGHTS)
    with pytest.raises(ConfigError, match=r"--init-from /no/such does not exist.*the zoo are .*pong"):
        planning.check(Config().with_settings(init_from="/no/such"))
