"""A file never chooses code: no env that a file names is imported unless the user names the same."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import ringside
from actors.make_env import registered
from ringside.command import report, suite
from ringside.command.arguments import config_of, parse_choices
from ringside.command.suite import words_to_train
from ringside.command.train import configuration, how_to_continue
from ringside.zoo import catalogue
from shared.checkpoint.finding import find_checkpoint
from shared.config.presets import PRESETS
from shared.config.resolve import resolve
from shared.config.sections import Play
from shared.config.trust import compare_env, load_plugin, require_env, require_plugin
from shared.errors import ConfigError
from shared.files.run_file_names import CONFIG_FILE
from shared.network_spec import OwnTorso, network_of
from shared.root import ROOT
from tests.conftest import Launch, Refused
from tests.support.checkpoints import CONFIG, random_weights, rewrite, write_run
from tests.support.pixel_game import Catch
from tests.support.written_runs import write_run as write_records

TRAIN = ringside.train
MARKER = """
from pathlib import Path
import gymnasium
from tests.support.pixel_game import factory
Path({mark!r}).touch()
gymnasium.register("Marked-v0", "tests.support.pixel_game:Catch")
"""
BROUGHT = "runs.pong-20260101-120000.checkpoints.brought"
FOREIGN = (
    "marker:factory",
    "marker:Marked-v0",
    f"{BROUGHT}:factory",
    "ringside:train",
    "tests.support.pixel_game:factory",
    "numpy:array",
    "ale_py:ALE/Pong-v5",
    "Unregistered-v0",
)
"""Envs of a module in the working directory, of a run directory, of Ringside, of its tests and of libraries."""
NET = "marker:Net"
TORSO = OwnTorso(4, 8, (("weight", (4,)),))


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that an import of `marker` or `BROUGHT`, or a call of `ringside.train`, leaves: no test ends with it."""
    path = tmp_path / "mark"
    brought = tmp_path / Path(*BROUGHT.split(".")).with_suffix(".py")
    brought.parent.mkdir(parents=True)
    for module in (tmp_path / "marker.py", brought):
        module.write_text(MARKER.format(mark=str(path)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(ringside, "train", path.touch)
    yield path
    gymnasium.registry.pop("Marked-v0", None)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("marker", "runs")]:
        del sys.modules[name]
    assert not path.exists(), "a file chose code"


def agent_of(tmp_path: Path, env: str) -> Path:
    """A file of weights that says that they are of `env`."""
    return random_weights(tmp_path / "agent", env, actions=3)


def run_of(tmp_path: Path, **settings: Any) -> Path:
    """A run with a checkpoint whose manifest has these settings."""
    write_run(tmp_path / "run", 1, CONFIG.with_settings(**settings))
    return tmp_path / "run"


def asks_for(env: str) -> str:
    return re.escape(f"was trained on {env}; pass --env {env} if you trust it.")


@pytest.mark.parametrize("env", FOREIGN)
def test_no_task_imports_what_a_file_of_weights_names(
    env: str, mark: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = agent_of(tmp_path, env)
    monkeypatch.setattr(catalogue, "ZOO", tmp_path / "zoo")
    (tmp_path / "zoo" / "entry").mkdir(parents=True)
    (tmp_path / "zoo" / "entry" / catalogue.WEIGHTS).write_bytes(weights.read_bytes())
    for load in (str(weights), "entry", "zoo/entry"):
        for words in ("eval", "play --video a.gif", "play --game pong --video a.mp4"):
            assert re.search(asks_for(env), refused(*words.split(), "--load", load))
    assert re.search(asks_for(env), refused("zoo", "--add", str(weights), "--name", "mine"))


@pytest.mark.parametrize("env", FOREIGN)
def test_no_call_imports_what_a_file_of_weights_names(env: str, mark: Path, tmp_path: Path) -> None:
    weights = agent_of(tmp_path, env)
    with pytest.raises(ConfigError, match=asks_for(env)):
        ringside.evaluate(weights, episodes=1, device="cpu")
    agent = ringside.load_agent(weights, device="cpu")
    with pytest.raises(ConfigError, match="make that environment yourself"):
        agent.env()
    with pytest.raises(ConfigError, match=f"{env}, not on --env other:factory"):
        ringside.load_agent(weights, env="other:factory", device="cpu")


@pytest.mark.parametrize("env", FOREIGN)
def test_nothing_imports_what_a_checkpoint_names(env: str, mark: Path, tmp_path: Path, refused: Refused) -> None:
    run = run_of(tmp_path, env=env)
    assert f"This run was trained on {env}; pass --env {env} if you trust it." in refused("--resume", str(run))
    assert re.search(asks_for(env), refused("doctor", "--resume", str(run)))
    with pytest.raises(ConfigError, match=asks_for(env)):
        TRAIN(resume=run)
    with pytest.raises(ConfigError, match=asks_for(env)):
        ringside.starting_point(None, run)
    assert configuration(["--resume", str(run), "--env", env]).play.env == env


def test_a_suite_passes_on_nothing_that_a_file_in_its_directory_names(mark: Path, tmp_path: Path) -> None:
    words = ["--games", "pong", "--seeds", "1", "--out", str(tmp_path / "out"), "--device", "cpu"]
    options = parse_choices(suite.Options, words, "suite")
    (job,) = suite.jobs_of(options)
    (tmp_path / "out").mkdir()
    write_run(job.directory, 1, CONFIG.with_settings(env="marker:factory", track="wandb"))
    (job.directory / CONFIG_FILE).write_text(json.dumps(job.config.to_json()))
    told = words_to_train(options, suite.jobs_of(options)[0])
    assert told[0] == "--resume"
    assert not {"--env", "--track"} & {*told}
    with pytest.raises(ConfigError, match=asks_for("marker:factory")):
        configuration(told)


def test_a_report_imports_no_env(mark: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other = write_records(tmp_path / "a", env="marker:factory"), write_records(tmp_path / "b")
    said = refused("report", str(run), "--env", "other:factory")
    assert f"{run} was trained on marker:factory, not on --env other:factory" in said
    assert f"{other} was trained on the game pong" in refused("report", str(run), str(other), "--env", "marker:factory")
    monkeypatch.setattr("ringside.report.report_page.write", lambda comparison, out, title, study: out)
    for env in (None, "marker:factory"):
        assert report.write_report([run], tmp_path / "out", env=env) == (tmp_path / "out", ())


@pytest.mark.parametrize("env", ["marker:factory", "marker:Marked-v0", f"{BROUGHT}:factory"])
def test_an_env_that_the_user_names_is_made(env: str, mark: Path, tmp_path: Path) -> None:
    weights = agent_of(tmp_path, env)
    assert ringside.load_agent(weights, env=env, device="cpu").game == env
    assert not mark.exists()
    assert ringside.evaluate(weights, env=env, episodes=1, device="cpu")["game"] == env
    mark.unlink()  # which is there now


def test_registered_ids_need_no_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.envs.registration.EnvSpec("Registered-v0", Catch)
    monkeypatch.setitem(gymnasium.registry, "Registered-v0", spec)
    weights = agent_of(tmp_path, "Registered-v0")
    assert ringside.evaluate(weights, episodes=1, device="cpu")["game"] == "Registered-v0"
    assert ringside.starting_point(None, run_of(tmp_path, env="Registered-v0")).play.env == "Registered-v0"


PLAYED = [
    ("pong", "was trained on the game pong, not on an env: omit --env other:factory."),
    ("marker:factory", "was trained on marker:factory, not on --env other:factory: name the same one."),
]


@pytest.mark.parametrize(("played", "says"), PLAYED)
def test_another_env_than_a_files_is_refused_by_both(played: str, says: str, tmp_path: Path, refused: Refused) -> None:
    weights, run = agent_of(tmp_path, played), run_of(tmp_path, **{"env" if ":" in played else "game": played})
    for words in (["eval", "--load", str(weights)], ["--resume", str(run)]):
        assert says in refused(*words, "--env", "other:factory")


UNREGISTERED = [
    *("", "marker:CartPole-v1", ":CartPole-v1", "CartPole-v1\n", " CartPole-v1", "CartPole", "CartPole-v1@size=1"),
    *("a:b", "a:b/Odd-v0"),
]


@pytest.mark.parametrize("env", UNREGISTERED)
def test_only_an_id_that_is_registered_to_the_letter_needs_no_flag(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, "a:b/Odd-v0", gymnasium.registry["CartPole-v1"])
    assert registered("CartPole-v1")
    assert not registered(env)


@pytest.mark.parametrize("env", ["a:b; rm -rf ~", "a:$(id)", "--help", "a:b\x1b[2J", "a b", "а:factory", "", "a\nb:c"])
def test_a_forged_name_is_not_offered_for_the_command_line(env: str) -> None:
    with pytest.raises(ConfigError, match=r": pass that odd name to --env if you trust it\.$") as required:
        require_env(Play(env=env), None, what="This run", registered=registered)
    with pytest.raises(ConfigError, match="not on --env other:factory") as compared:
        compare_env(Play(env=env), "other:factory", what="This run")
    assert f"{required.value}{compared.value}".isprintable()


def test_settings_that_act_outside_of_training_come_from_no_file(tmp_path: Path) -> None:
    paths = dict.fromkeys(("run_dir", "init_from", "resume"), "elsewhere")
    run = run_of(tmp_path, track="wandb", plain=True, **paths)
    assert ringside.starting_point(None, run).run == replace(CONFIG.run, run_dir=run, resume=run)
    assert configuration(["--resume", str(run)]).run.track == "off"
    assert configuration(["--resume", str(run), "--track", "wandb"]).run.track == "wandb"


@pytest.mark.parametrize("settings", [{}, {"env": "marker:factory", "network": NET, "track": "wandb"}])
def test_the_printed_command_that_continues_a_run_is_taken(settings: dict[str, str], tmp_path: Path) -> None:
    config = CONFIG.with_settings(run_dir=tmp_path / "run", **settings)
    write_run(tmp_path / "run", 1, config, own_torso=TORSO if "network" in settings else None)
    printed = shlex.split(how_to_continue(config))
    words = printed[printed.index("--resume") :]
    found = configuration(words)
    assert (found.play.env, found.run.track) == (settings.get("env"), settings.get("track", "off"))
    assert found.learn.network == settings.get("network", "small")
    assert len(words) == 2 + 2 * len(settings)


SETTINGS = [
    {},
    {"method": "c51", "atoms": 11, "network": "small", "dueling": True},
    {"env": "marker:factory", "plugin": "tests.support.waiting", "network": "impala", "width": 2},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_printed_command_that_begins_anew_gives_the_same_network(settings: dict[str, Any], tmp_path: Path) -> None:
    """A run that was saved without its replay: only its weights are left."""
    config = CONFIG.with_settings(checkpoint_replay=False, **settings)
    run = run_of(tmp_path)
    rewrite(find_checkpoint(run).path, has_replay=False)
    printed = how_to_continue(resolve(config.with_settings(run_dir=run)))
    assert "It was saved without its replay" in printed
    words = shlex.split(printed)
    found = configuration(words[words.index("--init-from") :])
    assert (found.run.init_from, found.run.plugin, found.play) == (run, settings.get("plugin"), config.play)
    assert network_of(found, 4) == network_of(config, 4)


def test_the_document_shows_the_rule(tmp_path: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "trust.md").read_text()
    (module,) = re.findall(r"^    echo '(.*)' > marker\.py$", text, re.MULTILINE)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    commands = re.findall(r"^    python launch\.py (.*?) +#", text, re.MULTILINE)
    monkeypatch.syspath_prepend(tmp_path)
    Path("marker.py").write_text(module)
    exec(program.replace("zoo/pong", str(ROOT / "zoo" / "pong")), {})
    refused, imported = (launch(*command.split()) for command in commands)
    del sys.modules["marker"]
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert re.search(asks_for("marker:factory"), refused.stderr)
    assert (imported.returncode, imported.stdout) == (2, "imported\n")


PLUG_INS = [
    ("mine", None, "was trained with the plug-in mine; pass --plugin mine if you trust it."),
    ("mine", "other", "was trained with the plug-in mine, not with --plugin other: name the same one."),
    *((name, None, f"names the plug-in {name!r}, which is no module: it is damaged.") for name in ("mine; rm", 7)),
]


@pytest.mark.parametrize(("recorded", "given", "says"), PLUG_INS)
def test_a_plug_in_in_a_file_is_only_compared(recorded: object, given: str | None, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        require_plugin(recorded, given, what="This run")
    assert str(refused.value) == f"This run {says}"
    for known, named in (("mine", "mine"), (None, None), (None, "mine")):
        require_plugin(known, named, what="This run")
    assert "mine" not in sys.modules


BROKEN = [
    ("def f(:", r"cannot be imported: .*line 1"),
    ("raise SystemExit(0)", "cannot be imported: it ends the program"),
    ("import broken", r"cannot be imported: No module named 'broken'; install what it needs\."),
    ("from ringside import ConfigError\nraise ConfigError('No.')", r"cannot be used\. No\."),
]


@pytest.mark.parametrize(("source", "says"), BROKEN)
def test_a_plug_in_that_cannot_be_loaded_is_refused_in_a_sentence(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"--plugin broken_plugin {says}"):
        load_plugin("broken_plugin")


def named_network(name: str = NET) -> str:
    return re.escape(f"was trained with the network {name}; pass --network {name} if you trust it.")


def test_no_file_of_weights_chooses_a_network(
    mark: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = random_weights(tmp_path / "agent", network=NET, own_torso=TORSO)
    monkeypatch.setattr(catalogue, "ZOO", tmp_path / "zoo")
    (tmp_path / "zoo").mkdir()
    for words in ("eval --load", "play --video a.gif --load", "export --onnx a.onnx --load", "zoo --name mine --add"):
        assert re.search(named_network(), refused(*words.split(), str(weights)))
        other = refused(*words.split(), str(weights), "--network", "mine:Net")
        assert f"was trained with the network {NET}, not with --network mine:Net: name the same one." in other
    for call in (ringside.evaluate, ringside.load_agent, ringside.add_to_zoo):
        with pytest.raises(ConfigError, match=named_network()):
            call(weights, device="cpu")
        with pytest.raises(ConfigError, match=r"not with --network tests\.\S+:Catch: name the same one"):
            call(weights, device="cpu", network=Catch)
    with pytest.raises(ConfigError, match="was trained with the network small, not with --network marker:Net"):
        ringside.load_agent(random_weights(tmp_path / "other"), network=NET)


def test_no_run_and_no_configuration_chooses_a_network(mark: Path, tmp_path: Path, refused: Refused) -> None:
    run = tmp_path / "run"
    write_run(run, 1, CONFIG.with_settings(network=NET), own_torso=TORSO)
    (run / CONFIG_FILE).write_text(json.dumps(CONFIG.with_settings(network=NET).to_json()))
    (tmp_path / "mine.toml").write_text(f"network = '{NET}'")
    for words in ("--resume run", "doctor --resume run", "--config run", "--config mine.toml", "tune --config run"):
        assert re.search(named_network(), refused(*words.split())), words
    assert "not with --network mine:Net: name the same one." in refused("--resume", "run", "--network", "mine:Net")
    for words in ("--resume run", "--config run", "--config mine.toml"):
        assert configuration([*words.split(), "--network", NET]).learn.network == NET
    assert configuration(["--config", "run", "--network", "small"]).learn.network == "small"


def test_a_preset_of_a_plug_in_may_name_a_network(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user named the plug-in; a run with it still wants the network."""
    monkeypatch.setitem(PRESETS, "mine", PRESETS["quick"].with_settings(network=NET))
    assert configuration(["--preset", "mine"]).learn.network == NET
    Path("mine.toml").write_text("preset = 'mine'")
    assert configuration(["--config", "mine.toml"]).learn.network == NET
    options = parse_choices(suite.Options, ["--games", "pong", "--preset", "mine"], "suite")
    config = resolve(config_of(options).with_settings(run_dir="run"))
    write_run(Path("pong-1"), 1, CONFIG)
    again, anew = (words_to_train(options, suite.Job(config, Path(name))) for name in ("pong-1", "pong-2"))
    assert again[0] == "--resume"
    for words in (again, anew):
        assert [word for option, word in pairwise(words) if option == "--network"] == [NET]


def test_a_changed_class_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parameters are no longer those of the file."""
    own = OwnTorso(16, 512, (("layer.weight", (16, 4)), ("layer.bias", (16,))))
    name = "tests.support.own_networks:Linear"
    weights = random_weights(tmp_path / "agent", network=name, own_torso=own)
    with pytest.raises(ConfigError, match=f"has other parameters than --network {name} now: restore that class."):
        ringside.load_agent(weights, network=name)
    config = CONFIG.with_settings(network=name, actors=1, device="cpu", run_dir=tmp_path / "run")
    write_run(tmp_path / "run", 1, config, own_torso=own)
    for more in ({"resume": tmp_path / "run"}, {"init_from": weights, "game": "pong"}):
        with pytest.raises(ConfigError, match=f"The parameters of --network {name} have changed since: restore that"):
            ringside.plan(config.with_settings(**more))


def test_an_env_with_other_actions_than_before_is_a_sentence(tmp_path: Path) -> None:
    config = CONFIG.with_settings(env="tests.support.pixel_game:factory", actors=1, device="cpu", run_dir=tmp_path)
    write_run(tmp_path, 1, config)
    with pytest.raises(ConfigError, match="The weights choose among 4 actions; the game here has 3"):
        ringside.plan(config.with_settings(resume=tmp_path))


def test_a_weights_file_that_names_a_plug_in_imports_nothing(tmp_path: Path) -> None:
    weights = random_weights(tmp_path)
    with safe_open(weights, "numpy") as file:
        about = json.loads(file.metadata()["ringside"])
    save_file(load_file(weights), weights, {"ringside": json.dumps(about | {"plugin": "antigravity"})})
    says = "was trained with the plug-in antigravity; pass --plugin antigravity if you trust it"
    with pytest.raises(ConfigError, match=says):
        ringside.load_agent(weights, device="cpu")
    assert "antigravity" not in sys.modules
