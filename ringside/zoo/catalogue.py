"""The trained agents that the repository brings along: a directory each, in which nothing is executed.

`zoo/NAME/` holds `weights.safetensors`, the `summary.json` of the run, `evaluation.json` (what `launch.py eval` says of
them) and a `README.md` with the command that trained them. `launch.py zoo` lists and adds.
"""

from __future__ import annotations

import os
from pathlib import Path

from shared.config.settings import SUMMARY_FILE
from shared.errors import ConfigError

ZOO = Path(__file__).parent
WEIGHTS = "weights.safetensors"
SUMMARY = SUMMARY_FILE
EVALUATION = "evaluation.json"
README = "README.md"
MOST_BYTES = 10_000_000
"""Of one entry's weights: a clone stays small."""


def names() -> tuple[str, ...]:
    """The agents that there are."""
    return tuple(sorted(path.parent.name for path in ZOO.glob(f"*/{WEIGHTS}")))


def find(load: str | Path, flag: str = "--load") -> Path:
    """What a user means by --load, or another flag: a path that exists or, where there is none, an agent of the zoo.

    It is called `NAME` or `zoo/NAME`.

    Raises `ConfigError` with a sentence when there is neither.
    """
    path = Path(load)
    if not os.path.exists(path):  # which raises for no path
        parts = path.parts[1:] if path.parts[:1] == (ZOO.name,) else path.parts
        if len(parts) != 1 or parts[0] not in names():
            zoo = f"the agents in the zoo are {', '.join(names())}" if names() else "the zoo is empty"
            raise ConfigError(f"{flag} {load} does not exist: no such run, checkpoint or file of weights; {zoo}.")
        path = ZOO / parts[0]
    return path / WEIGHTS if os.path.isfile(path / WEIGHTS) else path
