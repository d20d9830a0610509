"""Service times that `launch.py bench model` measured on this machine, kept for `doctor` and for runs.

They lie in one small file of the user's cache folder, by what they depend on: processor, libraries, game, network and
arithmetic. A run reads them for a sentence alone; a file that is missing or damaged only costs that sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.errors import ConfigError
from shared.files.atomic import make_directory, write_atomic
from shared.files.strict_json import read_object
from shared.performance.service_times import ServiceTimes

KEPT = 64
"""Most entries of the file; the oldest go first."""


def times_file() -> Path:
    """The file, in the folder that XDG_CACHE_HOME names or in ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # a user may have no home
    return Path(cache) / "ringside" / "service-times.json"


def key_of(conditions: Mapping[str, Any]) -> str:
    """Name of an entry: a digest of what the times depend on."""
    return hashlib.sha256(json.dumps(conditions, sort_keys=True, default=str).encode()).hexdigest()[:24]


def keep(key: str, times: ServiceTimes, path: Path | None = None) -> None:
    """Add an entry, or replace it. Raises `ConfigError` if the file cannot be written."""
    path = path or times_file()
    entries = read_object(path)
    entries.pop(key, None)
    entries = dict(list(entries.items())[1 - KEPT :]) | {key: times.to_json()}
    try:
        make_directory(path.parent)
        write_atomic(path, json.dumps(entries, indent=1).encode(), forced=False)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}. Set XDG_CACHE_HOME to a folder that can."
        ) from error


def find_times(key: str, path: Path | None = None) -> ServiceTimes | None:
    """The entry of this name; None if there is none that can be read."""
    try:
        return ServiceTimes.from_json(read_object(path or times_file())[key])
    except (KeyError, AttributeError, ValueError):
        return None
