"""A file may name an env of the user's own modules, and no function of a library."""

from __future__ import annotations

import site
from pathlib import Path

import pytest

from shared.config import ConfigError
from shared.trust import require_own


@pytest.mark.parametrize("env", ["CartPole-v1", "tests.pixel_game:factory", "tests:anything"])
def test_own_code_and_gymnasium_ids_may_be_named(env: str) -> None:
    require_own(env, "run", advice="do")


@pytest.mark.parametrize(
    "env",
    ["os:abort", "sys:exit", "posix:abort", "this:anything", "numpy:array", "torch.hub:load", "no_such:thing", ":x"],
)
def test_libraries_may_not(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="a file may not choose which function"):
        require_own(env, "run", advice="do")


@pytest.mark.parametrize("where", ["getusersitepackages", "getsitepackages"])
def test_neither_may_what_is_installed_for_one_user_or_by_the_system(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed_there.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    require_own("installed_there:thing", "run", advice="do")
    monkeypatch.setattr(site, where, lambda: str(tmp_path) if "user" in where else [str(tmp_path)])
    with pytest.raises(ConfigError, match="a file may not choose which function"):
        require_own("installed_there:thing", "run", advice="do")
