"""Run directories as a run leaves them, written without one."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ringside.records.metrics import Episode, MetricsLog
from shared.config.protocols import PROTOCOLS
from shared.config.settings import Config
from shared.files.run_file_names import METRICS_FILE

ROUND = 1_000
"""Steps of a round."""

SUMMARY = {
    "limit": {"name": "learner", "share_of_limit": 0.9, "steps_per_second": 400.0, "sentence": "It is held."},
    "machine": {"cpu": "a processor", "usable_cores": 2, "gpus": [], "libraries": {"torch": "2"}},
    "exact": True,
    "restarts": 0,
    "samples_per_step": 8.0,
    "weights_sha256": "0123456789abcdef",
}


def log_rounds(run_dir: Path, first: int, stop: int, evaluation: int | None = None) -> None:
    """Rounds of 40 steps with an episode each, and an evaluation of the last."""
    with closing(MetricsLog(run_dir / METRICS_FILE)) as log:
        for number in range(first, stop):
            log.log_round(number, 40 * (number + 1), {"loss": 0.5}, [Episode(0, 10 * number, 3.0, 5)], envs=4)
        if evaluation is not None:
            log.log_evaluation(evaluation, stop, 40 * stop, {"mean_return": 7.0})


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
        evaluations: mean returns, spread evenly over the rounds; each takes 3 s.
        final, best: mean returns of evaluations by the protocol.
        ended: True: to its end; False: before; None: there is no summary.
        seconds: of a round.
        judged: other values of those evaluations; None: not there.
        episodes: False: none has ended.
    """
    path.mkdir(parents=True, exist_ok=True)
    usual, rounds = PROTOCOLS[settings.get("protocol", "nature")], len(returns)
    rules: dict[str, Any] = {"eval_epsilon": usual.eval_epsilon, "eval_max_frames": usual.eval_max_frames}
    told = {"game": game, "seed": seed, "total_steps": ROUND * rounds, **rules, **settings}
    (path / "config.json").write_text(json.dumps(Config().with_settings(**told).to_json()))
    with closing(MetricsLog(path / "metrics.jsonl")) as log:
        for i, total in enumerate(returns):
            values = {"seconds": seconds * (i + 1), "steps_per_second": ROUND / seconds, "loss": 0.5, "epsilon": 0.1}
            ended_here = [Episode(0, (i + 1) * 100 - 1, total, 50)] if episodes else []
            log.log_round(i, ROUND * (i + 1), values, ended_here, envs=10)
        for i, mean in enumerate(evaluations):
            steps = ROUND * rounds * (i + 1) // len(evaluations)
            values = {"seconds": seconds * steps / ROUND + 3.0, "mean_return": mean}
            values["episodes"] = settings.get("eval_episodes", usual.eval_episodes)
            log.log_evaluation(i, steps // ROUND, steps, values)
    if ended is not None:
        progress = {"finished": ended, "steps": ROUND * rounds, "rounds": rounds}
        (path / "summary.json").write_text(json.dumps(SUMMARY | progress))
    for kind, mean in {"final": final, "best": best}.items():
        if mean is not None:
            found = {"mean": mean, "sd": 1.0, "median": mean, "best": mean + 1, "episodes": usual.eval_episodes}
            found |= {"version": rounds, "device": "cpu", "precision": "fp32"} | rules | dict(judged or {})
            found = {name: value for name, value in found.items() if value is not None}
            (path / f"evaluation-{kind}.json").write_text(json.dumps(found))
    return path
