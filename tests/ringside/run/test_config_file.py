"""Settings from files: TOML, a run's config.json; and what no file decides."""

import json
from pathlib import Path
from typing import Any

import pytest

import ringside
from ringside.command.train import configuration
from ringside.run.config_file import config_of_call
from shared.config.presets import PRESETS
from shared.config.trust import NEVER_FROM_A_FILE
from shared.errors import ConfigError
from tests.conftest import Refused


def toml(directory: Path, text: str) -> str:
    (directory / "mine.toml").write_text(text)
    return str(directory / "mine.toml")


def run_config(directory: Path, **settings: Any) -> str:
    """A config.json as a run writes it."""
    config = PRESETS["quick"].with_settings(run_dir="runs/theirs", track="wandb", **settings)
    (directory / "config.json").write_text(json.dumps(config.to_json()))
    return str(directory / "config.json")


def test_flags_come_on_top_of_the_file_and_the_file_on_top_of_its_preset(tmp_path: Path) -> None:
    file = toml(tmp_path, 'preset = "quick"\ngame = "pong"\ntotal-steps = 5_000_000\n[learn]\nlearning_rate = 3e-4\n')
    found = configuration(["--config", file, "--total-steps", "6_000_000"])
    assert found == PRESETS["quick"].with_settings(game="pong", total_steps=6_000_000, learning_rate=3e-4)
    assert configuration(["--config", file, "--preset", "nature"]).learn.optimizer == "rmsprop"
    assert ringside.starting_point(None, None, config=file).learn.total_steps == 5_000_000


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    """As editors of Windows write it."""
    assert configuration(["--config", toml(tmp_path, "\ufeffseed = 5\n")]).run.seed == 5


def test_a_file_that_ringside_never_wrote_is_not_of_another_version(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "mine", "version": "1.0"}')
    said = refused("--config", str(tmp_path / "package.json"))
    assert said.endswith("is not the configuration of a run: It has none of the sections of a configuration.\n")


def test_a_file_may_choose_the_method_and_its_settings(tmp_path: Path) -> None:
    file = toml(tmp_path, '[algorithm]\nmethod = "c51"\n[algorithm.settings]\nv_max = 25.0\n')
    assert getattr(configuration(["--config", file]).algorithm.settings, "v_max") == 25.0  # noqa: B009  (of c51 alone)
    assert configuration(["--config", toml(tmp_path, 'clip_gradient = "unset"')]).algorithm.clip_gradient is None


def test_the_configuration_of_a_run_is_taken_without_its_places(tmp_path: Path) -> None:
    file = run_config(tmp_path, total_steps=3_000_000)
    for name in (file, str(tmp_path)):
        found = configuration(["--config", name, "--seed", "7"])
        assert found == PRESETS["quick"].with_settings(total_steps=3_000_000, seed=7)


WRONG_FILES = [
    ("game = ", "is not TOML"),
    ("gmae = 'pong'", "There is no setting 'gmae'; did you mean game?"),
    ("total_steps = 'many'", "total_steps 'many' is not a whole number"),
    ("[pong]\ngame = 'pong'", "has the table [pong]"),
    ("game = 'pong'\n[play]\ngame = 'breakout'", "sets game twice"),
    ("preset = 3", "has the preset 3"),
    ("preset = 'qick'", "--preset qick is not one of"),
    ("env = 'X-v0'\ngame = 'pong'", "--game and an env, perhaps that of --config, both say what is played"),
    ("method = 'a2c'\ntrain_every = 4", "--train-every has no effect with --method a2c"),
    ("env = 'mine:factory'", "pass --env mine:factory if you trust it"),
    ("plugin = 'mine'", "pass --plugin mine if you trust it"),
    *((f"{name} = 'x'", f"{name} is never taken from a file") for name in sorted(NEVER_FROM_A_FILE)),
]


@pytest.mark.parametrize(("text", "says"), WRONG_FILES)
def test_a_wrong_file_is_refused_with_a_sentence(refused: Refused, tmp_path: Path, text: str, says: str) -> None:
    assert says in refused("--config", toml(tmp_path, text))


def test_files_that_are_none_are_refused(refused: Refused, tmp_path: Path) -> None:
    said = "--config pnog does not exist: name a TOML file, or the directory of a run."
    assert said in refused("--config", "pnog")
    (tmp_path / "config.json").write_text("{}")
    assert "is not the configuration of a run" in refused("--config", str(tmp_path))
    (tmp_path / "config.json").write_text("no")
    assert "cannot be read: config.json is truncated or damaged" in refused("--config", str(tmp_path))
    file = run_config(tmp_path)
    assert "holds every setting: omit --preset" in refused("--config", file, "--preset", "quick")
    assert "omit --config" in refused("--resume", "runs/x", "--config", file)


def test_code_that_the_user_names_is_that_of_a_preset_too() -> None:
    found = ringside.starting_point("quick", None, env="mine:factory", network="mine:Net")
    assert (found.play.env, found.learn.network) == ("mine:factory", "mine:Net")


def test_no_file_chooses_code(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "marker.py").write_text("raise SystemExit('imported')")
    for name, value in (("env", "marker:factory"), ("plugin", "marker")):
        said = refused("--config", run_config(tmp_path, **{name: value}))
        assert f"pass --{name} {value} if you trust it" in said


def test_an_env_that_the_user_names_replaces_the_one_of_the_file(tmp_path: Path) -> None:
    found = ringside.starting_point(None, None, env="mine:factory", config=run_config(tmp_path, env="marker:factory"))
    assert found.play.env == "mine:factory"
    with pytest.raises(ConfigError, match="both say what is played"):
        config_of_call(None, run_config(tmp_path, env="ALE/Pong-v5"), {"game": "breakout"})


def test_python_refuses_what_the_command_refuses(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no setting 'gmae'"):
        ringside.train(config=toml(tmp_path, "gmae = 1"))
