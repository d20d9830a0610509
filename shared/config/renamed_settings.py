"""Former names of settings, which work for one release: each prints its new name to stderr, once in a process."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shared.text import flag_in, flag_of

RENAMED = {"prioritised": "prioritized"}
"""New name by former name."""
_told: set[str] = set()


def current_name(name: str) -> str:
    """Return the name that a setting has; prints it when `name` is the former one."""
    if name not in RENAMED:
        return name
    _tell(name, name, RENAMED[name])
    return RENAMED[name]


def current_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the flags that the settings have; prints those that were former ones."""
    return [_current_word(word) for word in words]


def _current_word(word: str) -> str:
    flag = flag_in(word)
    for former, new in RENAMED.items():
        for before, after in ((flag_of(former), flag_of(new)), (flag_of(f"no_{former}"), flag_of(f"no_{new}"))):
            if flag == before:
                _tell(former, before, after)
                return after + word[len(flag) :]
    return word


def _tell(setting: str, former: str, new: str) -> None:
    if setting not in _told:
        _told.add(setting)
        print(f"{former} has a new name: say {new}. The former name works for one release.", file=sys.stderr)
