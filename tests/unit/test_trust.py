"""A file may name an env of the user's own modules, and no function of a library."""

from __future__ import annotations

import pytest

from shared.config import ConfigError
from shared.trust import require_own


@pytest.mark.parametrize("env", ["CartPole-v1", "tests.pixel_game:factory", "tests:anything"])
def test_own_code_and_gymnasium_ids_may_be_named(env: str) -> None:
    require_own(env, "run")


@pytest.mark.parametrize(
    "env",
    ["os:abort", "sys:exit", "posix:abort", "this:anything", "numpy:array", "torch.hub:load", "no_such:thing", ":x"],
)
def test_libraries_may_not(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="a file may not choose what is called"):
        require_own(env, "run")
