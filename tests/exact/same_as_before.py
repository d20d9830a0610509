"""Proof that a change of the code changes no result: the same runs in two checkouts, compared bit for bit.

    python -m tests.exact.same_as_before [--only NAME ...]

The reference is one commit, below. Its results are computed once for each machine and kept in a cache directory; the
results of this checkout are computed at every call. Compared are the hash of the weights, the slots in the segments of
the replay, every episode and every evaluation. Runs that are killed or resumed here are compared with undisturbed ones
there. Exit code 1: something differs.
"""

import argparse
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import zstandard

from shared.text import words_of
from tests.support.runs import ROOT, evaluations, finish, flags_in, kill, records, start_words, summary, wait_until

REFERENCE = "a7a48c10"
"""The commit whose results must come again."""

LONGEST_SECONDS = 600.0
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

COMMON = flags_in("game=breakout actors=2 learner_members=1 seed=7")
REPLAY = COMMON | flags_in(
    "envs=8 lane_envs=2 inference_batch=4 round_steps=480 learning_starts=960 total_steps=2_400 replay_size=1_440 "
    "train_every=8 eval_every_steps=960 eval_episodes=2 eval_envs=2 eval_max_frames=2_000"
)
"""Five rounds of which three learn; the window wraps, and an evaluation runs beside training."""
ON_POLICY = COMMON | flags_in("envs=8 lane_envs=2 inference_batch=4 total_steps=2_400 snapshot_every_steps=480")
SHORT_ROUNDS = flags_in("round_steps=160 batch_size=40")
WORKERS = COMMON | flags_in("schedule=ordered workers=4 lane_envs=1 total_steps=2_400 snapshot_every_steps=480")
ALTERNATE = flags_in("schedule=alternate snapshot_every_steps=480")
EXPENSIVE = {"train_every": "40"}
EIGHT_UPDATES = flags_in("train_every=180 batch_size=32 eval_every_steps=0")
LONGER = {"total_steps": "4_320"}


@dataclass(frozen=True)
class Case:
    """One run: its preset and flags, and a disturbance in this checkout only."""

    preset: str
    flags: Mapping[str, str]
    here: Mapping[str, str]
    """Flags of this checkout's run only, which must not matter."""
    disturb: Callable[[subprocess.Popen[str], Path], object] = lambda process, run_dir: finish(process, LONGEST_SECONDS)

    def words(self, run_dir: Path, changes: Mapping[str, str]) -> list[str]:
        """The words of the command."""
        return words_of(**{**self.flags, **changes, "preset": self.preset, "run_dir": str(run_dir)})


def kill_the_learner(process: subprocess.Popen[str], run_dir: Path) -> None:
    """Kill the learner and an actor after four records, and let the run go on."""
    wait_until(process, lambda: len(records(run_dir, "round")) >= 4)
    kill(process, "learner")
    kill(process, "actor 0")
    finish(process, LONGEST_SECONDS)
    assert summary(run_dir)["restarts"] >= 1, "nothing was killed"


def stop_and_resume(process: subprocess.Popen[str], run_dir: Path) -> None:
    """Stop the run after two records, and resume it with another number of actors."""
    wait_until(process, lambda: len(records(run_dir, "round")) >= 2)
    process.send_signal(signal.SIGTERM)
    finish(process, LONGEST_SECONDS)
    assert not summary(run_dir)["finished"], "the run ended before it was stopped"
    finish(start_words("--plain", "--resume", str(run_dir), "--actors", "1"), LONGEST_SECONDS)


def _cases() -> dict[str, Case]:
    """Every preset, the other schedules of each family, other numbers of actors, kills and resumes."""
    replay = {name: {} for name in ("nature", "quick", "double", "dueling", "c51")}
    replay |= {name: EXPENSIVE for name in ("rainbow", "qr-dqn", "iqn")} | {"btr": EIGHT_UPDATES}
    cases = {name: Case(name, REPLAY | flags, {}) for name, flags in replay.items()}
    for name in ("nature", "quick", "rainbow"):
        cases[f"{name}-alternate"] = Case(name, REPLAY | replay[name] | ALTERNATE, {"actors": "3"})
    for name in ("ppo", "ppo-quick", "a2c", "a3c", "impala", "pqn", "pqn-quick"):
        cases[name] = Case(name, ON_POLICY | SHORT_ROUNDS, {})
    for name in ("ppo", "impala"):
        cases[f"{name}-concurrent"] = Case(name, ON_POLICY | SHORT_ROUNDS | {"schedule": "concurrent"}, {"actors": "1"})
    for name in ("a3c-async", "q-async", "nq-async"):
        cases[name] = Case(name, WORKERS, {"actors": "1"})
    cases["dqn-async"] = Case("dqn-async", WORKERS | {"learning_starts": "400"}, {"actors": "4"})
    for actors in ("1", "3"):
        cases[f"quick-{actors}-actors"] = Case("quick", REPLAY, {"actors": actors})
    for name, disturb in (("killed", kill_the_learner), ("resumed", stop_and_resume)):
        cases[f"quick-{name}"] = Case("quick", REPLAY | LONGER, {}, disturb)
        cases[f"ppo-{name}"] = Case("ppo", ON_POLICY | SHORT_ROUNDS | LONGER, {}, disturb)
    return cases


