"""What the files of a run tell when its memory is gone, in the words of a `Status`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared.config import SUMMARY_FILE, Config
from shared.sizes import sizes_of
from watch.page.curves import finite

_SIZE_LIMIT = 1 << 20
_PLAIN = (
    "steps",
    "updates",
    "episodes",
    "mean_return_100",
    "best_return",
    "steps_per_second",
    "samples_per_step",
)
_OF_ROLES = ("busy", "cores", "restarts")


def read_summary(run_dir: Path) -> dict[str, Any] | None:
    """`summary.json` of a run; None when there is none, or none that can be read."""
    try:
        with open(run_dir / SUMMARY_FILE, "rb") as file:
            found = json.loads(file.read(_SIZE_LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def status_of(config: Config, summary: dict[str, Any] | None, last: dict[str, float | None]) -> dict[str, Any]:
    """The fields of `watch.status.Status` that files know, as JSON values.

    Args:
        config: of the run.
        summary: its `summary.json`.
        last: the newest record of a round, by name: all that a killed run has left.
    """
    sizes = sizes_of(config)
    said = summary or {}
    limit, roles = said.get("limit"), said.get("roles")
    return {name: finite(said.get(name, last.get(name))) for name in _PLAIN} | {
        "total_steps": sizes.rounds * sizes.round_steps,
        "elapsed": finite(said.get("seconds")),
        "time_left": None,
        "loss": last.get("loss"),
        "mean_q": last.get("mean_q"),
        "epsilon": last.get("epsilon"),
        "evaluation": None,
        "verdict": {"sentence": str(limit.get("sentence", ""))} if isinstance(limit, dict) else None,
        "roles": [
            {"name": name, "state": "ended", **{word: finite(role.get(word)) for word in _OF_ROLES}}
            for name, role in (roles.items() if isinstance(roles, dict) else ())
            if isinstance(role, dict)
        ],
        "warnings": [],
    }
