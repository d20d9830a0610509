"""Everything that is to be shown on a machine with a GPU, in stages of at most `STAGE_SECONDS`, each failing alone.

    python -m benchmarks.prove_gpu --out results                        all stages, one after the other
    python -m benchmarks.prove_gpu --out results latency exact          these

  latency      bench gpu: how long inference takes beside a busy learner, in turns and under MPS
  learner      bench gpu: updates a second, by precision, place of the replay, determinism, length of a launch
  exact        the same weights for other numbers of actors, replay on the host, other launches, without MPS, kills
  family       the same with methods, noise, priorities and residual networks
  presets      bench presets
  limits       bench limits
  throughput   bench throughput on Breakout and Pong, with 96 and 192 envs
  scaling      bench scaling
  solve        Pong with the preset quick, seeds 1 to 3, until the mean of the last 100 training episodes is 18

Every stage leaves STAGE.log with all that was said, and JSON or pictures; outcome.json says which commands did what in
which time. A command that is late is asked to stop, then killed, and the next one goes on, while its stage has time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, commit
from shared import machine
from shared.config import METRICS_FILE, SUMMARY_FILE
from shared.files import write_atomic
from watch.metrics import read_metrics

STAGE_SECONDS = 560.0
"""Of a stage with all its commands."""
END_SECONDS = 45.0
"""How long a command that was asked to stop may take to end; part of its stage's time."""
LONG = 500.0
"""Of a command that has its stage for itself."""
RUN_SECONDS = 90
"""Of a small run, PyTorch's first import in a fresh container included."""
SOLVED = 18.0
"""Mean of the last 100 training episodes of Pong."""
SEEDS = (1, 2, 3)
SOLVE_SECONDS = 170.0
SMALL_RUN = "--game breakout --envs 8 --lane-envs 2 --round-steps 480 --learning-starts 960 --total-steps 9_600 \
--replay-size 2_400 --epsilon-steps 2_000"
VARIANTS = {
    "as it comes": "--actors 2",
    "1 actor": "--actors 1",
    "4 actors": "--actors 4",
    "replay on the host": "--actors 2 --replay-on host",
    "one update in a launch": "--actors 2 --graph-updates 1",
    "without MPS": "--actors 2 --mps off",
}
"""Runs that must end with the same weights."""
FAMILY = {
    "everything": "--method iqn --iqn-samples 8 --iqn-policy-samples 8 --munchausen --dueling --noisy --n-step 3 \
--prioritised",
    "categorical": "--method c51 --double --prioritised",
    "residual": "--method qr-dqn --atoms 32 --network impala --pooling --spectral-norm --layer-norm --train-every 40",
}
"""Combinations that between them use every part of learner/modular.py."""
FAMILY_VARIANTS = ("as it comes", "4 actors", "replay on the host", "one update in a launch")


