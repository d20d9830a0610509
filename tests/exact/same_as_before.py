"""Proof that a change of the code changes no result: the same runs in two checkouts, compared bit for bit.

    python -m tests.exact.same_as_before [--only NAME ...]

The reference is one commit, below. Its results are computed once per machine and kept in a cache directory; those of
this checkout are computed at every call. Compared are the hash of the weights, the segments of the replay, every
episode and every evaluation. Runs that are killed or resumed here are compared with undisturbed ones there. Exit code
1: something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.support.runs import ROOT, finish, kill, records, start_command, summary, wait_until

REFERENCE = "dfed092"
"""The commit whose results must come again."""

LONGEST_SECONDS = 300.0
_PREFIX = struct.Struct("<8sIII")
"""Prefix of a segment: magic, format, length of the header, its checksum."""

FLAGS = {
    "--game": "breakout",
    "--envs": "8",
    "--lane-envs": "2",
    "--actors": "2",
    "--round-steps": "480",
    "--learning-starts": "960",
    "--total-steps": "2_400",
    "--replay-size": "1_440",
    "--train-every": "8",
    "--learner-threads": "1",
    "--inference-batch": "4",
    "--eval-every-steps": "960",
    "--eval-episodes": "2",
    "--eval-envs": "2",
    "--eval-max-frames": "4_000",
    "--mps": "off",
    "--seed": "7",
}
"""Five rounds of which three learn; the window wraps, and an evaluation runs beside training."""
ALTERNATE = {"--schedule": "alternate", "--snapshot-every-steps": "480"}
EXPENSIVE = {"--train-every": "40"}
EIGHT_UPDATES = {"--train-every": "180", "--batch-size": "32", "--eval-every-steps": "0"}
FOUR_MORE_ROUNDS = {"--total-steps": "4_320"}

Disturbance = Callable[["subprocess.Popen[str]", Path], None]


@dataclass(frozen=True)
class Case:
    """One run: its preset and flags, and what happens to it in this checkout alone."""

    preset: str
    changes: Mapping[str, str]
    here: Mapping[str, str]
    """Flags of this checkout's run alone, which must not matter."""
    disturb: Disturbance | None = None

    def words(self, run_dir: Path, changes: Mapping[str, str]) -> list[str]:
        """The words of the command."""
        flags = FLAGS | self.changes | changes | {"--preset": self.preset, "--run-dir": str(run_dir)}
        return [word for flag in flags.items() for word in flag]


def kill_the_learner(process: subprocess.Popen[str], run_dir: Path) -> None:
    """Kill the learner and an actor when four rounds are written down, and let the run go on."""
    wait_until(process, lambda: len(records(run_dir, "round")) >= 4)
    kill(process, "learner")
    kill(process, "actor 0")
    finish(process, LONGEST_SECONDS)
    assert summary(run_dir)["restarts"] >= 1, "nothing was killed"


def stop_and_resume(process: subprocess.Popen[str], run_dir: Path) -> None:
    """Stop the run when four rounds are written down, and resume it with another number of actors."""
    wait_until(process, lambda: len(records(run_dir, "round")) >= 4)
    process.send_signal(signal.SIGTERM)
    finish(process, LONGEST_SECONDS)
    assert not summary(run_dir)["finished"], "the run ended before it was stopped"
    finish(start_command("--resume", str(run_dir), "--actors", "1"), LONGEST_SECONDS)


