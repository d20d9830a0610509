"""The task `doctor`: can this machine do a run? The examination itself is in `ringside/doctor/examination.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside.doctor import examination
from ringside.tasks.arguments import Choices, config_of, parse_choices
from shared.text import PROGRAM


@dataclass(frozen=True)
class Diagnosis(Choices):
    """The options of `doctor`."""

    json: Path | None = None
    """Write the findings to this file, too."""


OPTIONS = Diagnosis


def main(arguments: Sequence[str]) -> int:
    """Examine the machine. Return 1 if a run cannot work on it."""
    options = parse_choices(
        Diagnosis,
        arguments,
        f"{PROGRAM} doctor",
        "Examine whether this machine can do a run: the one that these options of training say.",
    )
    return examination.examine(config_of(options), arguments, options.json)
