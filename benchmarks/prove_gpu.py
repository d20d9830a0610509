"""Everything that is to be shown on a machine with a GPU, in stages that fail alone, what matters most first.

    python -m benchmarks.prove_gpu --out results --within 1500          all stages, as many as fit into 25 minutes
    python -m benchmarks.prove_gpu --out results latency exact          these

  first        doctor, a small run, the same stopped and resumed; nothing else is worth a try where these fail
  exact        the same weights for other numbers of actors, replay on the host, other launches, with and without MPS
  breakout     bench throughput with 96 and 192 envs
  solve-1      Pong with the preset quick and seed 1, until the mean of the last 100 training episodes is 18
  quick        bench throughput on Pong with that preset, as it comes, with more lanes and with more envs
  learner      bench gpu: updates a second, by precision, place of the replay, determinism, length of a launch
  latency      bench gpu: how long inference takes beside a busy learner, in turns and under MPS
  tests        the tests of exactness, resumes among them, on this device
  family       as exact, with methods, noise, priorities and residual networks
  presets      bench presets, end to end, too: those whose update is made of few kernels
  kills        the tests in which processes are killed, and those of the schedule alternate
  solve-2      Pong with seed 2
  solve-3      seed 3
  pong         bench throughput on Pong
  scaling      bench scaling
  limits       bench limits, what a GPU has to do with
  large        bench presets, those whose update is made of many kernels
  settings     Breakout end to end, with and without evaluation, by setting: MPS, place of replay, precision, kernels
  ways         Pong again, seed 1, with other settings than the preset's: perhaps it is solved in less time
  returns      Breakout with the published numbers for some minutes: return against wall-clock
  machine      bench limits, the emulator and the actors on ten games
  curves       four games with nature, rainbow, iqn and btr, beside published curves; say it again to go on with all

Every stage leaves STAGE.log with all that was said, the logs of runs that failed, and JSON or pictures; outcome.json
says which commands did what in which time, and is whole after each; --archive keeps all of it in one file besides.
The runs of stage curves lie in a directory of their own, where another call with the same --out finds them. A
command that is late writes its stacks, is asked to stop, then killed, and the next one goes on, while its stage has
time. MPS is tried once, first: where it cannot be had, runs are told so, and do not try.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import commit
from benchmarks.stage import END_SECONDS, STAGE_SECONDS, Outcome, Stage
from shared import machine, mps
from shared.config import METRICS_FILE, SUMMARY_FILE
from shared.errors import Unmendable
from shared.manifest import CHECKPOINTS, manifests_in
from watch.metrics import MetricsError, read_metrics

LONG = 500.0
"""Of a command that has its stage for itself."""
RUN_SECONDS = 90
"""Of a small run."""
FIRST_SECONDS = 240
"""Of one that is the first on its machine: PyTorch is read from the disk, and kernels are compiled."""
SOLVED = 18.0
"""Mean of the last 100 training episodes of Pong."""
SOLVE_SECONDS = 170.0
LEAST_STAGE_SECONDS = 90.0
"""A stage that has less is left out."""
ROOMY_BYTES = 16_000_000_000
"""Of free memory: a default run needs 10 GB of it."""
SMALLER_REPLAY = "--replay-size 300_000"
"""What large runs are told where there is less."""
RETURNS_SECONDS = 420.0
"""Of training on Breakout, after which the run is stopped."""
CURVES_SECONDS = 100.0
"""A run of stage `curves` has at least these of a call: to start takes some of them."""
CURVES_GAMES = ("pong", "breakout", "space_invaders", "qbert")
CURVES_PRESETS = ("nature", "rainbow", "iqn", "btr")
"""Both in the order in which stage `curves` begins its runs: all presets on the first game, then the next."""
CURVES_WORDS = "--protocol machado"
"""Sticky actions, as the agents of `shared/published_curves.json` had."""
WAYS = {
    "larger-batches": "--batch-size 64 --train-every 8 --learning-rate 2e-4",
    "five-steps": "--n-step 5",
    "quantiles": "--method qr-dqn --atoms 32",
}
"""What `quick` is told besides: fewer updates, faster returns, another loss."""
KILLS = "killed_processes or alternate"
"""Tests of the stage of that name; the others are of `tests`."""
FEW_KERNELS = "quick,double,dueling,c51,qr-dqn"
MANY_KERNELS = "rainbow,iqn,btr"
QUICK = {"as-it-comes": "", "more-lanes": "--lane-envs 1", "more-envs": "--envs 64"}
SETTINGS = {
    "as-it-comes": "",
    "without-mps": "--mps off",
    "replay-on-the-host": "--replay-on host",
    "fp32": "--precision fp32",
    "any-kernels": "--deterministic off",
}
SMALL_RUN = "--game breakout --envs 8 --lane-envs 2 --round-steps 480 --learning-starts 960 --total-steps 9_600 \
--replay-size 2_400 --epsilon-steps 2_000"
VARIANTS = {
    "without MPS": "--actors 2 --mps off",
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
--prioritised",
    "categorical": "--method c51 --double --prioritised",
    "residual": "--method qr-dqn --atoms 32 --network impala --pooling --spectral-norm --layer-norm --train-every 40",
}
"""Combinations that between them use every part of learner/modular.py."""
FAMILY_VARIANTS = ("as it comes", "4 actors", "replay on the host", "one update in a launch")


def first(stage: Stage) -> None:
    """Whether anything works at all; the doctor comes second, whose small run leaves no logs."""
    with tempfile.TemporaryDirectory(prefix="ringside-prove-") as scratch:
        run_dir = Path(scratch) / "run"
        words = f"--plain --device cuda {SMALL_RUN} --mps off --run-dir {run_dir}"
        if stage.launch(words, FIRST_SECONDS, run_dir):
            stage.launch(f"--plain --resume {run_dir} --total-steps 12_000", RUN_SECONDS, run_dir)
            stage.note({"summary": json.loads((run_dir / SUMMARY_FILE).read_text())})
    stage.launch(f"doctor --device cuda {stage.more}", FIRST_SECONDS)


def latency(stage: Stage) -> None:
    """Inference beside a busy learner."""
    stage.bench("gpu --parts latency --repeats 1", "gpu-latency.json", LONG)


def learner(stage: Stage) -> None:
    """Updates by setting."""
    stage.bench("gpu --parts learner --repeats 1", "gpu-learner.json", LONG)


def exact(stage: Stage) -> None:
    """Runs that must agree."""
    agree(stage, "", VARIANTS)


def tests(stage: Stage, which: str) -> None:
    """The tests of exactness on this device, the long ones, too; each names itself before it begins."""
    stage.run(["-m", "pytest", "-v", "-o", "timeout=300", "-k", which, "tests/exact/test_exact.py"], LONG)


def family(stage: Stage) -> None:
    """The same for combinations of the family."""
    for words in FAMILY.values():
        agree(stage, words, {name: VARIANTS[name] for name in FAMILY_VARIANTS})


def presets(stage: Stage, names: str) -> None:
    """What presets cost."""
    words = f"presets --presets {names} --end-to-end --repeats 1 --seconds 5"
    stage.bench(words, f"{stage.name}.json", LONG, f"-- --device cuda {_room()} {stage.more}")


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
    """What the parts can do that a GPU has to do with."""
    stage.bench("limits --parts inference,update --repeats 1", "limits.json", LONG)


def throughput(stage: Stage, game: str) -> None:
    """End to end."""
    for envs in (96, 192):
        words = f"throughput --game {game} --parts speed,evaluation --repeats 1 --seconds 20"
        more = f"-- --device cuda --envs {envs} {_room()} {stage.more}"
        stage.bench(words, f"throughput-{game}-{envs}.json", LONG / 2, more)


def quick(stage: Stage) -> None:
    """Whether the preset has lanes enough to hide a GPU's answers from its actors."""
    for name, words in QUICK.items():
        told = "throughput --game pong --parts speed --repeats 1 --seconds 8"
        more = f"-- --device cuda --preset quick {words} {stage.more}"
        stage.bench(told, f"throughput-quick-{name}.json", LONG / len(QUICK), more)