CASES = {
    "nature": Case("nature", {}, {}),
    "quick": Case("quick", {}, {}),
    "double": Case("double", {}, {}),
    "dueling": Case("dueling", {}, {}),
    "c51": Case("c51", {}, {}),
    "rainbow": Case("rainbow", EXPENSIVE, {}),
    "qr-dqn": Case("qr-dqn", EXPENSIVE, {}),
    "iqn": Case("iqn", EXPENSIVE, {}),
    "btr": Case("btr", EIGHT_UPDATES, {}),
    "nature-alternate": Case("nature", ALTERNATE, {}),
    "quick-alternate": Case("quick", ALTERNATE, {}),
    "rainbow-alternate": Case("rainbow", ALTERNATE | EXPENSIVE, {}),
    "one-actor": Case("quick", {}, {"--actors": "1"}),
    "three-actors": Case("quick", {}, {"--actors": "3"}),
    "killed": Case("quick", FOUR_MORE_ROUNDS, {}, kill_the_learner),
    "resumed": Case("quick", FOUR_MORE_ROUNDS, {}, stop_and_resume),
}


def result_of(run_dir: Path) -> dict[str, Any]:
    """JSON values that must be equal: weights, updates, episodes, evaluations, segments."""
    last = summary(run_dir)
    segments = {path.name: _content_of(path) for path in sorted((run_dir / "checkpoints").glob("segment-*.ring"))}
    return {
        **{name: last[name] for name in ("weights_sha256", "steps", "updates", "rounds", "finished")},
        "episodes": records(run_dir, "episode"),
        "evaluations": [_without_seconds(record) for record in records(run_dir, "evaluation")],
        "segments": segments,
    }


def _content_of(segment: Path) -> str:
    """SHA-256 of the slots, as the header of a segment tells it. The header also has a digest of settings."""
    data = segment.read_bytes()
    _, _, length, _ = _PREFIX.unpack_from(data)
    header: dict[str, Any] = json.loads(data[_PREFIX.size : _PREFIX.size + length])
    return str(header["sha256"])


def _without_seconds(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if "second" not in name}


def run_here(case: Case, run_dir: Path) -> dict[str, Any]:
    """Run a case in this checkout."""
    process = start_command(*case.words(run_dir, case.here))
    if case.disturb is None:
        finish(process, LONGEST_SECONDS)
    else:
        case.disturb(process, run_dir)
    return result_of(run_dir)


def run_there(case: Case, checkout: Path, run_dir: Path) -> dict[str, Any]:
    """Run a case, undisturbed, in the reference's checkout."""
    subprocess.run(
        [sys.executable, "launch.py", "--plain", *case.words(run_dir, {})],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdout=subprocess.DEVNULL,
        timeout=LONGEST_SECONDS,
        check=True,
    )
    return result_of(run_dir)


def reference_results(cases: Mapping[str, Case], cache: Path) -> dict[str, dict[str, Any]]:
    """The reference's results; what the cache lacks is computed and kept."""
    cache.mkdir(parents=True, exist_ok=True)
    found, missing = {}, {}
    for name, case in cases.items():
        path = cache / f"{_key_of(case)}.json"
        if path.exists():
            found[name] = json.loads(path.read_text())
        else:
            missing[name] = (case, path)
    if not missing:
        return found
    with tempfile.TemporaryDirectory(prefix="ringside-reference-") as scratch:
        checkout = Path(scratch) / "checkout"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, REFERENCE], cwd=ROOT, check=True)
        try:
            for name, (case, path) in missing.items():
                if not path.exists():  # another case has the same run
                    path.write_text(json.dumps(run_there(case, checkout, Path(scratch) / name)))
                found[name] = json.loads(path.read_text())
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)
    return found


def _key_of(case: Case) -> str:
    """The name under which a result is kept: bits depend on the processor and on the libraries, too."""
    words = case.words(Path("run"), {})
    parts = [REFERENCE, *words, torch.__version__, platform.processor(), platform.machine(), str(os.cpu_count())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Names of the parts that differ. A resumed run keeps segments of its former checkpoint, too: common ones count."""
    common = found["segments"].keys() & expected["segments"].keys()
    assert common, "no segment is kept by both"
    differs = [name for name, value in expected.items() if name != "segments" and found[name] != value]
    return differs + [name for name in sorted(common) if found["segments"][name] != expected["segments"][name]]


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
