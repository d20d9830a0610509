"""Digest of a configuration: the settings that the trained weights depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from shared.config.field_checks import marks_of
from shared.config.sections import (
    OWN_SETTINGS,
    Algorithm,
    Effect,
    Evaluate,
    Explore,
    Learn,
    Machine,
    Play,
    Run,
)
from shared.errors import ConfigError

_SECTIONS = (Play, Learn, Algorithm, Explore, Evaluate, Machine, Run)


def _settings_with(effect: Effect) -> frozenset[str]:
    effects = {name: each for section in _SECTIONS for name, each in marks_of(section, Effect).items()}
    return frozenset(name for name, each in effects.items() if each is effect)


MAY_CHANGE_ON_RESUME = _settings_with(Effect.NONE)
"""Settings that do not touch the numbers of the steps already planned. `init_from` acts only at step 0."""

ARITHMETIC = _settings_with(Effect.LAST_BITS)
"""Settings that change only the last bits of numbers. A run that resumes with another value continues, but is no longer
exact."""


def flat_of(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The values of a `Config.to_json` by the flat names of the flags."""
    flat = {name: value for values in sections.values() for name, value in values.items()}
    own = flat.pop(OWN_SETTINGS, {})
    return flat | own if isinstance(own, dict) else flat


def digest_of(sections: dict[str, Any], without: frozenset[str] = frozenset()) -> str:
    """SHA-256 (hex) of the settings in a `Config.to_json` that the weights depend on, but those named `without`.

    Raises `ConfigError` when these are no sections.
    """
    if not all(isinstance(values, dict) for values in sections.values()):
        raise ConfigError("The configuration is damaged: a section of it is not an object.")
    left_out = MAY_CHANGE_ON_RESUME | without
    kept = {name: value for name, value in flat_of(sections).items() if name not in left_out}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
