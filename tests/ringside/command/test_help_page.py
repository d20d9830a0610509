"""Pages of --help."""

import re

import pytest

from actors.envs.atari import games
from ringside.command import TASKS
from ringside.command.arguments import COMMON, setting_options
from ringside.command.option import options_of, page
from ringside.command.train import Options as Training
from shared.config.method_declaration import method_declaration
from shared.config.presets import PRESETS
from shared.config.settings import Config, unused_settings
from tests.conftest import Launch

OPTIONS = [*options_of(Training()), *setting_options(Config())]


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_help_fits_two_screens_with_the_defaults_of_the_preset(launch: Launch) -> None:
    for words in (("--preset", "quick", "--help"), ("--help", "--preset", "quick")):
        text = launch(*words).stdout
        lines = text.splitlines()
        assert len(lines) <= 2 * 24
        assert max(map(len, lines)) <= 80
        assert f"[{PRESETS['quick'].learn.total_steps:_}]" in text
        assert "--help all lists every option" in " ".join(text.split())
        assert "--munchausen" not in text


def test_help_all_lists_every_option_in_sections(launch: Launch) -> None:
    text = launch("--help", "all").stdout
    for option in OPTIONS:
        has_effect = option.name not in unused_settings(method_declaration("dqn"))
        assert (f"  {option.flag}" in text) == has_effect
        assert option.text.split()[0] in text or not has_effect
    assert "\nThe game or environment, its rules, and the emulators:\n" in text
    assert "--envs INT >= 1" in text
    assert not re.search(r"\w-$", text, re.MULTILINE), "no flag is broken"
    assert launch("help", "all").stdout == text


def test_options_that_help_shows_exist() -> None:
    known = {option.name for option in OPTIONS}
    assert {*Training.rare, *(name for names in COMMON.values() for name in names)} <= known


def test_a_long_list_of_choices_stands_in_the_text() -> None:
    options = setting_options(Config())
    wide = [option._replace(choices=tuple(f"network-{i}" for i in range(9))) for option in options]
    text = page("launch.py", "", [option for option in wide if option.name == "network"])
    assert ("--network NAME" in text, "network-8." in text.replace("\n" + 26 * " ", " ")) == (True, True)


def test_arguments_stand_in_the_usage_and_apart(launch: Launch) -> None:
    text = launch("report", "--help").stdout
    assert text.startswith("usage: launch.py report [options] [RUNS ...]\n")
    assert "\nArguments:\n  RUNS ..." in text
    for task in ("watch", "eval", "play", "export"):
        assert launch(task, "--help").stdout.startswith(f"usage: launch.py {task} [options] [RUN]\n")


def test_a_default_is_said_once(launch: Launch) -> None:
    text = launch("--preset", "ppo", "--help", "all").stdout
    assert ("unbounded" in text, "[0.5]" in text) == (False, True)
    assert "unbounded" in launch("--help", "all").stdout
    assert "default: runs/GAME-DATE-TIME" in launch("--help").stdout


def test_options_that_a_task_replaces_and_empty_groups_are_left_out(launch: Launch) -> None:
    text = launch("suite", "--help").stdout
    assert ("--game " in text, "What to play:\n  --envs INT" in text) == (False, True)
    assert "--nodes" not in launch("--help").stdout


@pytest.mark.parametrize("task", [task for task in TASKS if task != "train"])
def test_every_task_has_a_page(launch: Launch, task: str) -> None:
    done = launch(task, "--help")
    assert done.stdout.startswith(f"usage: launch.py {task} [options]")
    assert (done.returncode, launch("help", task).stdout) == (0, done.stdout)


def test_topics_are_listed(launch: Launch) -> None:
    assert launch("help", "games").stdout.split() == list(games())
    listed = launch("presets").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(PRESETS)
    assert "ppo-quick    --method ppo, 3,000,000 steps" in listed
