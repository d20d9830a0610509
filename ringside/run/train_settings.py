"""Types of the settings of `ringside.train`, made of `shared.config.sections`, which explains each setting.

Editors and type checkers read train_settings.pyi, which a test compares with this. A plug-in's method may have more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from shared.config.field_checks import types_of
from shared.config.method_declaration import method_declaration, method_names
from shared.config.sections import OWN_SETTINGS
from shared.config.settings import Config
from shared.env_name import Value

_SECTIONS = [*map(type, Config().sections.values()), *(method_declaration(name).settings for name in method_names())]
_TYPES: dict[str, Any] = {name: kind for section in _SECTIONS for name, kind in types_of(section).items()}
_AS_GIVEN = {Path | None: str | Path | None}
"""Types of what a user may give, where settings have another one."""
_KINDS = {name: _AS_GIVEN.get(kind, kind) for name, kind in _TYPES.items() if name != OWN_SETTINGS}
_KINDS |= {"network": str | type, "env_kwargs": str | Mapping[str, Value] | None}
TrainSettings = TypedDict("TrainSettings", _KINDS, total=False)
