"""The command on a mutated run: its words, and what it may print."""

from __future__ import annotations

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial

from shared.errors import ConfigError
from shared.root import ROOT
from tests.fuzz.readers import ANY, ENV, MORE_STEPS, RECORD_PLACES, RESUME_PLACES, Target
from tests.fuzz.workspace import Workspace, flaw_of

_SERVED = re.compile(r"http://127\.0\.0\.1:\d+/\S+/")


def run_command(words: str, workspace: Workspace, whole: str) -> list[str]:
    """Run a command, with names in braces; one that serves is interrupted as soon as it does.

    Raises:
        ConfigError: its refusal.
    """
    if words == "watch":  # the newest run of the directory
        (workspace.work / "runs").symlink_to(workspace.case)
    more = {"TMPDIR": str(workspace.temporary), "PYTHONPATH": str(workspace.code), "COLUMNS": "160"}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "launch.py"), *shlex.split(words.format(run=workspace.run, work=workspace.work))],
        cwd=workspace.work,
        env=os.environ | more,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        start_new_session=True,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_AS, 2 * (resource.RLIM_INFINITY,)),
    )
    printed = ""
    try:
        for line in process.stdout if words.startswith("watch") else ():  # which ends with the process
            printed += line
            if _SERVED.search(line):
                process.send_signal(signal.SIGINT)
        rest, said = process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    flaws = [flaw for line in (printed + rest + said).splitlines() if line.strip() and (flaw := flaw_of(line))]
    assert not flaws, f"{flaws[0]}: {said[-400:]!a}"
    assert process.returncode in (0, 1, 2), f"exit code {process.returncode}"
    assert process.returncode != 2 or re.fullmatch(r"launch\.py: [^\n]+\n", said), f"not one sentence: {said!a}"
    if process.returncode:
        raise ConfigError(f"It ended with {process.returncode}.")
    return []


def _target(name: str, words: str, cases: int, places: dict[str, int], *, refuses: bool = False) -> Target:
    more = {"unchecked": ANY, "writes": True, "seconds": 200.0, "refuses": refuses}
    return Target(f"launch.py, {name}", partial(run_command, words), cases, places, runs={"catch": 1}, **more)


_LOAD = f"--load {{run}} --env {ENV} --device cpu"
_RESUME = f"--resume {{run}} --env {ENV} --plain"
_ZOO_PLACES = {"config.json": 3, "summary.json": 3, **RESUME_PLACES}
_PLAYED_PLACES = RESUME_PLACES | {"logs": 1, "metrics.jsonl": 2, "*": 2}
COMMANDS = (
    _target("eval", f"eval {_LOAD} --episodes 1", 70, RESUME_PLACES),
    _target("record", f"play {_LOAD} --episodes 2 --video {{work}}/videos.mp4", 15, RESUME_PLACES),
    _target("play", f"play {_LOAD} --episodes 1 --video {{work}}/video.gif", 10, RESUME_PLACES),
    _target("report", "report {run} --out {work}/report", 60, RECORD_PLACES),
    _target("watch", "watch {run}", 50, RECORD_PLACES | {"live.json": 4}),
    _target("watch newest", "watch", 10, RECORD_PLACES),
    # All that is read before a start; the run has played more than it is told to.
    _target("resume", f"{_RESUME} --total-steps 1_440", 60, RESUME_PLACES, refuses=True),
    _target("resume and play", f"{_RESUME} --total-steps {MORE_STEPS}", 10, _PLAYED_PLACES),
    # Up to the name, which the zoo does not take: nothing is added to it.
    _target("zoo", f"zoo --add {{run}} --env {ENV} --name 'No name'", 20, _ZOO_PLACES, refuses=True),
)
