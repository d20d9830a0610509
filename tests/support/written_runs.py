"""Run directories as a run leaves them, written without one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringside.recording.metrics import Episode, MetricsLog
from shared.config.protocols import PROTOCOLS
from shared.config.settings import Config

ROUND = 1_000
"""Steps of a round."""


def write_run(
    path: Path,
    game: str = "pong",
    seed: int = 1,
    returns: Sequence[float] = (-21.0, -20.0, -19.0, -18.0),
    evaluations: Sequence[float] = (-20.0, -18.0),
    *,
    final: float | None = None,
    best: float | None = None,
    ended: bool | None = True,
    seconds: float = 10.0,
    judged: Mapping[str, Any] | None = None,
    episodes: bool = True,
    **settings: Any,
) -> Path:
    """A run of as many rounds as there are returns, of one episode each.

    Args:
        evaluations: mean returns, spread evenly over the rounds.
        final, best: mean returns of evaluations by the protocol.
        ended: True: to its end; False: before; None: there is no summary.
        seconds: of a round.
        judged: other values of those evaluations; None: not there.
        episodes: False: none has ended.
    """
    path.mkdir(parents=True, exist_ok=True)
    usual = PROTOCOLS[settings.get("protocol", "nature")]
    rules: dict[str, Any] = {"eval_epsilon": usual.eval_epsilon, "eval_max_frames": usual.eval_max_frames}
    told = {"game": game, "seed": seed, "total_steps": ROUND * len(returns), **rules, **settings}
    config = Config().with_settings(**told)
    (path / "config.json").write_text(json.dumps(config.to_json()))
    with MetricsLog(path / "metrics.jsonl") as log:
        _log_rounds(log, returns, seconds, episodes=episodes)
        of_each = settings.get("eval_episodes", usual.eval_episodes)
        _log_evaluations(log, evaluations, of_each, seconds, last_step=ROUND * len(returns))
    if ended is not None:
        (path / "summary.json").write_text(json.dumps(_summary(len(returns), finished=ended)))
    for kind, mean in (("final", final), ("best", best)):
        if mean is not None:
            found = _evaluation(mean, usual.eval_episodes, version=len(returns)) | rules | dict(judged or {})
            found = {name: value for name, value in found.items() if value is not None}
            (path / f"evaluation-{kind}.json").write_text(json.dumps(found))
    return path


def _log_rounds(log: MetricsLog, returns: Sequence[float], seconds: float, *, episodes: bool) -> None:
    """Log a round for each return, with an episode if `episodes`."""
    for i, total in enumerate(returns):
        values = {"seconds": seconds * (i + 1), "steps_per_second": ROUND / seconds, "loss": 0.5, "epsilon": 0.1}
        ended_here = [Episode(0, (i + 1) * 100 - 1, total, 50)] if episodes else []
        log.log_round(i, ROUND * (i + 1), values, ended_here, envs=10)


def _log_evaluations(log: MetricsLog, means: Sequence[float], episodes: int, seconds: float, last_step: int) -> None:
    """Log evaluations with these mean returns, spread evenly up to the last step; each takes 3 s."""
    for i, mean in enumerate(means):
        steps = last_step * (i + 1) // len(means)
        values = {"seconds": seconds * steps / ROUND + 3.0, "mean_return": mean, "episodes": episodes}
        log.log_evaluation(i, steps // ROUND, steps, values)


def _summary(rounds: int, *, finished: bool) -> dict[str, Any]:
    """Content of `summary.json`."""
    return {
        "finished": finished,
        "steps": ROUND * rounds,
        "rounds": rounds,
        "limit": {"name": "learner", "share_of_limit": 0.9, "steps_per_second": 400.0, "sentence": "It is held."},
        "machine": {"cpu": "a processor", "usable_cores": 2, "gpus": [], "libraries": {"torch": "2"}},
        "exact": True,
        "restarts": 0,
        "samples_per_step": 8.0,
        "weights_sha256": "0123456789abcdef",
    }


def _evaluation(mean: float, episodes: int, version: int) -> dict[str, Any]:
    """Content of the file of an evaluation, without its rules."""
    return {
        "mean": mean,
        "sd": 1.0,
        "median": mean,
        "best": mean + 1,
        "episodes": episodes,
        "version": version,
        "device": "cpu",
        "precision": "fp32",
    }
