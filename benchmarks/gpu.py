"""Checks and measurements on a machine with a GPU, in independent stages, the most important first.

    python -m benchmarks gpu --within 1500          all stages, as many as fit into 25 minutes
    python -m benchmarks gpu --only latency,exact   these

Stages, for --only:

  first        doctor, a small run, and its resume to more steps; if these fail, the other stages will too
  exact        equal weights for different numbers of actors, replay places, graph lengths, with and without MPS
  breakout     throughput with 96 and 192 envs
  solve-1      Pong with the preset quick and seed 1, until the mean of the last 100 training episodes is 18
  quick        throughput on Pong with that preset, with its defaults, more lanes, and more envs
  learner      updates/s by precision, place of the replay buffer, determinism, updates in a launch
  latency      inference latency for all envs with a busy learner in another process, in turns and under MPS
  tests        the tests of exactness on this device, with those of resumes
  family       as exact, with other methods, noisy layers, priorities and residual networks
  presets      presets with --end-to-end, for presets with few kernels in an update
  kills        the tests in which processes are killed, and those of the schedule alternate
  solve-2      Pong with seed 2
  solve-3      seed 3
  pong         throughput on Pong
  scaling      scaling
  limits       limits, the parts that use the GPU
  large        as presets, for presets with many kernels in an update
  on-policy    as presets, for presets without a replay buffer
  settings     Breakout end to end, with and without evaluation, by setting: MPS, replay place, precision, kernels
  machine      limits, the emulator and the actors on ten games

Every stage writes STAGE.log with all output, the logs of failed runs, and JSON into --out. outcome.json lists every
command with its result and time, and is complete after each command; proof.png shows speeds and returns. A command that
exceeds its time writes its stacks, gets SIGTERM, then SIGKILL; the stage continues if it has time left. Runs under MPS
are clients of a daemon that the program starts; all others take turns on the GPU.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from benchmarks.harness import CannotRun, Case, Figure, Found, Options, Report, WrongResult, commit, workers
from benchmarks.measured_run import plan_of, read_logs, running
from benchmarks.network_parts import learner_alone, make_policy
from ringside.records.metrics import read_metrics
from shared.errors import ConfigError
from shared.files.atomic import write_atomic
from shared.files.result_files import make_result_directory
from shared.files.run_file_names import METRICS_FILE, SUMMARY_FILE
from shared.machine import facts
from shared.memory.plan import Plan
from shared.process.signals import TELL_STACKS
from shared.root import ROOT

STAGE_SECONDS, LEAST_STAGE_SECONDS = 560.0, 135.0
"""Time limit of a stage with all its commands, and the least time for which a stage is started."""
RUN_SECONDS, FIRST_SECONDS = 90.0, 240.0
"""Time limits of a small run, and of the first one, which reads PyTorch from the disk and compiles kernels."""
SOLVE_SECONDS, SOLVED = 240.0, 18.0
"""Time limit of a run that solves Pong, and the mean of the last 100 training episodes that counts as solved."""
END_SECONDS, STACKS_SECONDS = 45.0, 1.0
"""Time between SIGTERM and SIGKILL of a command, part of the time of its stage; time of a late one for its stacks."""
LATENCY_SECONDS = 3.0
OUTPUT = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
"""Environment in which a crash prints its stacks and a kill loses no output."""
CUDA = "--device cuda"
"""Flag of all runs."""
MPS = "under MPS"
LAUNCH = "launch.py"
SMALL_RUN = "--game breakout --envs 8 --lane-envs 2 --actors 2 --round-steps 480 --learning-starts 960 \
--total-steps 9_600 --replay-size 2_400 --epsilon-steps 2_000"
FLAGS = {
    "as it comes": "",
    MPS: "",
    "1 actor": "--actors 1",
    "4 actors": "--actors 4",
    "replay on the host": "--replay-on host",
    "one update in a launch": "--graph-updates 1",
    "four updates in a launch": "--graph-updates 4",
    "no graphs": "--graph-updates 0",
    "any kernels": "--deterministic off",
    "fp32": "--precision fp32",
    "bf16": "--precision bf16",
    "more lanes": "--lane-envs 1",
    "more envs": "--envs 64",
}
"""What is compared, with the flags of launch.py."""
EXACT = ("as it comes", MPS, "1 actor", "4 actors", "replay on the host", "one update in a launch", "no graphs")
"""Runs that must end with the same weights."""
EXACT_FAMILY = ("as it comes", "4 actors", "replay on the host", "one update in a launch")
FAMILY = (
    "--method iqn --iqn-samples 8 --iqn-policy-samples 8 --munchausen --dueling --noisy --n-step 3 --prioritized",
    "--method c51 --double --prioritized --normalize all --optimizer radam --learning-rate-end 0 --anneal-steps 9_600",
    "--method qr-dqn --atoms 32 --network impala --pooling --spectral-norm --normalize last --train-every 40",
)
"""Combinations that together use every part of learner/networks/modules.py, and a learning rate that graphs read."""
LEARNERS = (
    *("as it comes", "replay on the host", "one update in a launch", "four updates in a launch", "no graphs"),
    *("any kernels", "fp32", "bf16"),
)
KILLS = "killed_processes or alternate"
"""Tests of the stage `kills`; the stage `tests` runs the others."""
SETTINGS = ("as it comes", MPS, "replay on the host", "fp32", "any kernels")
COSTS = "presets --end-to-end --seconds 5 --only"
BENCHES: dict[str, dict[str, str]] = {
    **{
        game: {f"{envs} envs": f"throughput --game {game} --seconds 20 -- --envs {envs}" for envs in (96, 192)}
        for game in ("breakout", "pong")
    },
    "quick": {
        name: f"throughput --game pong --only speed --seconds 8 -- --preset quick {FLAGS[name]}"
        for name in ("as it comes", "more lanes", "more envs")
    },
    "learner": {name: f"throughput --only learner --seconds 3 -- {FLAGS[name]}" for name in LEARNERS},
    "presets": {"all": f"{COSTS} quick,double,dueling,c51,qr-dqn"},
    "large": {"all": f"{COSTS} rainbow,iqn,btr,der,der-dopamine,drq"},
    "on-policy": {"all": f"{COSTS} ppo,ppo-quick,a2c,a3c,impala,pqn,pqn-quick"},
    "scaling": {"all": "scaling"},
    "limits": {"all": "limits --only inference,update"},
    "settings": {name: f"throughput --only evaluation --seconds 10 -- {FLAGS[name]}" for name in SETTINGS},
    "machine": {"all": "limits --only emulator,actors --game ten"},
}
"""Benchmarks of stages, by the name of their file."""
DEFAULTS = {"only": "all", "repeats": 1}
OPTIONS = {
    "--out": {"type": Path, "default": ROOT / "benchmarks" / "results" / "gpu", "help": "directory of all files"},
    "--within": {"type": float, "default": math.inf, "metavar": "SECONDS", "help": "time limit in total"},
}


def run(options: Options, report: Report) -> None:
    """Run the stages within the time; a row has the seconds of a stage. Raises `ConfigError` without a GPU."""
    if not facts.cuda_devices():
        raise ConfigError("There is no GPU here that this installation can use (launch.py doctor says more).")
    proof = Proof(options.out, options.within, options.repeats)
    report.run([Case(name, partial(run_stage, proof, name)) for name in options.names], 1)


def run_stage(proof: Proof, name: str, found: Found) -> list[Figure]:
    """Run a stage; return its time. Raises `CannotRun` without time, and `WrongResult` unless all was good."""
    began = time.monotonic()
    proof.begin(name)
    if proof.left + END_SECONDS < LEAST_STAGE_SECONDS:
        raise CannotRun("Left out: the time of the proof was over.")
    try:
        STAGES[name](proof)
    except (OSError, ValueError, KeyError, CannotRun) as error:  # a damaged result, a failed run
        proof.note({"good": False, "error": f"{type(error).__name__}: {error}"})
    draw(proof.out)
    facts_of_stage = [fact for fact in proof.done if fact["stage"] == name]
    if bad := [fact for fact in facts_of_stage if not fact.get("good", True)]:
        raise WrongResult(f"{len(bad)} of {len(facts_of_stage)} were not good; outcome.json has them.")
    return [Figure(f"stage {name}", time.monotonic() - began, "s")]


class Proof:
    """Results of all commands, written to a file after each, and the time of the present stage.

    Attributes:
        out: directory of all files.
        stage: name of the present stage.
        done: results, those included that the directory holds already.
    """

    def __init__(self, out: Path, within: float = math.inf, repeats: int = 1) -> None:
        make_result_directory("--out", out)
        self.out, self._repeats, self._end = out.resolve(), repeats, time.monotonic() + within
        self._path = self.out / "outcome.json"
        self.done: list[dict[str, Any]] = json.loads(self._path.read_text())["done"] if self._path.exists() else []
        self._about = {"commit": commit(), "machine": facts.describe()}

    def begin(self, stage: str) -> None:
        """Begin a stage; former results of it are dropped."""
        self.stage, self._deadline = stage, min(time.monotonic() + STAGE_SECONDS, self._end) - END_SECONDS
        self.done = [fact for fact in self.done if fact["stage"] != stage]

    @property
    def left(self) -> float:
        """Seconds until the last command of the stage gets SIGTERM."""
        return self._deadline - time.monotonic()

    def note(self, fact: Mapping[str, Any]) -> None:
        """Add a result of this stage, and write the file."""
        self.done.append({"stage": self.stage, **fact})
        print(json.dumps(self.done[-1]), flush=True)
        write_atomic(self._path, json.dumps({**self._about, "done": self.done}, indent=1).encode() + b"\n")

    def bench(self, name: str, words: str, seconds: float) -> None:
        """Run a benchmark, under MPS if its name says so, and note what is missing or wrong."""
        file = self.out / f"{self.stage}-{name.replace(' ', '-')}.json"
        file.unlink(missing_ok=True)
        own, _, flags = words.partition(" -- ")
        written = f"--repeats {self._repeats} --json {shlex.quote(str(file))}"
        self.run(f"-m benchmarks {own} {written} -- {CUDA} {flags}", seconds, mps=name == MPS)
        report = json.loads(file.read_text()) if file.exists() else {}
        failed = {kind: report[kind] for kind in ("missing", "wrong") if report.get(kind)}
        if failed:
            self.note({"file": file.name, **failed, "good": False})

    def launch(self, words: str, seconds: float, run_dir: Path, *, mps: bool = False) -> dict[str, Any] | None:
        """Run `launch.py` with these flags; return the summary of the run, or None if it failed or was late."""
        if self.run(f"{LAUNCH} --plain {words} --run-dir {run_dir}", seconds, run_dir, mps=mps):
            summary: dict[str, Any] = json.loads((run_dir / SUMMARY_FILE).read_text())
            return summary
        return None

    def run(self, words: str, seconds: float, run_dir: Path | None = None, *, mps: bool = False) -> bool:
        """Run a Python program; stop it after `seconds`, or at the end of the stage.

        A late program first writes the stacks of its threads, unless it is pytest. If a run fails, the logs in its
        `run_dir` are added to the log of the stage. The program gets SIGTERM if this process dies.

        Return True if it ended by itself with code 0.
        """
        began, log, late = time.monotonic(), self.out / f"{self.stage}.log", False
        with log.open("a") as file:
            file.write(f"\n$ python {words}\n")
        try:
            with (
                sharing(mps=mps) as environment,
                running([sys.executable, *shlex.split(words)], log, END_SECONDS, OUTPUT | environment) as process,
            ):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, min(seconds, self.left)))
                late = process.poll() is None
                if late and words.startswith(LAUNCH):
                    os.killpg(process.pid, TELL_STACKS)
                    time.sleep(STACKS_SECONDS)
        except CannotRun as error:  # there is no MPS
            self.note({"command": words, "error": str(error)})
            return False
        good = process.returncode == 0 and not late
        if not good and run_dir is not None:
            with log.open("a") as file:
                file.write(read_logs(run_dir))
        took = round(time.monotonic() - began, 1)
        self.note({"command": words, "code": process.returncode, "seconds": took, "late": late, "good": good})
        return good


@contextmanager
def sharing(*, mps: bool) -> Iterator[dict[str, str]]:
    """The environment of processes that share the GPU: in turns, or as clients of a daemon of NVIDIA's MPS.

    Raises:
        CannotRun: there is no daemon.
    """
    if not mps:
        yield {}
        return
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/nvidia/bin"
    control = shutil.which("nvidia-cuda-mps-control", path=path)
    if control is None:
        raise CannotRun("There is no nvidia-cuda-mps-control on the PATH or in /usr/local/nvidia/bin.")
    with tempfile.TemporaryDirectory(prefix="ringside-mps-") as folder:
        clients = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for directory in clients.values():
            Path(directory).mkdir()
        with running([control, "-f"], Path(folder) / "output", END_SECONDS, {**clients, "PATH": path}) as daemon:
            time.sleep(STACKS_SECONDS)  # until it listens
            if daemon.poll() is not None:
                raise CannotRun(f"{control} ended with code {daemon.returncode}.")
            yield clients


# --- stages


def first(proof: Proof) -> None:
    """Run a small game and its resume, then the doctor, whose own small run leaves no logs."""
    with tempfile.TemporaryDirectory(prefix="ringside-gpu-") as scratch:
        run_dir = Path(scratch) / "run"
        if proof.launch(f"{CUDA} {SMALL_RUN}", FIRST_SECONDS, run_dir):
            resume = f"launch.py --plain --resume {run_dir} --total-steps 12_000"
            if proof.run(resume, RUN_SECONDS, run_dir):
                proof.note({"summary": json.loads((run_dir / SUMMARY_FILE).read_text())})
    proof.run(f"launch.py doctor {CUDA}", FIRST_SECONDS)


def agree(proof: Proof, words: str, variants: Sequence[str]) -> None:
    """Run a small game with `words` once for every variant, and note whether all ended with the same weights."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ringside-gpu-") as scratch:
        for name in variants:
            seconds, run_dir = RUN_SECONDS if found else FIRST_SECONDS, Path(scratch) / name.replace(" ", "-")
            words_of_run = f"{CUDA} {SMALL_RUN} {words} {FLAGS[name]}"
            if summary := proof.launch(words_of_run, seconds, run_dir, mps=name == MPS):
                found[name] = summary["weights_sha256"]
    missing = {*variants} - {*found, MPS}
    proof.note({"words": words, "weights": found, "good": len(set(found.values())) == 1 and not missing})


