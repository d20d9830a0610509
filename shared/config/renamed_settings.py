"""Former names of settings, which work for one release: each prints its new name to stderr, once in a process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from shared.text import flag_in, flag_of

RENAMED = {"prioritised": "prioritized"}
"""New name by former name."""
REPLACED = {"layer_norm": ("normalize", {True: "last", False: "none"})}
"""New name, and new value by former value, of switches that became a choice."""
_told: set[str] = set()


def current_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by the names that they have; prints those that were given by former names."""
    return dict(_current_setting(name, value) for name, value in settings.items())


def _current_setting(name: str, value: Any) -> tuple[str, Any]:
    if name in RENAMED:
        _tell(name, name, RENAMED[name])
        return RENAMED[name], value
    if name in REPLACED:
        new, values = REPLACED[name]
        value = values[value] if isinstance(value, bool) else value
        _tell(name, name, f"{new}={value!r}")
        return new, value
    return name, value


def current_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the flags that the settings have; prints those that were former ones."""
    return [new for word in words for new in _current_words(word)]


def _current_words(word: str) -> list[str]:
    flag = flag_in(word)
    for former, new in RENAMED.items():
        for before, after in ((flag_of(former), flag_of(new)), (flag_of(f"no_{former}"), flag_of(f"no_{new}"))):
            if flag == before:
                _tell(former, before, after)
                return [after + word[len(flag) :]]
    for former, (new, values) in REPLACED.items():
        for before, value in ((flag_of(former), values[True]), (flag_of(f"no_{former}"), values[False])):
            if flag == before:
                _tell(former, before, f"{flag_of(new)} {value}")
                return [flag_of(new), value]
    return [word]


def _tell(setting: str, former: str, new: str) -> None:
    if setting not in _told:
        _told.add(setting)
        print(f"{former} has a new name: pass {new}. The former name works for one release.", file=sys.stderr)
