"""Former names of settings work, and the new name is printed once in a process."""

from __future__ import annotations

import pytest

from ringside.tasks.train import configuration
from shared.config import renamed_settings
from shared.config.settings import Config
from shared.errors import ConfigError

TOLD = " has a new name: pass {}. The former name works for one release.\n"


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was printed before."""
    monkeypatch.setattr(renamed_settings, "_told", set())


@pytest.mark.parametrize(
    ("words", "former", "new", "value"),
    [
        (("--prioritised",), "--prioritised", "--prioritized", True),
        (("--preset", "rainbow", "--no-prioritised"), "--no-prioritised", "--no-prioritized", False),
        (("--preset", "rainbow", "--no_prioritised"), "--no-prioritised", "--no-prioritized", False),
    ],
)
def test_a_former_flag_works(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], former: str, new: str, value: bool
) -> None:
    for _ in range(2):
        assert configuration(words).algorithm.prioritized is value
    assert capsys.readouterr().err == former + TOLD.format(new)


def test_a_former_name_works_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert Config().with_settings(prioritised=True) == Config().with_settings(prioritized=True)
    assert capsys.readouterr().err == "prioritised" + TOLD.format("prioritized")


@pytest.mark.parametrize(
    ("word", "new", "value"),
    [("--layer-norm", "--normalize last", "last"), ("--no_layer_norm", "--normalize none", "none")],
)
def test_a_switch_that_became_a_choice_works(
    capsys: pytest.CaptureFixture[str], word: str, new: str, value: str
) -> None:
    assert configuration(["--normalize", "all", word]).algorithm.normalize == value
    assert capsys.readouterr().err == word.replace("_", "-") + TOLD.format(new)


def test_a_switch_that_became_a_choice_works_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert Config().with_settings(layer_norm=True) == Config().with_settings(normalize="last")
    assert Config().with_settings(normalize="all").with_settings(layer_norm=False) == Config()
    assert capsys.readouterr().err == "layer_norm" + TOLD.format("normalize='last'")
    with pytest.raises(ConfigError, match=r"normalize 'yes' is not one of none, last, all\."):
        Config().with_settings(layer_norm="yes")


def test_former_names_are_no_settings_and_new_ones_are() -> None:
    settings = Config().to_flat()
    new = [*renamed_settings.RENAMED.values(), *(name for name, _ in renamed_settings.REPLACED.values())]
    assert not settings.keys() & {*renamed_settings.RENAMED, *renamed_settings.REPLACED}
    assert settings.keys() >= set(new)
