"""The types that an editor completes are those of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import ringside
from ringside.settings.train_settings import TrainSettings
from shared.config.checks.field_checks import types_of
from shared.config.method_declaration import method_declaration, method_names
from shared.config.settings import Config
from shared.env_name import Value
from shared.root import ROOT


def as_given(kind: Any) -> Any:
    """Type of a value that a user gives: a path may be a text."""
    return {Path: str | Path, Path | None: str | Path | None}.get(kind, kind)


def test_every_setting_is_typed() -> None:
    sections = [types_of(type(getattr(Config(), item.name))) for item in fields(Config)]
    sections += [types_of(method_declaration(name).settings) for name in method_names()]
    known = {name: as_given(kind) for section in sections for name, kind in section.items() if name != "settings"}
    assert get_type_hints(TrainSettings) == known | {"env_kwargs": str | Mapping[str, Value] | None}


def test_the_names_of_the_api_are_those_that_are_listed() -> None:
    assert sorted(ringside.__all__) == sorted(ringside._HOME)
    assert all(getattr(ringside, name) is not None for name in ringside.__all__)


def test_every_package_says_that_it_is_typed() -> None:
    assert all((ROOT / room / "py.typed").exists() for room in ("actors", "learner", "ringside", "shared"))
