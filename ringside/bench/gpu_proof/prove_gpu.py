"""Checks and measurements on a machine with a GPU, in independent stages, the most important first.

    python -m ringside.bench.gpu_proof.prove_gpu --out results --within 1500  all stages, as many as fit into 25 minutes
    python -m ringside.bench.gpu_proof.prove_gpu --out results latency exact          these

  first        doctor, a small run, and its resume to more steps; if these fail, the other stages will too
  exact        equal weights for different numbers of actors, replay places, graph lengths
  breakout     bench throughput with 96 and 192 envs
  solve-1      Pong with the preset quick and seed 1, until the mean of the last 100 training episodes is 18
  quick        bench throughput on Pong with that preset, with its defaults, more lanes, and more envs
  learner      bench gpu: updates/s by precision, place of the replay buffer, determinism, updates in a launch
  latency      bench gpu: inference latency with a busy learner, with time slicing, or under MPS where its daemon runs
  tests        the tests of exactness on this device, with those of resumes
  family       as exact, with other methods, noisy layers, priorities and residual networks
  presets      bench presets with --end-to-end, for presets with few kernels in an update
  kills        the tests in which processes are killed, and those of the schedule alternate
  solve-2      Pong with seed 2
  solve-3      seed 3
  pong         bench throughput on Pong
  scaling      bench scaling
  limits       bench limits, the parts that use the GPU
  large        as presets, for presets with many kernels in an update
  on-policy    as presets, for presets without a replay buffer
  settings     Breakout end to end, with and without evaluation, by setting: replay place, precision, kernels
  machine      bench limits, the emulator and the actors on ten games

Every stage writes STAGE.log with all output, the logs of failed runs, and JSON. outcome.json lists every
command with its result and time, and is complete after each command. --archive also packs all files into one. A command
that exceeds its time writes its stacks, gets SIGTERM, then SIGKILL; the stage continues if it has time left.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from ringside.bench.gpu_proof.stage import END_SECONDS, LONG, STAGE_SECONDS, Outcome, Stage, room
from ringside.bench.harness.tables import CannotRun, commit
from ringside.bench.ladder.solve import solve_run
from shared.errors import FatalError
from shared.files.run_file_names import SUMMARY_FILE
from shared.machine import facts

RUN_SECONDS = 90
"""Time limit of a small run."""
FIRST_SECONDS = 240
"""Time limit of the first run on a machine, which reads PyTorch from the disk and compiles kernels."""
SOLVE_SECONDS = 170.0
"""Time limit of a run that solves Pong."""
SOLVED = 18.0
"""Mean of the last 100 training episodes at which Pong counts as solved."""
LEAST_STAGE_SECONDS = 90.0
"""Least time for which a stage is started."""
KILLS = "killed_processes or alternate"
"""Tests of the stage `kills`; the stage `tests` runs the others."""
FEW_KERNELS = "quick,double,dueling,c51,qr-dqn"
MANY_KERNELS = "rainbow,iqn,btr"
ON_POLICY = "ppo,ppo-quick,a2c,a3c,impala,pqn,pqn-quick"
QUICK = {"as-it-comes": "", "more-lanes": "--lane-envs 1", "more-envs": "--envs 64"}
SETTINGS = {
    "as-it-comes": "",
    "replay-on-the-host": "--replay-on host",
    "fp32": "--precision fp32",
    "any-kernels": "--deterministic off",
}
SMALL_RUN = "--game breakout --envs 8 --lane-envs 2 --round-steps 480 --learning-starts 960 --total-steps 9_600 \
--replay-size 2_400 --epsilon-steps 2_000"
VARIANTS = {
    "as it comes": "--actors 2",
    "1 actor": "--actors 1",
    "4 actors": "--actors 4",
    "replay on the host": "--actors 2 --replay-on host",
    "one update in a launch": "--actors 2 --graph-updates 1",
    "no graphs": "--actors 2 --graph-updates 0",
}
"""Runs that must end with the same weights."""
FAMILY = {
    "everything": "--method iqn --iqn-samples 8 --iqn-policy-samples 8 --munchausen --dueling --noisy --n-step 3 \
--prioritized",
    "categorical": "--method c51 --double --prioritized --normalize all --optimizer radam --learning-rate-end 0 \
--anneal-steps 9_600",
    "residual": "--method qr-dqn --atoms 32 --network impala --pooling --spectral-norm --normalize last \
--train-every 40",
}
"""Combinations that together use every part of learner/networks/autograd.py, and a learning rate that graphs read."""
FAMILY_VARIANTS = ("as it comes", "4 actors", "replay on the host", "one update in a launch")


def first(stage: Stage) -> None:
    """Run a small game and its resume, then the doctor, whose own small run leaves no logs."""
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        run_dir = Path(scratch) / "run"
        words = f"--plain --device cuda {SMALL_RUN} --run-dir {run_dir}"
        if stage.launch(words, FIRST_SECONDS, run_dir):
            stage.launch(f"--plain --resume {run_dir} --total-steps 12_000", RUN_SECONDS, run_dir)
            stage.note({"summary": json.loads((run_dir / SUMMARY_FILE).read_text())})
    stage.launch(f"doctor --device cuda {stage.more}", FIRST_SECONDS)


def latency(stage: Stage) -> None:
    """Inference latency with a busy learner."""
    stage.bench("gpu --parts latency --repeats 1", "gpu-latency.json", LONG)


def learner(stage: Stage) -> None:
    """Update speed by setting."""
    stage.bench("gpu --parts learner --repeats 1", "gpu-learner.json", LONG)


def exact(stage: Stage) -> None:
    """Runs that must end with the same weights."""
    agree(stage, "", VARIANTS)


def tests(stage: Stage, which: str) -> None:
    """Tests of exactness on this device, including the slow ones; -v logs the name of each before it starts."""
    stage.run(["-m", "pytest", "-v", "-o", "timeout=300", "-k", which, "tests/exact/test_exact.py"], LONG)


def family(stage: Stage) -> None:
    """Combinations of methods and networks, each of which must end with the same weights in all variants."""
    for words in FAMILY.values():
        agree(stage, words, {name: VARIANTS[name] for name in FAMILY_VARIANTS})


def presets(stage: Stage, names: str) -> None:
    """Costs of the presets."""
    words = f"presets --presets {names} --end-to-end --repeats 1 --seconds 5"
    stage.bench(words, f"{stage.name}.json", LONG, f"-- --device cuda {room()} {stage.more}")


def agree(stage: Stage, words: str, variants: Mapping[str, str]) -> None:
    """Run a small game with `words` once for every variant, and note whether all ended with the same weights."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        for name, more in variants.items():
            run_dir = Path(scratch) / name.replace(" ", "-")
            command = f"--plain --device cuda {SMALL_RUN} {words} {stage.more} {more} --run-dir {run_dir}"
            if stage.launch(command, RUN_SECONDS if found else FIRST_SECONDS, run_dir):
                found[name] = json.loads((run_dir / SUMMARY_FILE).read_text())["weights_sha256"]
    stage.note(
        {"words": words, "weights": found, "good": len(set(found.values())) == 1 and len(found) == len(variants)}
    )


