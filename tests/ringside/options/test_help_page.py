"""Pages of --help."""

from __future__ import annotations

import pytest

from ringside.options.help_page import full_page, short_page
from ringside.options.option import options_of
from ringside.tasks.arguments import CHOICES, COMMON
from ringside.tasks.suite import SuiteOptions
from ringside.tasks.train import Training
from shared.config.method_declaration import method_declaration
from shared.config.presets import PRESETS
from shared.config.settings import unused_settings
from tests.conftest import Launch


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_help_fits_two_screens_with_the_defaults_of_the_preset(launch: Launch) -> None:
    page = launch("--preset", "quick", "--help").stdout
    lines = page.splitlines()
    assert len(lines) <= 2 * 24
    assert max(map(len, lines)) <= 80
    assert f"[{PRESETS['quick'].learn.total_steps:_}]" in page
    assert "--help all lists every option" in " ".join(page.split())
    assert "--munchausen" not in page


def test_help_all_lists_every_option_in_sections(launch: Launch) -> None:
    page = launch("--help", "all").stdout
    for option in options_of(Training(), CHOICES):
        has_effect = option.name not in unused_settings(method_declaration("dqn"))
        assert (f"  {option.flag}" in page) == has_effect
        assert option.text.split()[0] in page or not has_effect
    assert "\nThe game or environment, its rules, and the emulators\n" in page
    assert "--envs INT >= 1" in page
    assert launch("help", "all").stdout == page


def test_options_of_the_task_itself_come_first() -> None:
    names = [option.name for option in options_of(SuiteOptions(), CHOICES)]
    assert names[:4] == ["games", "seeds", "out", "final_episodes"]
    assert names.index("ray") < names.index("game")


def test_options_that_help_shows_exist() -> None:
    known = {option.name for option in options_of(Training(), CHOICES)}
    assert {name for names in COMMON.values() for name in names} <= known


def test_a_long_list_of_choices_stands_in_the_text() -> None:
    options = options_of(Training(), {"network": lambda: [f"network-{i}" for i in range(9)]})
    page = full_page("launch.py", "", options)
    assert "--network NAME" in page
    assert "network-8." in page.replace("\n" + 26 * " ", " ")


def test_arguments_stand_in_the_usage_and_apart(launch: Launch) -> None:
    page = launch("report", "--help").stdout
    assert page.startswith("usage: launch.py report [options] [RUNS ...]\n")
    assert "\nArguments\n  RUNS ..." in page
    assert launch("watch", "--help").stdout.startswith("usage: launch.py watch [options] [RUN]\n")


def test_a_default_is_said_once(launch: Launch) -> None:
    page = launch("--preset", "ppo", "--help", "all").stdout
    assert "unbounded" not in page
    assert "[0.5]" in page
    assert "unbounded" in launch("--help", "all").stdout
    assert "default: runs/GAME-DATE-TIME" in launch("--help").stdout


def test_hidden_options_and_empty_groups_are_left_out() -> None:
    options = options_of(Training(), CHOICES, {"game", "env", "env_kwargs", "envs"})
    page = short_page("launch.py", "A task.", options, COMMON)
    assert "--game" not in page
    assert "What to play" not in page


@pytest.mark.parametrize("task", ["eval", "play", "watch", "report", "suite", "zoo", "doctor", "completion"])
def test_every_task_has_a_page(launch: Launch, task: str) -> None:
    done = launch(task, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: launch.py {task} [options]")
    assert launch("help", task).stdout == done.stdout