def settings(stage: Stage) -> None:
    """What settings are worth in a whole run, and what evaluation costs with each."""
    for name, words in SETTINGS.items():
        told = "throughput --game breakout --parts evaluation --repeats 1 --seconds 10"
        more = f"-- --device cuda {_room()} {stage.more} {words}"
        stage.bench(told, f"throughput-settings-{name}.json", LONG / 2, more)


def actor_side(stage: Stage) -> None:
    """What emulators and actors do on the cores beside a GPU."""
    stage.bench("limits --parts emulator,actors --games ten --repeats 1", "limits-actors.json", LONG)


def scaling(stage: Stage) -> None:
    """More actors."""
    stage.bench("scaling --repeats 1", "scaling.json", LONG, f"-- --device cuda {_room()} {stage.more}")


def _room() -> str:
    """Words with which a run of default size fits into the memory."""
    return "" if machine.usable_memory() >= ROOMY_BYTES else SMALLER_REPLAY


def ways(stage: Stage) -> None:
    """Which settings solve Pong first."""
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
    words = f"--game breakout --preset nature --eval-every-steps 1_000_000 {_room()}"
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
    words = f"--game {game} --preset {preset} {CURVES_WORDS} {_room()}"
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

    A run that is there, and has a checkpoint, is gone on with; `words` are those of one that begins.
    """
    checkpoints = run_dir / CHECKPOINTS
    begun = checkpoints.is_dir() and bool(manifests_in(checkpoints))
    if run_dir.exists() and not begun:
        shutil.rmtree(run_dir)  # it was killed before anything was saved, and a new run needs the place
    flags = f"{'' if begun else f'--device cuda {words}'} {stage.more}".split()
    told = ["launch.py", "--plain", *flags, "--resume" if begun else "--run-dir", str(run_dir)]
    stage.run(told, seconds, partial(look, run_dir), run_dir)
    if (run_dir / METRICS_FILE).exists():
        shutil.copyfile(run_dir / METRICS_FILE, stage.out / f"{run_dir.name}-{METRICS_FILE}")


def _draw(stage: Stage, name: str, *words: str) -> None:
    """NAME.png: a picture of the runs that `words` tell `benchmarks.curve`."""
    stage.run(["-m", "benchmarks.curve", *words, "--out", str(stage.out / f"{name}.png")], 60)


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
    "settings": settings,
    "ways": ways,
    "returns": returns,
    "machine": actor_side,
    "curves": curves,
}


def prove(names: Sequence[str], outcome: Outcome, more: str, seconds: float) -> bool:
    """Run stages within so many seconds in all; returns whether all that they did was good.

    `more` is what every run is told.
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
        except (OSError, ValueError, KeyError, Unmendable) as error:  # a file that a command should have left, whole
            stage.note({"good": False, "error": f"{type(error).__name__}: {error}"})
    return outcome.good


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all, in the order above")
    parser.add_argument("--out", type=Path, required=True, help="directory of all files; what it holds is gone on with")
    parser.add_argument(
        "--archive", type=Path, help="keep all of them in this .tar.gz, too, written after each command"
    )
    parser.add_argument(
        "--runs", type=Path, help="directory of the runs of stage curves, outside of --out; default: OUT-runs"
    )
    parser.add_argument("--within", type=float, default=float("inf"), metavar="SECONDS", help="end in time")
    parser.add_argument("--commit", default=commit(), help="of this code, where it cannot be asked for")
    options = parser.parse_args()
    for name in options.stages:
        if name not in STAGES:
            parser.error(f"there is no stage {name}; there are {', '.join(STAGES)}")
    out = options.out.resolve()
    if options.archive and out in options.archive.resolve().parents:
        parser.error(f"--archive {options.archive} lies in --out {options.out}, and would be packed into itself")
    if options.runs and out in (options.runs.resolve(), *options.runs.resolve().parents):
        parser.error(f"--runs {options.runs} lies in --out {options.out}, and its checkpoints would be packed")
    if not machine.cuda_devices():
        parser.error("there is no GPU here that this installation can use (launch.py doctor says more)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and what was started ends, too
    began, refused = time.monotonic(), list[str]()
    about = {
        "commit": options.commit,
        "machine": machine.describe(),
        "gpus": [asdict(gpu) for gpu in machine.gpus()],
        "usable_memory": machine.usable_memory(),
    }
    outcome = Outcome(options.out, options.archive, about, options.runs)
    with mps.service("auto", "cuda:0", refused.append):
        pass
    outcome.note({"stage": "mps", "refused": " ".join(refused) or None, "seconds": round(time.monotonic() - began, 1)})
    left = options.within - (time.monotonic() - began)
    return 0 if prove(options.stages or list(STAGES), outcome, "--mps off" if refused else "", left) else 1


if __name__ == "__main__":
    sys.exit(main())
