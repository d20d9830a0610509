"""Starting real runs from tests: the command line in a process of its own, its files, its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent

SMALL = {
    "--game": "breakout",
    "--envs": "8",
    "--lane-envs": "2",
    "--actors": "2",
    "--round-steps": "480",
    "--learning-starts": "960",
    "--total-steps": "4_800",
    "--replay-size": "2_400",
    "--epsilon-steps": "2_000",
    "--network": "small",
    "--learner-threads": "1",
    "--inference-batch": "4",
}
"""Ten rounds of 60 ticks, eight of which learn; the window wraps; random Breakout ends an episode in some 200 ticks."""


def start(run_dir: Path, *words: str, **changes: str) -> subprocess.Popen[str]:
    """Start `launch.py --plain` in a session of its own; `changes` replace flags of `SMALL` (`total_steps="960"`)."""
    flags = SMALL | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    if "--resume" in words:
        flags = {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    if "--env" in flags:
        del flags["--game"]
    return start_command(*(word for flag in flags.items() for word in flag), "--run-dir", str(run_dir), *words)


def start_command(*words: str) -> subprocess.Popen[str]:
    """Start `launch.py --plain` with these words."""
    return subprocess.Popen(
        [sys.executable, "launch.py", "--plain", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "160"},
    )


def finish(process: subprocess.Popen[str], seconds: float = 100.0, code: int = 0) -> str:
    """Wait for the end, check the exit code, return what was printed."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"The run did not end within {seconds} s. It printed:\n{output}") from None
    assert process.returncode == code, f"exit code {process.returncode}, expected {code}:\n{output}"
    return output


def summary(run_dir: Path) -> dict[str, Any]:
    """`summary.json` of a run."""
    content: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    return content


def records(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """Whole records of one kind in `metrics.jsonl`, which may be being written."""
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def child(process: subprocess.Popen[str], role: str) -> psutil.Process | None:
    """The living child whose title is `ringside ROLE`."""
    for candidate in psutil.Process(process.pid).children(recursive=True):
        try:
            if candidate.cmdline()[:1] == [f"ringside {role}"] and candidate.status() != psutil.STATUS_ZOMBIE:
                return candidate
        except psutil.NoSuchProcess:
            continue
    return None


def survivors(process: subprocess.Popen[str]) -> list[str]:
    """Titles of processes of the run's session that still live."""
    left = []
    for candidate in psutil.process_iter(["pid"]):
        try:
            if os.getsid(candidate.pid) == process.pid and candidate.status() != psutil.STATUS_ZOMBIE:
                left.append(" ".join(candidate.cmdline()))
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return left
