"""End-to-end speed of a real run at steady state: steps/s after learning has begun, from the run's own metrics.

    python -m benchmarks.runs --game breakout --seconds 60
    python -m benchmarks.runs -- --precision fp32 --schedule free

What follows `--` goes to `launch.py`. The figure is taken between two boundaries, so that it counts whole rounds:
playing, inference, updates, resets, commits and checkpoint segments. The run's summary is checked for the work done.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WARM_ROUNDS = 1
"""Learning rounds before the clock starts: caches fill, threads start."""


@dataclass(frozen=True)
class Throughput:
    """What a run did between two boundaries."""

    command: str
    steps_per_second: float
    updates_per_second: float
    samples_per_step: float
    learner_barrier_share: float
    """Share of the time that the learner waited for lanes."""
    steps: int
    seconds: float
    first_step_seconds: float
    """From the command to the first committed round's metrics."""
    machine: dict[str, Any]


def rounds_of(run_dir: Path) -> list[dict[str, Any]]:
    """The round records written so far."""
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return []
    records = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    return [record for record in records if record["kind"] == "round"]


def measure(game: str, seconds: float, words: list[str]) -> Throughput:
    """Run `launch.py` until it has learnt for `seconds`, stop it gracefully, and read what it did.

    Raises:
        RuntimeError: the run failed, or did other work than it was asked for.
    """
    with tempfile.TemporaryDirectory(prefix="ringside-bench-") as scratch:
        run_dir = Path(scratch) / "run"
        command = ["launch.py", "--plain", "--game", game, "--learning-starts", "5_000", *words]
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *command, "--run-dir", str(run_dir)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        first_step = 0.0
        try:
            while process.poll() is None:
                rounds = rounds_of(run_dir)
                if rounds and not first_step:
                    first_step = time.monotonic() - begun
                learning = [record for record in rounds if record["samples_per_step"] > 0][WARM_ROUNDS:]
                if len(learning) > 1 and learning[-1]["seconds"] - learning[0]["seconds"] >= seconds:
                    break
                time.sleep(0.5)
        finally:  # also when this benchmark is interrupted
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=300)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with code {process.returncode}: {errors}")
        summary = json.loads((run_dir / "summary.json").read_text())
        learning = [record for record in rounds_of(run_dir) if record["samples_per_step"] > 0][WARM_ROUNDS:]
    if len(learning) < 2:
        raise RuntimeError(f"{' '.join(command)} ended before two rounds had learnt.")
    first, last = learning[0], learning[-1]
    steps, took = last["steps"] - first["steps"], last["seconds"] - first["seconds"]
    updates = last["updates"] - first["updates"]
    config_batch = int(words[words.index("--batch-size") + 1]) if "--batch-size" in words else 32
    return Throughput(
        command="python " + " ".join(command),
        steps_per_second=steps / took,
        updates_per_second=updates / took,
        samples_per_step=updates * config_batch / steps,
        learner_barrier_share=summary["learner_barrier_seconds"] / summary["seconds"],
        steps=steps,
        seconds=took,
        first_step_seconds=first_step,
        machine=summary["machine"],
    )


def main() -> None:
    """Measure once and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure, after learning has begun")
    parser.add_argument("--json", type=Path, help="write the result to this file, too")
    parser.add_argument("words", nargs="*", help="further flags of launch.py, after --")
    options = parser.parse_args()
    result = measure(options.game, options.seconds, options.words)
    print(
        f"{result.steps_per_second:.0f} steps/s ({4 * result.steps_per_second:.0f} frames/s), "
        f"{result.updates_per_second:.1f} updates/s, {result.samples_per_step:.2f} samples a step, "
        f"learner at the barrier {result.learner_barrier_share:.1%}; {result.steps} steps in {result.seconds:.0f} s"
    )
    if options.json:
        options.json.write_text(json.dumps(asdict(result), indent=1))


if __name__ == "__main__":
    main()
