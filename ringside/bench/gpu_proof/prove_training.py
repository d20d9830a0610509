"""The stages of the proof on a GPU that train for minutes: Pong until it is solved, returns over steps and time."""

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
"""Mean of the last 100 training episodes of Pong."""
SOLVE_SECONDS = 170.0
RETURNS_SECONDS = 420.0
"""Seconds of training on Breakout, after which the run is stopped."""
CURVES_SECONDS = 100.0
"""A run of stage `curves` has at least these of a call: to start takes some of them."""
CURVES_GAMES = ("pong", "breakout", "space_invaders", "qbert")
CURVES_PRESETS = ("nature", "rainbow", "iqn", "btr")
"""Both in the order in which stage `curves` begins its runs: all presets on the first game, then the next."""
CURVES_WORDS = "--protocol machado"
"""Sticky actions, as the agents of `ringside/report/published_curves.json` had."""
WAYS = {
    "larger-batches": "--batch-size 64 --train-every 8 --learning-rate 2e-4",
    "five-steps": "--n-step 5",
    "quantiles": "--method qr-dqn --atoms 32",
}
"""Options added to `quick`: fewer updates, faster returns, another loss."""


def ways(stage: Stage) -> None:
    """Time to solve Pong, by settings."""
    for name, words in WAYS.items():
        solve(stage, 1, f"pong-{name}", words)


def solve(stage: Stage, seed: int, name: str = "", more: str = "") -> None:
    """Pong, from the command to the episode with which it counts as solved; `more` words are another way to it."""
    began, seen = time.monotonic(), list[float]()

    def look(run_dir: Path) -> bool:
        if reached(run_dir, SOLVED) is not None:
            seen.append(round(time.monotonic() - began, 1))
        return bool(seen)

    words = f"--game pong --preset quick --total-steps 5_000_000 --seed {seed} {more}"
    _train(stage, name or f"pong-{seed}", words, SOLVE_SECONDS, look)
    stage.note({"seed": seed, "words": more, "seconds_from_the_command_to_solved": seen[0] if seen else None})


def returns(stage: Stage) -> None:
    """Breakout for `RETURNS_SECONDS`: how far it comes in that time."""
    end = time.monotonic() + RETURNS_SECONDS
    words = f"--game breakout --preset nature --eval-every-steps 1_000_000 {room()}"
    _train(stage, "breakout", words, LONG, lambda _: time.monotonic() > end)


def curves(stage: Stage) -> None:
    """Returns over steps and over time, beside published curves: those runs first that have had the least time.

    Each has its share of what is left of the stage's time. Another call goes on with the same runs.
    """
    runs = [(game, preset) for game in CURVES_GAMES for preset in CURVES_PRESETS]
    runs.sort(key=lambda run: (newest_round(_place(stage, *run)) or {"seconds": 0.0})["seconds"])
    for i, (game, preset) in enumerate(runs):
        if stage.left < CURVES_SECONDS + END_SECONDS:
            stage.note({"for_another_call": ["-".join(run) for run in runs[i:]]})
            return
        share = max(CURVES_SECONDS, stage.left / (len(runs) - i))
        _turn(stage, game, preset, min(share, stage.left - END_SECONDS))


def _turn(stage: Stage, game: str, preset: str, seconds: float) -> None:
    """Begin a run of stage `curves`, or go on with it, for so long; then draw its game anew."""
    end = time.monotonic() + seconds
    run_dir = _place(stage, game, preset)
    words = f"--game {game} --preset {preset} {CURVES_WORDS} {room()}"
    _play(stage, run_dir, words, LONG, lambda _: time.monotonic() > end)
    stage.note({"run": run_dir.name, "reached": newest_round(run_dir)})
    _draw_game(stage, game)


def _draw_game(stage: Stage, game: str) -> None:
    """All presets on a game, as far as an episode of theirs has ended, beside published curves."""
    words = []
    for preset in CURVES_PRESETS:
        run_dir = _place(stage, game, preset)
        last = newest_round(run_dir)
        if last and last["mean_return_100"] is not None:
            words.append(f"{preset}={run_dir}")
    if words:
        _draw(stage, f"curves-{game}", *words, "--published")


def _place(stage: Stage, game: str, preset: str) -> Path:
    """The directory of a run of stage `curves`; what else lies in a directory that the user named is not touched."""
    return stage.runs / "prove-gpu" / f"{game}-{preset}"


def _train(stage: Stage, name: str, words: str, seconds: float, look: Callable[[Path], bool]) -> None:
    """Train until `look` is satisfied with the run directory, `seconds` at most; keep its records and their curve."""
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        run_dir = Path(scratch) / name
        _play(stage, run_dir, words, seconds, look)
        if (run_dir / METRICS_FILE).exists():
            _draw(stage, name, str(run_dir))


def _play(stage: Stage, run_dir: Path, words: str, seconds: float, look: Callable[[Path], bool]) -> None:
    """Train until `look` is satisfied with the run directory, `seconds` at most; keep its records.

    A run that is there, and has a checkpoint, is gone on with unless it is finished; `words` are those of one that
    begins.
    """
    checkpoints = run_dir / CHECKPOINTS
    begun = checkpoints.is_dir() and bool(manifests_in(checkpoints))
    if begun and read_object(run_dir / SUMMARY_FILE).get("finished"):
        return
    if run_dir.exists() and not begun:
        shutil.rmtree(run_dir)  # it was killed before anything was saved, and a new run needs the place
    flags = f"{'' if begun else f'--device cuda {words}'} {stage.more}".split()
    told = ["launch.py", "--plain", *flags, "--resume" if begun else "--run-dir", str(run_dir)]
    stage.run(told, seconds, partial(look, run_dir), run_dir)
    if (run_dir / METRICS_FILE).exists():
        shutil.copyfile(run_dir / METRICS_FILE, stage.out / f"{run_dir.name}-{METRICS_FILE}")


def _draw(stage: Stage, name: str, *words: str) -> None:
    """NAME.png: a picture of the runs that `words` tell `ringside.report.curve`."""
    stage.run(["-m", "ringside.report.curve", *words, "--out", str(stage.out / f"{name}.png")], 60)


def reached(run_dir: Path, goal: float) -> dict[str, Any] | None:
    """The first round after which the mean of the last 100 training episodes was `goal` or more."""
    if not (run_dir / METRICS_FILE).exists():
        return None
    for record in read_metrics(run_dir / METRICS_FILE):
        if record["kind"] == "round" and record["episodes"] >= 100 and record["mean_return_100"] >= goal:
            return record
    return None


def newest_round(run_dir: Path) -> dict[str, Any] | None:
    """The last round with a time that a run has written down; None: there is none that can be read."""
    last = None
    with suppress(FileNotFoundError, MetricsError):
        for record in read_metrics(run_dir / METRICS_FILE):
            last = record if record["kind"] == "round" and "seconds" in record else last
    return last