def family(proof: Proof) -> None:
    """Combinations of methods and networks, each of which must end with the same weights in all variants."""
    for words in FAMILY:
        agree(proof, words, EXACT_FAMILY)


def tests(proof: Proof, which: str) -> None:
    """Tests of exactness on this device, including the slow ones; -v logs the name of each before it starts."""
    proof.run(f"-m pytest -v -o timeout=300 -k {shlex.quote(which)} tests/exact/test_exact.py", proof.left)


def benches(proof: Proof) -> None:
    """The benchmarks of a stage, each of which may take its part of the time that is left."""
    asked = BENCHES[proof.stage]
    for done, (name, words) in enumerate(asked.items()):
        proof.bench(name, words, proof.left / (len(asked) - done))


def solve(proof: Proof, seed: int) -> None:
    """Measure the time until Pong is solved, and keep the records of the run."""
    words = f"{CUDA} --game pong --preset quick --total-steps 5_000_000 --stop-at {SOLVED} --seed {seed}"
    with tempfile.TemporaryDirectory(prefix="ringside-gpu-") as scratch:
        run_dir = Path(scratch) / "run"
        proof.launch(words, SOLVE_SECONDS, run_dir)
        shutil.copy(run_dir / METRICS_FILE, proof.out / f"solve-{seed}.jsonl")
    records = returns(proof.out / f"solve-{seed}.jsonl")
    best = max(records, key=lambda record: record["mean_return_100"])  # a round that began before the stop may be worse
    proof.note({"seed": seed, **best, "good": best["mean_return_100"] >= SOLVED})


