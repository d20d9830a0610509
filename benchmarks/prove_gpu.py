"""Everything that is to be shown on a machine with a GPU, in stages of at most `STAGE_SECONDS`, each failing alone.

    python -m benchmarks.prove_gpu --out results                        all stages, one after the other
    python -m benchmarks.prove_gpu --out results latency exact          these

  latency      bench gpu: how long inference takes beside a busy learner, in turns and under MPS
  learner      bench gpu: updates a second, by precision, place of the replay, determinism, length of a launch
  exact        the same weights for other numbers of actors, replay on the host, other launches, without MPS, kills
  family       the same with methods, noise, priorities and residual networks
  presets      bench presets, those whose update is made of few kernels
  large        bench presets, those whose update is made of many
  limits       bench limits
  breakout     bench throughput with 96 and 192 envs
  pong         the same on Pong
  scaling      bench scaling
  solve-1      Pong with the preset quick and seed 1, until the mean of the last 100 training episodes is 18
  solve-2      seed 2
  solve-3      seed 3

Every stage leaves STAGE.log with all that was said, the logs of runs that failed, and JSON or pictures; outcome.json
says which commands did what in which time. A command that is late is asked to stop, then killed, and the next one goes
on, while its stage has time. MPS is tried once, first: where it cannot be had, runs are told so, and do not try.
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
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.outside import logs_of
from benchmarks.report import ROOT, commit
from shared import machine, mps
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
"""Of a small run."""
FIRST_SECONDS = 240
"""Of one that is the first on its machine: PyTorch is read from the disk, and kernels are compiled."""
SOLVED = 18.0
"""Mean of the last 100 training episodes of Pong."""
SEEDS = (1, 2, 3)
SOLVE_SECONDS = 170.0
FEW_KERNELS = "quick,double,dueling,c51,qr-dqn"
MANY_KERNELS = "rainbow,iqn,btr"
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

    def __init__(self, name: str, out: Path, more: str = "") -> None:
        """`more`: what every run is told here."""
        self.name = name
        self.out = out
        self.more = more
        self.outcome: list[dict[str, Any]] = []
        self._deadline = time.monotonic() + STAGE_SECONDS

    def launch(self, words: str, seconds: float, run_dir: Path | None = None) -> bool:
        """`launch.py` with these words. Returns whether it ended well, in time."""
        return self.run(["launch.py", *words.split()], seconds, run_dir=run_dir)

    def run(
        self,
        words: Sequence[str],
        seconds: float,
        look: Callable[[], bool] = lambda: False,
        run_dir: Path | None = None,
    ) -> bool:
        """A Python program, asked to stop after `seconds`, at the end of its stage, or as soon as `look` is satisfied.

        If it is a run, and fails, what its processes wrote in `run_dir` is added to the log.

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
        if not good and run_dir is not None:
            with (self.out / f"{self.name}.log").open("ab") as log:
                log.write(logs_of(run_dir).encode())
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
    stage.run(["-m", "pytest", "-q", "tests/exact", "-m", "not stress"], 360)


def family(stage: Stage) -> None:
    """The same for combinations of the family."""
    for words in FAMILY.values():
        agree(stage, words, {name: VARIANTS[name] for name in FAMILY_VARIANTS})


def presets(stage: Stage, names: str) -> None:
    """What presets cost."""
    file = stage.out / f"{stage.name}.json"
    stage.launch(f"bench presets --presets {names} --repeats 1 --seconds 5 --json {file}", LONG)


def agree(stage: Stage, words: str, variants: Mapping[str, str]) -> None:
    """Run a small game with `words` once for every variant, and note whether all ended with the same weights."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        for name, more in variants.items():
            run_dir = Path(scratch) / name.replace(" ", "-")
            told = f"--plain --device cuda {SMALL_RUN} {words} {stage.more} {more} --run-dir {run_dir}"
            if stage.launch(told, RUN_SECONDS if found else FIRST_SECONDS, run_dir):
                found[name] = json.loads((run_dir / SUMMARY_FILE).read_text())["weights_sha256"]
    stage.note(
        {"words": words, "weights": found, "good": len(set(found.values())) == 1 and len(found) == len(variants)}
    )


def limits(stage: Stage) -> None:
    """What the parts can do."""
    stage.launch(f"bench limits --repeats 1 --json {stage.out / 'limits.json'}", LONG)


def throughput(stage: Stage, game: str) -> None:
    """End to end."""
    for envs in (96, 192):
        file = stage.out / f"throughput-{game}-{envs}.json"
        words = f"bench throughput --game {game} --parts speed --repeats 1 --seconds 20 --json {file}"
        stage.launch(f"{words} -- --envs {envs} {stage.more}", LONG / 2)


def scaling(stage: Stage) -> None:
    """More actors."""
    stage.launch(f"bench scaling --repeats 1 --json {stage.out / 'scaling.json'} -- {stage.more}", LONG)


def solve(stage: Stage, seed: int) -> None:
    """Pong, from the command to the episode with which it counts as solved."""
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        run_dir = Path(scratch) / f"pong-{seed}"
        words = f"launch.py --plain --game pong --preset quick --total-steps 5_000_000 --seed {seed} {stage.more}"
        began, seen = time.monotonic(), list[float]()

        def look() -> bool:
            if reached(run_dir, SOLVED) is not None:
                seen.append(round(time.monotonic() - began, 1))
            return bool(seen)

        stage.run([*words.split(), "--run-dir", str(run_dir)], SOLVE_SECONDS, look, run_dir)
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


STAGES: dict[str, Callable[[Stage], None]] = {
    "latency": latency,
    "learner": learner,
    "exact": exact,
    "family": family,
    "presets": partial(presets, names=FEW_KERNELS),
    "large": partial(presets, names=MANY_KERNELS),
    "limits": limits,
    "breakout": partial(throughput, game="breakout"),
    "pong": partial(throughput, game="pong"),
    "scaling": scaling,
    **{f"solve-{seed}": partial(solve, seed=seed) for seed in SEEDS},
}


def prove(names: Sequence[str], out: Path, no_mps: str | None = None) -> bool:
    """Run stages; returns whether all that they did was good. `no_mps`: why there is none."""
    out.mkdir(parents=True, exist_ok=True)
    outcome: dict[str, Any] = {
        "commit": commit(),
        "machine": machine.describe(),
        "gpus": [asdict(gpu) for gpu in machine.gpus()],
        "no_mps": no_mps,
        "done": [],
    }
    for name in names:
        stage = Stage(name, out.resolve(), "--mps off" if no_mps else "")
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
    refused: list[str] = []
    with mps.service("auto", "cuda:0", refused.append):
        pass
    return 0 if prove(options.stages or list(STAGES), options.out, " ".join(refused) or None) else 1


if __name__ == "__main__":
    sys.exit(main())