def limits(stage: Stage) -> None:
    """Limits of the parts that use a GPU."""
    stage.bench("limits --parts inference,update --repeats 1", "limits.json", LONG)


def throughput(stage: Stage, game: str) -> None:
    """Throughput of whole runs, with two numbers of envs."""
    for envs in (96, 192):
        words = f"throughput --game {game} --parts speed,evaluation --repeats 1 --seconds 20"
        more = f"-- --device cuda --envs {envs} {room()} {stage.more}"
        stage.bench(words, f"throughput-{game}-{envs}.json", LONG / 2, more)


def quick(stage: Stage) -> None:
    """Throughput of `quick`, to see if its lanes hide the inference latency of a GPU from the actors."""
    for name, words in QUICK.items():
        command = "throughput --game pong --parts speed --repeats 1 --seconds 8"
        more = f"-- --device cuda --preset quick {words} {stage.more}"
        stage.bench(command, f"throughput-quick-{name}.json", LONG / len(QUICK), more)


def settings(stage: Stage) -> None:
    """Effects of settings on a whole run, and the cost of evaluation with each."""
    for name, words in SETTINGS.items():
        command = "throughput --game breakout --parts evaluation --repeats 1 --seconds 10"
        more = f"-- --device cuda {room()} {stage.more} {words}"
        stage.bench(command, f"throughput-settings-{name}.json", LONG / 2, more)