class Stage:
    """One stage: its commands, their log, what became of them."""

    def __init__(self, name: str, out: Path) -> None:
        self.name = name
        self.out = out
        self.outcome: list[dict[str, Any]] = []
        self._deadline = time.monotonic() + STAGE_SECONDS

    def launch(self, words: str, seconds: float) -> bool:
        """`launch.py` with these words. Returns whether it ended well, in time."""
        return self.run(["launch.py", *words.split()], seconds)

    def run(self, words: Sequence[str], seconds: float, look: Callable[[], bool] = lambda: False) -> bool:
        """A Python program, asked to stop after `seconds`, at the end of its stage, or as soon as `look` is satisfied.

        Returns whether it ended well: by itself with code 0, or satisfied.
        """
        began = time.monotonic()
        end = min(began + seconds, self._deadline - END_SECONDS)
        if began >= end:
            self.note({"command": " ".join(words), "good": False, "error": "The time of the stage was over."})
            return False
        with (self.out / f"{self.name}.log").open("ab") as log:
            log.write(f"\n$ python {' '.join(words)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                [sys.executable, *words], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            satisfied = late = False
            try:
                while not satisfied and not late and process.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
                    satisfied, late = look(), time.monotonic() > end
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(END_SECONDS)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        good = satisfied or (process.returncode == 0 and not late)
        took = round(time.monotonic() - began, 1)
        self.note({"command": " ".join(words), "code": process.returncode, "seconds": took, "late": late, "good": good})
        return good

    def note(self, fact: dict[str, Any]) -> None:
        """Add to the outcome, and write it."""
        self.outcome.append({"stage": self.name, **fact})
        print(json.dumps(self.outcome[-1]), flush=True)


def latency(stage: Stage) -> None:
    """Inference beside a busy learner."""
    stage.launch(f"bench gpu --parts latency --repeats 1 --json {stage.out / 'gpu-latency.json'}", LONG)


def learner(stage: Stage) -> None:
    """Updates by setting."""
    stage.launch(f"bench gpu --parts learner --repeats 1 --json {stage.out / 'gpu-learner.json'}", LONG)


def exact(stage: Stage) -> None:
    """Runs that must agree, then the tests of exactness and of deaths on this device."""
    agree(stage, "", VARIANTS)
    stage.run(["-m", "pytest", "-q", "-x", "tests/exact", "-m", "not stress"], 360)


def family(stage: Stage) -> None:
    """The same for combinations of the family."""
    for words in FAMILY.values():
        agree(stage, words, {name: VARIANTS[name] for name in FAMILY_VARIANTS})


def presets(stage: Stage) -> None:
    """What each preset costs."""
    stage.launch(f"bench presets --repeats 1 --seconds 5 --json {stage.out / 'presets.json'}", LONG)


def agree(stage: Stage, words: str, variants: Mapping[str, str]) -> None:
    """Run a small game with `words` once for every variant, and note whether all ended with the same weights."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        for name, more in variants.items():
            run_dir = Path(scratch) / name.replace(" ", "-")
            if stage.launch(f"--plain --device cuda {SMALL_RUN} {words} {more} --run-dir {run_dir}", RUN_SECONDS):
                found[name] = json.loads((run_dir / SUMMARY_FILE).read_text())["weights_sha256"]
    stage.note(
        {"words": words, "weights": found, "good": len(set(found.values())) == 1 and len(found) == len(variants)}
    )


def limits(stage: Stage) -> None:
    """What the parts can do."""
    stage.launch(f"bench limits --repeats 1 --json {stage.out / 'limits.json'}", LONG)


def throughput(stage: Stage) -> None:
    """End to end."""
    for game in ("breakout", "pong"):
        for envs in (96, 192):
            file = stage.out / f"throughput-{game}-{envs}.json"
            words = f"bench throughput --game {game} --parts speed --repeats 1 --seconds 20 --json {file}"
            stage.launch(f"{words} -- --envs {envs}", 145)


def scaling(stage: Stage) -> None:
    """More actors."""
    stage.launch(f"bench scaling --repeats 1 --json {stage.out / 'scaling.json'}", LONG)


def solve(stage: Stage) -> None:
    """Pong, from the command to the episode with which it counts as solved."""
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        for seed in SEEDS:
            run_dir = Path(scratch) / f"pong-{seed}"
            words = f"launch.py --plain --game pong --preset quick --total-steps 5_000_000 --seed {seed}".split()
            words += ["--run-dir", str(run_dir)]
            began, seen = time.monotonic(), list[float]()

            def look(run_dir: Path = run_dir, began: float = began, seen: list[float] = seen) -> bool:
                if reached(run_dir, SOLVED) is not None:
                    seen.append(round(time.monotonic() - began, 1))
                return bool(seen)

            stage.run(words, SOLVE_SECONDS, look)
            stage.note({"seed": seed, "seconds_from_the_command_to_solved": seen[0] if seen else None})
            if (run_dir / METRICS_FILE).exists():
                picture = stage.out / f"pong-{seed}.png"
                stage.run(["-m", "benchmarks.curve", str(run_dir), "--out", str(picture)], 60)


def reached(run_dir: Path, goal: float) -> dict[str, Any] | None:
    """The first round after which the mean of the last 100 training episodes was `goal` or more."""
    if not (run_dir / METRICS_FILE).exists():
        return None
    for record in read_metrics(run_dir / METRICS_FILE):
        if record["kind"] == "round" and record["episodes"] >= 100 and record["mean_return_100"] >= goal:
            return record
    return None


STAGES = {
    stage.__name__: stage for stage in (latency, learner, exact, family, presets, limits, throughput, scaling, solve)
}


def prove(names: Sequence[str], out: Path) -> bool:
    """Run stages; returns whether all that they did was good."""
    out.mkdir(parents=True, exist_ok=True)
    outcome: dict[str, Any] = {"commit": commit(), "machine": machine.describe(), "done": []}
    for name in names:
        stage = Stage(name, out.resolve())
        try:
            STAGES[name](stage)
        except (OSError, ValueError, KeyError) as error:  # a file that a command should have left is not there
            stage.note({"good": False, "error": f"{type(error).__name__}: {error}"})
        finally:
            outcome["done"] += stage.outcome
            write_atomic(out / "outcome.json", json.dumps(outcome, indent=1).encode() + b"\n")
    return all(fact.get("good", True) for fact in outcome["done"])


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for name in options.stages:
        if name not in STAGES:
            parser.error(f"there is no stage {name}; there are {', '.join(STAGES)}")
    if not machine.cuda_devices():
        parser.error("there is no GPU here that this installation can use (launch.py doctor says more)")
    return 0 if prove(options.stages or list(STAGES), options.out) else 1


if __name__ == "__main__":
    sys.exit(main())
