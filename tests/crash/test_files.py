"""A disk that refuses in the middle of a real run: training continues, the display warns, and saving is tried again.

Anybody may limit the size of files that his processes write, so that is how "full" is made here without a disk of its
own: the scribe is given the limit while it runs, and freed of it. Where a file system can be mounted, it becomes
read-only for real.
"""

import json
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.checkpoint.finding import find_checkpoint
from shared.memory.run_memory import Memory
from tests.support.runs import Process, begun, child, finish, records, same_summary, summary, wait_until

LARGEST = 2_000
"""Bytes of the largest file that fits: smaller than any segment."""
WHOLE = {"total_steps": "2_400", "replay_size": "2_400"}
"""Settings of the fixture `five_rounds`, and rings that keep them all: what could not be written down still can be."""


def limit_files(process: Process, largest: int) -> None:
    """Let the scribe write no file larger than `largest` bytes."""
    scribe = child(process, "scribe")
    _, most = resource.prlimit(scribe.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(scribe.pid, resource.RLIMIT_FSIZE, (largest, most))


def at_work(run_dir: Path, **changes: str) -> tuple[Process, Memory]:
    """A run and its memory, when its first round has been written down."""
    process, memory = begun(run_dir, **changes)
    wait_until(process, lambda: memory.board.written[0] >= 1)
    return process, memory


def assert_same(run_dir: Path, undisturbed: Path) -> None:
    """The run came to the same end, and what it left is whole."""
    same_summary(run_dir, undisturbed)
    assert [record["round"] for record in records(run_dir, "round")] == list(range(5))
    manifest = find_checkpoint(run_dir)
    assert (manifest.boundary, manifest.refused) == (5, ())


def test_a_full_disk_is_waited_for_and_nothing_is_lost(five_rounds: Path, run_dir: Path) -> None:
    process, memory = at_work(run_dir, **WHOLE)
    board = memory.board
    limit_files(process, LARGEST)
    wait_until(process, lambda: board.trouble[0] != 0)
    wait_until(process, lambda: board.complete)  # training went on to its end
    assert board.saved[0] < 0
    limit_files(process, resource.RLIM_INFINITY)
    output = finish(process)
    assert f"Warning: {run_dir} cannot be written (File too large)" in output
    assert "ulimit -f" in output
    assert_same(run_dir, five_rounds)


@pytest.mark.stress
def test_a_stop_on_a_full_disk_says_that_nothing_was_saved(run_dir: Path) -> None:
    process, memory = at_work(run_dir, checkpoint_every_minutes="0.001", total_steps="1_000_000")
    wait_until(process, lambda: memory.board.saved[0] >= 1)
    limit_files(process, LARGEST)
    wait_until(process, lambda: memory.board.trouble[0] != 0)
    saved = int(memory.board.saved[0])
    process.send_signal(signal.SIGTERM)
    output = finish(process, code=1)
    words = ("The last checkpoint could not be written.", f"--resume {run_dir}", "Traceback")
    assert [word in output for word in words] == [True, True, False], output
    manifest = find_checkpoint(run_dir)
    assert (manifest.boundary, manifest.refused) == (saved, ())


@pytest.mark.stress
def test_a_run_directory_that_was_removed_is_made_again(five_rounds: Path, tmp_path: Path, run_dir: Path) -> None:
    process, _ = at_work(run_dir, **WHOLE)
    config = (run_dir / "config.json").read_bytes()
    run_dir.rename(tmp_path / "removed")  # in one step, which `rmtree` is not
    shutil.rmtree(tmp_path / "removed")
    assert f"Warning: {run_dir} cannot be written" in finish(process)
    assert json.loads((run_dir / "config.json").read_bytes()) == json.loads(config)
    assert_same(run_dir, five_rounds)


@pytest.mark.stress
def test_a_killed_role_comes_back_without_a_run_directory(five_rounds: Path, tmp_path: Path, run_dir: Path) -> None:
    process, memory = at_work(run_dir, **WHOLE)
    run_dir.rename(tmp_path / "moved")
    run_dir.write_text("in the way")
    for role in ("scribe", "actor 0", "learner"):
        child(process, role).kill()
    wait_until(process, lambda: memory.board.complete)
    run_dir.unlink()
    (tmp_path / "moved").rename(run_dir)
    finish(process)
    last = summary(run_dir)
    assert (last["weights_sha256"], last["restarts"]) == (summary(five_rounds)["weights_sha256"], 3)
    assert find_checkpoint(run_dir).boundary == 5


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 GB, in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2g", "none", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, timeout=10).returncode:
        pytest.skip("file systems cannot be mounted here (it takes root)")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=10)


@pytest.mark.stress
def test_a_disk_that_becomes_read_only(tmp_path: Path, disk: Path) -> None:
    run_dir = disk / "run"
    process, memory = at_work(run_dir, checkpoint_every_minutes="0.001", total_steps="1_000_000")
    wait_until(process, lambda: memory.board.saved[0] >= 1)
    # A file that is open for writing keeps its file system writable; a second mount of it knows no such thing.
    bound = subprocess.run(["mount", "--bind", "-o", "ro", str(disk), str(disk)], capture_output=True, timeout=10)
    if bound.returncode:
        pytest.skip("file systems cannot be mounted read-only here")
    try:
        wait_until(process, lambda: memory.board.trouble[0] != 0)
        committed = memory.board.committed
        wait_until(process, lambda: memory.board.committed > committed)
        process.send_signal(signal.SIGTERM)
        assert "mount it for writing" in finish(process, code=1)
        assert find_checkpoint(run_dir).boundary >= 1
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=10)
