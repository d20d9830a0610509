"""A run in a control group that the test makes: its limits are respected, and a death for lack of memory is named.

It needs the right to make control groups (root, with the memory controller at hand), and is skipped without.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from shared.machine import control_groups
from tests.support.runs import Process, finish, start, summary

LIMIT = 3 << 30
"""Bytes: enough for the run, and less than the meal of `tests.crash.failing:hungry`."""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a limit of memory."""
    own = next(control_groups.groups(control_groups.FILESYSTEM, "memory"), None)
    if own is None:
        pytest.skip("no memory controller is mounted here")
    version_2 = (own / "cgroup.controllers").exists()
    made = own / f"ringside-test-{os.getpid()}"
    with ExitStack() as undo:
        try:
            made.mkdir()
            undo.callback(made.rmdir)
            (made / ("memory.max" if version_2 else "memory.limit_in_bytes")).write_text(str(LIMIT))
        except OSError as error:
            pytest.skip(f"no control group that limits memory can be made here: {error.strerror}")
        with suppress(OSError):  # no swap is accounted for here
            (made / "memory.swap.max").write_text("0")
        yield made


def start_inside(group: Path, run_dir: Path, **changes: str) -> Process:
    """Start a run and move it into the group before it has begun with anything."""
    process = start(run_dir, actors="1", **changes)
    (group / "cgroup.procs").write_text(str(process.pid))
    return process


@pytest.mark.stress
def test_a_death_for_want_of_memory_is_named_and_changes_nothing(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", str(tmp_path / "eaten"))
    hungry = {"env": "tests.crash.failing:hungry", "total_steps": "2_400"}
    output = finish(start_inside(group, tmp_path / "fed", **hungry))
    assert (tmp_path / "eaten").exists()
    for words in ("actor 0 was killed for lack of memory", f"limited to {LIMIT / 1e9:.1f} GB", "fewer --actors"):
        assert words in output
    finish(start(tmp_path / "sated", actors="1", **hungry))  # it has eaten already
    fed, sated = summary(tmp_path / "fed"), summary(tmp_path / "sated")
    assert (fed["restarts"] >= 1, fed["weights_sha256"]) == (True, sated["weights_sha256"])


def test_the_limit_of_a_foreign_group_is_respected_unasked(group: Path, run_dir: Path) -> None:
    process = start_inside(group, run_dir, total_steps="1_000_000", replay_size="1_000_000")
    assert "GB are free; --replay-size" in finish(process, code=2)
    assert not run_dir.exists()
