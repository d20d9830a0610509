"""The command on a mutated run: its words, and what it may print."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from threading import Timer

from shared.root import ROOT
from tests.fuzz.mutate import Case, mutate
from tests.fuzz.readers import ENV, MORE_STEPS, RECORD_PLACES, RESUME_PLACES
from tests.fuzz.worker import flaw_of
from tests.fuzz.workspace import Workspace, signature

SECONDS = 200.0
"""Seconds that one command may take; generous, for a machine under load."""
_SERVED = re.compile(r"http://127\.0\.0\.1:\d+/\S+/")


@dataclass(frozen=True)
class Command:
    """A task of the command, on a run."""

    name: str
    words: str
    """With names of the workspace's directories, and of the env, in braces."""
    places: dict[str, int]
    cases: int
    whole: str = "catch"
    serves: bool = False
    """True if it runs until it is interrupted."""


_LOAD = "--load {run} --env {env} --device cpu"
_RESUME = "--resume {run} --env {env} --plain"
COMMANDS = (
    Command("eval", f"eval {_LOAD} --episodes 1", RESUME_PLACES, 70),
    Command("record", f"play {_LOAD} --episodes 2 --video {{work}}/videos.mp4", RESUME_PLACES, 15),
    Command("play", f"play {_LOAD} --episodes 1 --video {{work}}/video.gif", RESUME_PLACES, 10),
    Command("report", "report {run} --out {work}/report", RECORD_PLACES, 60),
    Command("watch", "watch {run}", RECORD_PLACES | {"live.json": 4}, 50, serves=True),
    Command("watch newest", "watch", RECORD_PLACES, 10, serves=True),
    # All that is read before a start; the run has played more than it is told to.
    Command("resume", f"{_RESUME} --total-steps 1_440", RESUME_PLACES, 60),
    Command(
        "resume and play",
        f"{_RESUME} --total-steps {MORE_STEPS}",
        RESUME_PLACES | {"logs": 1, "metrics.jsonl": 2, "*": 2},
        10,
    ),
    # Up to the name, which the zoo does not take: nothing is added to it.
    Command(
        "zoo",
        "zoo --add {run} --env {env} --name 'No name'",
        {"config.json": 3, "summary.json": 3, **RESUME_PLACES},
        20,
    ),
)


def try_command(command: Command, number: int, workspace: Workspace) -> tuple[str, str, list[str]]:
    """Run a command on a mutated run; returns how that ended, words for it, and what had been done to the run."""
    rng = random.Random(f"command {command.name}/{number}")
    workspace.renew(command.whole)
    case = Case(rng, workspace.run, workspace.outside / "run", workspace.outside)
    mutate(case, command.places)
    beside = signature(workspace.outside)
    code, printed, said = _run(command, workspace)
    flaw = _flaw_of(code, printed, said) or workspace.flaw(beside)
    if flaw is not None:
        return "fault", f"{flaw}: exit code {code}: {said[-400:]!a}", case.done
    return ("same" if code == 0 else "refused"), said, case.done


def _run(command: Command, workspace: Workspace) -> tuple[int, str, str]:
    """Exit code and what was printed; one that serves is interrupted as soon as it does."""
    environment = os.environ | {"TMPDIR": str(workspace.temporary), "PYTHONPATH": str(workspace.code)}
    if command.words == "watch":  # the newest run of the directory
        (workspace.work / "runs").symlink_to(workspace.case)
    words = [word.format(run=workspace.run, work=workspace.work, env=ENV) for word in shlex.split(command.words)]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "launch.py"), *words],
        cwd=workspace.work,
        env=environment | {"COLUMNS": "160"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        start_new_session=True,
    )
    guard = Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    guard.start()
    printed = ""
    if command.serves:
        for line in process.stdout:  # which ends with the process
            printed += line
            if _SERVED.search(line):
                process.send_signal(signal.SIGINT)
    rest, said = process.communicate()
    guard.cancel()
    return process.returncode, printed + rest, said


def _flaw_of(code: int, printed: str, said: str) -> str | None:
    """Reason why an end is neither success nor a refusal in one sentence; None if it is one of them."""
    if code == -signal.SIGKILL:
        return "no end"
    if code not in (0, 1, 2):
        return "another exit code"
    for line in filter(str.strip, (printed + said).splitlines()):
        if flaw := flaw_of(line):
            return flaw
    if code == 2 and not re.fullmatch(r"launch\.py: [^\n]+\n", said):
        return "not one sentence"
    return None