CASES = _cases()


def result_of(run_dir: Path) -> dict[str, Any]:
    """JSON values that must be equal: weights, updates, episodes, evaluations, segments."""
    last = summary(run_dir)
    segments = {path.name: _slots_of(path) for path in sorted((run_dir / "checkpoints").glob("segment-*.ring"))}
    return {
        **{name: last[name] for name in ("weights_sha256", "steps", "updates", "rounds", "finished")},
        "episodes": records(run_dir, "episode"),
        "evaluations": evaluations(run_dir),
        "segments": segments,
    }


def _slots_of(segment: Path) -> str:
    """SHA-256 of the slots. The header before them may change with the format."""
    data = segment.read_bytes()
    slots = zstandard.ZstdDecompressor().decompress(data[data.index(_ZSTD_MAGIC) :])
    return hashlib.sha256(slots).hexdigest()


def run_here(case: Case, run_dir: Path) -> dict[str, Any]:
    """Run a case in this checkout."""
    case.disturb(start_words("--plain", *case.words(run_dir, case.here)), run_dir)
    return result_of(run_dir)


def run_there(case: Case, checkout: Path, run_dir: Path) -> dict[str, Any]:
    """Run a case, undisturbed, in the reference's checkout."""
    words = [sys.executable, "launch.py", "--plain", *case.words(run_dir, {})]
    where = {"cwd": checkout, "env": os.environ | {"PYTHONPATH": str(checkout)}, "stdout": subprocess.DEVNULL}
    subprocess.run(words, **where, timeout=LONGEST_SECONDS, check=True)
    return result_of(run_dir)


def reference_results(cases: Mapping[str, Case], cache: Path) -> dict[str, dict[str, Any]]:
    """The reference's results; missing ones are computed and kept in the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    files = {name: cache / f"{_key_of(case)}.json" for name, case in cases.items()}
    missing = {path: cases[name] for name, path in files.items() if not path.exists()}
    if missing:
        with tempfile.TemporaryDirectory(prefix="ringside-reference-") as scratch:
            checkout = Path(scratch) / "checkout"
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, REFERENCE], cwd=ROOT, check=True)
            try:
                for path, case in missing.items():
                    path.write_text(json.dumps(run_there(case, checkout, Path(scratch) / path.stem)))
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)
    return {name: json.loads(path.read_text()) for name, path in files.items()}


def _key_of(case: Case) -> str:
    """The file name of a result in the cache: bits depend on the processor and on the libraries, too."""
    words = case.words(Path("run"), {})
    parts = [REFERENCE, *words, torch.__version__, platform.processor(), platform.machine(), str(os.cpu_count())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def differences(found: dict[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Names of the parts that differ.

    A run that was stopped also keeps the segments of its former checkpoint. Its episodes may name another round: that
    with which their record begins, and a stop divides a record.
    """
    kept = {name: slots for name, slots in found["segments"].items() if name in expected["segments"]}
    found = found | {"segments": kept, "episodes": _without_round(found["episodes"])}
    expected = {**expected, "episodes": _without_round(expected["episodes"])}
    return [name for name, value in expected.items() if found[name] != value]


def _without_round(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in each.items() if name != "round"} for each in episodes]


def main() -> int:
    """Compare; print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES), help="cases; default: all")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/ringside-reference", help="of results")
    options = parser.parse_args()
    cases = {name: CASES[name] for name in options.only}
    reference = reference_results(cases, options.cache)
    wrong = 0
    for name, case in cases.items():
        with tempfile.TemporaryDirectory(prefix="ringside-same-") as scratch:
            differs = differences(run_here(case, Path(scratch) / "run"), reference[name])
        wrong += bool(differs)
        print(f"{name:20} {'differs in ' + ', '.join(differs) if differs else 'the same'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