def actor_side(stage: Stage) -> None:
    """Emulators and actors on the CPU cores of the machine."""
    stage.bench("limits --parts emulator,actors --games ten --repeats 1", "limits-actors.json", LONG)


def scaling(stage: Stage) -> None:
    """Throughput by number of actors."""
    stage.bench("scaling --repeats 1", "scaling.json", LONG, f"-- --device cuda {room()} {stage.more}")


def solve(stage: Stage, seed: int) -> None:
    """Measure the time from the command until Pong is solved."""
    words = f"--game pong --device cuda --preset quick --total-steps 5_000_000 --seed {seed} {stage.more}"
    learned = solve_run(words.split(), SOLVED, min(SOLVE_SECONDS, stage.left) / 60)
    good = learned.mean_return is not None and learned.mean_return >= SOLVED
    stage.note({"seed": seed, **asdict(learned), "good": good})


STAGES: dict[str, Callable[[Stage], None]] = {
    "first": first,
    "exact": exact,
    "breakout": partial(throughput, game="breakout"),
    "solve-1": partial(solve, seed=1),
    "quick": quick,
    "learner": learner,
    "latency": latency,
    "tests": partial(tests, which=f"not ({KILLS})"),
    "family": family,
    "presets": partial(presets, names=FEW_KERNELS),
    "kills": partial(tests, which=KILLS),
    "solve-2": partial(solve, seed=2),
    "solve-3": partial(solve, seed=3),
    "pong": partial(throughput, game="pong"),
    "scaling": scaling,
    "limits": limits,
    "large": partial(presets, names=MANY_KERNELS),
    "on-policy": partial(presets, names=ON_POLICY),
    "settings": settings,
    "machine": actor_side,
}


def prove(names: Sequence[str], outcome: Outcome, more: str, seconds: float) -> bool:
    """Run stages within `seconds` in total. Return True if every command was good.

    `more` holds options for every run.
    """
    end = time.monotonic() + seconds
    for name in names:
        left = min(STAGE_SECONDS, end - time.monotonic())
        stage = Stage(name, outcome, more, left)
        if left < LEAST_STAGE_SECONDS + END_SECONDS:
            stage.note({"good": False, "error": "Left out: the time of the proof was over."})
            continue
        try:
            STAGES[name](stage)
        except (
            OSError,
            ValueError,
            KeyError,
            FatalError,
            CannotRun,
        ) as error:  # a damaged result, a failed run
            stage.note({"good": False, "error": f"{type(error).__name__}: {error}"})
    return outcome.good


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all, in the order above")
    parser.add_argument("--out", type=Path, required=True, help="directory of all files; existing results are kept")
    parser.add_argument("--archive", type=Path, help="also pack all files into this .tar.gz after each command")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="SECONDS", help="time limit in total")
    parser.add_argument("--commit", default=commit(), help="commit of this code, if git cannot tell")
    options = parser.parse_args()
    for name in options.stages:
        if name not in STAGES:
            parser.error(f"there is no stage {name}; there are {', '.join(STAGES)}")
    out = options.out.resolve()
    if options.archive and out in options.archive.resolve().parents:
        parser.error(f"--archive {options.archive} lies in --out {options.out}, and would be packed into itself")
    if not facts.cuda_devices():
        parser.error("there is no GPU here that this installation can use (launch.py doctor says more)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # exits through `finally`, which ends started commands
    began = time.monotonic()
    about = {
        "commit": options.commit,
        "machine": facts.describe(),
        "gpus": [asdict(gpu) for gpu in facts.gpus()],
        "usable_memory": facts.usable_memory(),
    }
    outcome = Outcome(options.out, options.archive, about)
    left = options.within - (time.monotonic() - began)
    return 0 if prove(options.stages or list(STAGES), outcome, "", left) else 1


if __name__ == "__main__":
    sys.exit(main())
