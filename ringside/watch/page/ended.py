"""Status of a run that has ended, from its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringside.watch.page.live_curves import finite, metric_rows
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config

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


def ended_status(
    config: Config, summary: dict[str, Any], last: dict[str, float | None], metrics: Sequence[str]
) -> dict[str, Any]:
    """Fields of `ringside.watch.status.Status` that files provide, as JSON values.

    Args:
        config: of the run.
        summary: its `summary.json`; empty where there is none.
        last: values of the newest record of a round, by name; a killed run leaves nothing else.
        metrics: names of the method's metrics in that record.
    """
    run_schedule = make_run_schedule(config)
    limit, roles = summary.get("limit"), summary.get("roles")
    return {name: finite(summary.get(name, last.get(name))) for name in _PLAIN} | {
        "total_steps": run_schedule.rounds * run_schedule.round_steps,
        "elapsed": finite(summary.get("seconds")),
        "time_left": None,
        "metrics": metric_rows({name: last[name] for name in metrics}),
        "epsilon": last.get("epsilon"),
        "evaluation": None,
        "bottleneck": {"sentence": str(limit.get("sentence", ""))} if isinstance(limit, dict) else None,
        "roles": [
            {"name": name, "state": "ended", **{word: finite(role.get(word)) for word in _OF_ROLES}}
            for name, role in (roles.items() if isinstance(roles, dict) else ())
            if isinstance(role, dict)
        ],
        "warnings": [],
    }
