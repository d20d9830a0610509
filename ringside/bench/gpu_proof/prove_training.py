"""Stages of the GPU proof that train for minutes: Pong until solved, and returns over steps and time."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ringside.bench.gpu_proof.stage import END_SECONDS, LONG, Stage, room
from ringside.recording.metrics import MetricsError, read_metrics
from shared.checkpoint.finding import manifests_in
from shared.checkpoint.manifest import CHECKPOINTS
from shared.config.settings import METRICS_FILE, SUMMARY_FILE
from shared.files.atomic import read_object

SOLVED = 18.0
"""Mean of the last 100 training episodes at which Pong counts as solved."""
SOLVE_SECONDS = 170.0
RETURNS_SECONDS = 420.0
"""Seconds of training on Breakout, after which the run is stopped."""
CURVES_SECONDS = 100.0
"""Least time of a run of the stage `curves` in one call, including its start."""
CURVES_GAMES = ("pong", "breakout", "space_invaders", "qbert")
CURVES_PRESETS = ("nature", "rainbow", "iqn", "btr")
"""Games and presets in the order of the runs of the stage `curves`: all presets on the first game, then the next."""
CURVES_WORDS = "--protocol machado"
"""Sticky actions, as the agents of `ringside/report/published_curves.json` had."""
WAYS = {
    "larger-batches": "--batch-size 64 --train-every 8 --learning-rate 2e-4",
    "five-steps": "--n-step 5",
    "quantiles": "--method qr-dqn --atoms 32",
}
"""Options added to `quick`: fewer updates, faster returns, another loss."""


def ways(stage: Stage) -> None:
    """Time to solve Pong by setting."""
    for name, words in WAYS.items():
        solve(stage, 1, f"pong-{name}", words)


def solve(stage: Stage, seed: int, name: str = "", more: str = "") -> None:
    """Measure the time from the command until Pong is solved; `more` holds further options of the run."""
    began, solved_after = time.monotonic(), list[float]()

    def is_solved(run_dir: Path) -> bool:
        if reached(run_dir, SOLVED) is not None:
            solved_after.append(round(time.monotonic() - began, 1))
        return bool(solved_after)

    words = f"--game pong --preset quick --total-steps 5_000_000 --seed {seed} {more}"
    _train(stage, name or f"pong-{seed}", words, SOLVE_SECONDS, is_solved)
    stage.note({"seed": seed, "words": more, "seconds_from_the_command_to_solved": next(iter(solved_after), None)})


def returns(stage: Stage) -> None:
    """Train Breakout for `RETURNS_SECONDS`, and draw its returns."""
    end = time.monotonic() + RETURNS_SECONDS
    words = f"--game breakout --preset nature --eval-every-steps 1_000_000 {room()}"
    _train(stage, "breakout", words, LONG, lambda _: time.monotonic() > end)


def curves(stage: Stage) -> None:
    """Draw returns over steps and over time with published curves. Runs with the least training time come first.

    Each run gets an equal share of the remaining time of the stage. Another call continues the same runs.
    """
    runs = [(game, preset) for game in CURVES_GAMES for preset in CURVES_PRESETS]
    runs.sort(key=lambda run: (newest_round(_place(stage, *run)) or {"seconds": 0.0})["seconds"])
    for i, (game, preset) in enumerate(runs):
        if stage.left < CURVES_SECONDS + END_SECONDS:
            stage.note({"for_another_call": ["-".join(run) for run in runs[i:]]})
            return
        share = max(CURVES_SECONDS, stage.left / (len(runs) - i))
        _extend_run(stage, game, preset, min(share, stage.left - END_SECONDS))


def _extend_run(stage: Stage, game: str, preset: str, seconds: float) -> None:
    """Start or continue a run of the stage `curves` for `seconds`, then redraw the figure of its game."""
    end = time.monotonic() + seconds
    run_dir = _place(stage, game, preset)
    words = f"--game {game} --preset {preset} {CURVES_WORDS} {room()}"
    _play(stage, run_dir, words, LONG, lambda _: time.monotonic() > end)
    stage.note({"run": run_dir.name, "reached": newest_round(run_dir)})
    _draw_game(stage, game)


def _draw_game(stage: Stage, game: str) -> None:
    """Draw all presets on a game with a finished episode, and the published curves."""
    words = []
    for preset in CURVES_PRESETS:
        run_dir = _place(stage, game, preset)
        last = newest_round(run_dir)
        if last and last["mean_return_100"] is not None:
            words.append(f"{preset}={run_dir}")
    if words:
        _draw(stage, f"curves-{game}", *words, "--published")


def _place(stage: Stage, game: str, preset: str) -> Path:
    """Directory of a run of the stage `curves`; other files in a user's directory are not touched."""
    return stage.runs / "prove-gpu" / f"{game}-{preset}"


def _train(stage: Stage, name: str, words: str, seconds: float, is_done: Callable[[Path], bool]) -> None:
    """Train until `is_done(run_dir)` or for `seconds`; keep the records and draw their curve."""
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        run_dir = Path(scratch) / name
        _play(stage, run_dir, words, seconds, is_done)
        if (run_dir / METRICS_FILE).exists():
            _draw(stage, name, str(run_dir))


def _play(stage: Stage, run_dir: Path, words: str, seconds: float, is_done: Callable[[Path], bool]) -> None:
    """Train until `is_done(run_dir)` or for `seconds`; keep the records.

    An unfinished run with a checkpoint is continued; `words` are the options of a new one.
    """
    checkpoints = run_dir / CHECKPOINTS
    begun = checkpoints.is_dir() and bool(manifests_in(checkpoints))
    if begun and read_object(run_dir / SUMMARY_FILE).get("finished"):
        return
    if run_dir.exists() and not begun:
        shutil.rmtree(run_dir)  # killed before its first checkpoint; a new run needs the directory
    flags = f"{'' if begun else f'--device cuda {words}'} {stage.more}".split()
    command = ["launch.py", "--plain", *flags, "--resume" if begun else "--run-dir", str(run_dir)]
    stage.run(command, seconds, partial(is_done, run_dir), run_dir)
    if (run_dir / METRICS_FILE).exists():
        shutil.copyfile(run_dir / METRICS_FILE, stage.out / f"{run_dir.name}-{METRICS_FILE}")


def _draw(stage: Stage, name: str, *words: str) -> None:
    """Draw NAME.png by `ringside.report.curve` with the arguments `words`."""
    stage.run(["-m", "ringside.report.curve", *words, "--out", str(stage.out / f"{name}.png")], 60)


def reached(run_dir: Path, goal: float) -> dict[str, Any] | None:
    """Record of the first round with a mean of `goal` or more over the last 100 training episodes; None without one."""
    if not (run_dir / METRICS_FILE).exists():
        return None
    for record in read_metrics(run_dir / METRICS_FILE):
        if record["kind"] == "round" and record["episodes"] >= 100 and record["mean_return_100"] >= goal:
            return record
    return None


def newest_round(run_dir: Path) -> dict[str, Any] | None:
    """Last record of a round with a time; None if there is none that can be read."""
    last = None
    with suppress(FileNotFoundError, MetricsError):
        for record in read_metrics(run_dir / METRICS_FILE):
            last = record if record["kind"] == "round" and "seconds" in record else last
    return last