def returns(path: Path) -> list[dict[str, float]]:
    """Seconds, steps and mean return of the records that know the return of a hundred episodes."""
    names = ("seconds", "steps", "mean_return_100")
    rounds = [record for record in read_metrics(path) if record["kind"] == "round" and record["episodes"] >= 100]
    return [{name: record[name] for name in names} for record in rounds if "seconds" in record]


def latency(proof: Proof) -> None:
    """Inference latency alone, and with a learner that updates without pause, by updates in a launch."""
    words = "--game breakout --actors 1 --replay-size 100_000"
    plan = plan_of([*CUDA.split(), *words.split()])
    proof.note({"with": "nobody", **answers(plan, {}, alone=True)})
    for how in ("in turns", MPS):
        try:
            with sharing(mps=how == MPS) as environment:
                for length in (1, 2, 4, 8):
                    learning = Plan(plan.config.with_settings(graph_updates=length), plan.actions)
                    proof.note({"with": f"a learner {how}", "in a launch": length, **answers(learning, environment)})
        except CannotRun as error:
            if how != MPS:
                raise
            proof.note({"with": f"a learner {how}", "error": str(error)})


def answers(plan: Plan, environment: Mapping[str, str], *, alone: bool = False) -> dict[str, float]:
    """Median and 99th percentile of the latency, and the updates/s of the learner unless inference is `alone`."""
    with workers([(inference_times, plan), *([] if alone else [(learner_alone, plan)])], environment) as measure:
        (median, late), *updates = measure(LATENCY_SECONDS)
    return {"median_us": median, "late_us": late, "updates_per_second": sum(updates)}


