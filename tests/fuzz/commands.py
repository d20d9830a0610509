"""The command on a mutated run: its words, and what it may print."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Timer

from shared.root import ROOT
from tests.fuzz.mutate import Case, mutate
from tests.fuzz.readers import ENV, MORE_STEPS, RECORD_PLACES, RESUME_PLACES
from tests.fuzz.workspace import Workspace, signature

SECONDS = 200.0
"""Seconds that one command may take; generous, for a machine under load."""
_SERVED = re.compile(r"http://127\.0\.0\.1:\d+/\S+/")


@dataclass(frozen=True)
class Command:
    """A task of the command, on a run."""

    name: str
    words: Callable[[Workspace], Sequence[str]]
    places: dict[str, int]
    cases: int
    whole: str = "catch"
    serves: bool = False
    """True if it runs until it is interrupted."""


def _evaluate(workspace: Workspace) -> Sequence[str]:
    return ("eval", "--load", str(workspace.run), "--env", ENV, "--episodes", "1", "--device", "cpu")


def _record(workspace: Workspace) -> Sequence[str]:
    video = str(workspace.work / "videos.mp4")
    return ("play", "--load", str(workspace.run), "--env", ENV, "--episodes", "2", "--device", "cpu", "--video", video)


def _play(workspace: Workspace) -> Sequence[str]:
    video = str(workspace.work / "video.gif")
    return ("play", "--load", str(workspace.run), "--env", ENV, "--episodes", "1", "--device", "cpu", "--video", video)


def _report(workspace: Workspace) -> Sequence[str]:
    return ("report", str(workspace.run), "--out", str(workspace.work / "report"))


def _watch(workspace: Workspace) -> Sequence[str]:
    return ("watch", str(workspace.run))


def _watch_newest(workspace: Workspace) -> Sequence[str]:
    (workspace.work / "runs").symlink_to(workspace.case)
    return ("watch",)


def _resume(workspace: Workspace) -> Sequence[str]:
    """All that is read before a start; the run has played more than it is told to."""
    return ("--resume", str(workspace.run), "--env", ENV, "--total-steps", "1_440", "--plain")


def _resume_and_play(workspace: Workspace) -> Sequence[str]:
    return ("--resume", str(workspace.run), "--env", ENV, "--total-steps", str(MORE_STEPS), "--plain")


def _add_to_zoo(workspace: Workspace) -> Sequence[str]:
    """Up to the name, which the zoo does not take: nothing is added to it."""
    return ("zoo", "--add", str(workspace.run), "--env", ENV, "--name", "No name")


COMMANDS = (
    Command("eval", _evaluate, RESUME_PLACES, 70),
    Command("record", _record, RESUME_PLACES, 15),
    Command("play", _play, RESUME_PLACES, 10),
    Command("report", _report, RECORD_PLACES, 60),
    Command("watch", _watch, RECORD_PLACES | {"live.json": 4}, 50, serves=True),
    Command("watch newest", _watch_newest, RECORD_PLACES, 10, serves=True),
    Command("resume", _resume, RESUME_PLACES, 60),
    Command("resume and play", _resume_and_play, RESUME_PLACES | {"logs": 1, "metrics.jsonl": 2, "*": 2}, 10),
    Command("zoo", _add_to_zoo, {"config.json": 3, "summary.json": 3, **RESUME_PLACES}, 20),
)


def try_command(command: Command, number: int, workspace: Workspace) -> tuple[str, str, list[str]]:
    """Run a command on a mutated run; returns how that ended, words for it, and what had been done to the run."""
    rng = random.Random(f"command {command.name}/{number}")
    workspace.renew(command.whole)
    case = Case(rng, workspace.run, workspace.outside / "run", workspace.outside)
    mutate(case, command.places)
    beside = signature(workspace.outside)
    code, printed, said = _run(command, workspace)
    flaw = _flaw_of(code, printed, said)
    if flaw is None and signature(workspace.outside) != beside:
        flaw = "a file outside was touched"
    if flaw is None and workspace.mark.exists():
        flaw = "foreign code was executed"
    if flaw is None and any(workspace.temporary.iterdir()):
        flaw = "a temporary file was left"
    if flaw is not None:
        return "fault", f"{flaw}: exit code {code}: {said[-400:]!a}", case.done
    return ("same" if code == 0 else "refused"), said, case.done


def _run(command: Command, workspace: Workspace) -> tuple[int, str, str]:
    """Exit code and what was printed; one that serves is interrupted as soon as it does."""
    environment = os.environ | {"TMPDIR": str(workspace.temporary), "PYTHONPATH": str(workspace.code)}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "launch.py"), *command.words(workspace)],
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
        assert process.stdout is not None
        for line in process.stdout:  # which ends with the process
            printed += line
            if _SERVED.search(line):
                process.send_signal(signal.SIGINT)
    rest, said = process.communicate()
    guard.cancel()
    return process.returncode, printed + rest, said


def _flaw_of(code: int, printed: str, said: str) -> str | None:
    """Reason why an end is neither success nor a refusal in one sentence; None if it is one of them."""
    lines = (printed + said).splitlines()
    if code == -signal.SIGKILL:
        return "no end"
    if code not in (0, 1, 2):
        return "another exit code"
    if "Traceback" in printed + said:
        return "a traceback"
    strange = next((sign for line in lines for sign in line if not sign.isprintable()), None)
    if strange is not None:
        return f"the character {strange!a}"
    if max(map(len, lines), default=0) > 2_000:
        return "a line without end"
    if code == 2 and not re.fullmatch(r"launch\.py: [^\n]+\n", said):
        return "not one sentence"
    return None
