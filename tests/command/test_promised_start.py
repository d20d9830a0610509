"""The two starts that stay as they are: `python launch.py --actors 12 --game breakout`, and the same under systemd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ringside.command.train import configuration
from shared.config.presets import PRESETS
from shared.memory.board import Phase
from shared.memory.process_table import ProcessTable, Role
from shared.root import ROOT
from tests.support.runs import STARTED, finish, gone, memory_of, wait_until

WORDS = ("launch.py", "--actors", "12", "--game", "breakout")
NEEDED_BYTES = 11e9
"""Replay of a million steps, and the processes."""
SYSTEMD_RUN = """#!/bin/sh
# Stands for systemd-run where no systemd runs: notes its options and becomes the command, as --scope does.
echo "$@" > "$ASKED"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


SYSTEMD = ("systemd-run", "--user", "--scope", "--property=MemoryMax=16G", "--")


def test_the_words_are_taken() -> None:
    config = configuration(WORDS[1:])
    assert (config.machine.actors, config.play.game, config.learn.total_steps) == (12, "breakout", 50_000_000)
    assert config == PRESETS["nature"].with_settings(actors=12, game="breakout")


@pytest.mark.stress
@pytest.mark.timeout(240)
@pytest.mark.parametrize("before", [(), SYSTEMD])
def test_twelve_actors_play_breakout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...]) -> None:
    if psutil.virtual_memory().available < NEEDED_BYTES:
        pytest.skip("needs 11 GB of free memory")
    (tmp_path / "launch.py").symlink_to(ROOT / "launch.py")
    (tmp_path / "systemd-run").write_text(SYSTEMD_RUN)
    (tmp_path / "systemd-run").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    process = subprocess.Popen(
        [*before, sys.executable, *WORDS],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    STARTED.append(process)
    wait_until(process, lambda: any(tmp_path.glob("runs/breakout-*/config.json")))
    (run_dir,) = tmp_path.glob("runs/breakout-*")
    board = memory_of(process, run_dir).board
    wait_until(process, lambda: bool((board.lane_done.values > 2).all()), seconds=120)
    table = ProcessTable.make({Role.ACTOR: 12})
    assert len(board.phase) == len(table)
    assert (board.phase[table.slice_of(Role.ACTOR)] != Phase.STARTING).all()
    process.send_signal(signal.SIGINT)
    finish(process)
    assert gone(process)
    assert (tmp_path / "asked").exists() is bool(before)
