"""Three hundred mutated runs through the command: it succeeds, or ends with exit code 2 and one sentence."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from shared.process.live import FORMAT, Live
from tests.fuzz.commands import COMMANDS, Command, try_command
from tests.fuzz.drive import TALLIES, WORKERS, Tally
from tests.fuzz.workspace import Workspace

LEAST_CASES = 300


def test_there_are_as_many_commands_as_are_promised() -> None:
    assert sum(command.cases for command in COMMANDS) >= LEAST_CASES


def tried(command: Command, runs: Path, scratch: Path, first: int) -> Tally:
    """Try every so many-th case of a command, from the first on."""
    workspace, tally = Workspace(scratch / str(first)), Tally(command.name)
    shutil.copytree(runs, workspace.runs)
    live = Live(FORMAT, process=1, started=1, descriptor=3, action_names=("left", "stay", "right"))
    live.write(workspace.runs / "catch")
    workspace.make(workspace.runs / "breakout")
    for number in range(first, command.cases, WORKERS):
        kind, words, done = try_command(command, number, workspace)
        tally.kinds[kind] += 1
        if kind == "fault":
            tally.faults.append(f"{command.name}, case {number}: {done}: {words}")
    return tally


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name.replace(" ", "-"))
def test_the_command_succeeds_or_ends_in_one_sentence(command: Command, runs: Path, tmp_path: Path) -> None:
    tally = Tally(f"launch.py, {command.name}")
    with ThreadPoolExecutor(WORKERS) as pool:
        for part in pool.map(partial(tried, command, runs, tmp_path), range(WORKERS)):
            tally.take(part)
    TALLIES.append(tally)
    assert not tally.faults, "\n".join(tally.faults)
    assert tally.cases == command.cases