def inference_times(plan: Plan) -> Callable[[float], tuple[float, float]]:
    """A worker's measurement: median and 99th percentile of the microseconds of an answer for all envs."""
    answer = make_policy(plan, plan.config.play.envs)

    def measure(seconds: float) -> tuple[float, float]:
        times, end = list[int](), time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter_ns()
            answer()
            times.append(time.perf_counter_ns() - began)
        median, late = np.percentile(times, [50, 99]) / 1e3
        return float(median), float(late)

    return measure


def draw(out: Path) -> None:
    """Draw the speeds of all benchmarks with a whole run, and the returns of the runs that solve Pong."""
    picture = Picture(figsize=(10, 3.8), layout="constrained")
    left, right = picture.subplots(1, 2)
    for path in sorted(out.glob("*-*.json")):
        rows = {row["name"]: row["median"] for row in json.loads(path.read_text())["rows"]}
        if "end to end" in rows:
            left.barh(path.stem, rows["end to end"])
    left.set_xlabel("steps/s")
    for path in sorted(out.glob("solve-*.jsonl")):
        records = returns(path)
        minutes, means = ([record[name] for record in records] for name in ("seconds", "mean_return_100"))
        right.plot([each / 60 for each in minutes], means, label=path.stem)
        right.legend()
    right.set_xlabel("minutes")
    right.set_ylabel("mean return of 100 episodes")
    picture.savefig(out / "proof.png", dpi=110)


STAGES: dict[str, Callable[[Proof], None]] = {
    "first": first,
    "exact": partial(agree, words="", variants=EXACT),
    "breakout": benches,
    "solve-1": partial(solve, seed=1),
    "quick": benches,
    "learner": benches,
    "latency": latency,
    "tests": partial(tests, which=f"not ({KILLS})"),
    "family": family,
    "presets": benches,
    "kills": partial(tests, which=KILLS),
    "solve-2": partial(solve, seed=2),
    "solve-3": partial(solve, seed=3),
    **dict.fromkeys(("pong", "scaling", "limits", "large", "on-policy", "settings", "machine"), benches),
}
NAMES = tuple(STAGES)
