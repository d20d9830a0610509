"""The work of the scribe, without a run."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringside.recording import scribe
from ringside.recording.scribe import Scribe
from shared.errors import FatalError
from shared.memory.boundary import Moved
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped, Waiter
from tests.support.configurations import settled
from tests.support.watched import Pretended


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Any]:
    """A scribe for which everything is due; what it writes is in `done`."""
    small = {"network": "small", "round_steps": 80, "replay_size": 160, "total_steps": 800}
    memory = Memory.create(Plan(settled(**small, run_dir=tmp_path), 4))
    made: Any = Scribe(memory, tmp_path)
    made.done = []
    made.due_now = {"evaluation", "save", "span"}
    made._board.written[0], made._board.trouble[0] = 3, 5
    made._evaluation_due = lambda: "evaluation" in made.due_now
    made._save_due = lambda: "save" in made.due_now
    made._spans_due = lambda: "span" in made.due_now
    made._evaluation = lambda number: made.done.append("evaluation")
    made._span = lambda first: made.done.append("span")
    made.save = lambda: made.done.append("save") or 3
    yield made
    memory.arena.close()


def test_spans_that_are_always_due_keep_nothing_else_waiting(late: Any) -> None:
    for due in ("evaluation", "save", "span"):
        late.work()
        late.due_now.discard(due)
    assert late.done == ["evaluation", "save", "span"]
    assert late._board.trouble[0] == 0


def test_a_checkpoint_that_cannot_be_taken_keeps_no_span_waiting(late: Any) -> None:
    late.due_now.discard("evaluation")
    late.save = lambda: -1
    late.work()
    assert late.done == ["span"]


@pytest.fixture
def full(late: Any, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Times, on a clock of its own, at which `late` tries to end on a disk that stays full."""
    now, tries = [0.0], list[float]()
    monkeypatch.setattr(scribe, "time", SimpleNamespace(monotonic=lambda: now[0]))
    late._files = SimpleNamespace(reopen=lambda: None)

    def close() -> None:
        tries.append(now[0])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sleep(ready: Any) -> None:
        now[0] = late._retry_at

    late.close, late.sleep = close, sleep
    return tries


def test_a_full_disk_is_tried_again_for_ten_minutes(late: Any, full: list[float], tmp_path: Path) -> None:
    """After 1, 2, 4, ... and then every 30 s."""
    with pytest.raises(FatalError):
        scribe._close(late, cast(Waiter, SimpleNamespace(wait=late.sleep)), tmp_path)
    assert full[:8] == [0, 1, 3, 7, 15, 31, 61, 91]
    assert 600 <= full[-1] <= 630


def test_after_a_stop_a_full_disk_is_tried_once_more(late: Any, full: list[float], tmp_path: Path) -> None:
    def stop(ready: Any) -> None:
        raise Stopped

    with pytest.raises(FatalError):
        scribe._close(late, cast(Waiter, SimpleNamespace(wait=stop)), tmp_path)
    assert len(full) == 2


def test_an_idle_scribe_reports_no_disk_error(late: Any) -> None:
    late.due_now.clear()
    late.work()
    assert late._board.trouble[0] == 5


def test_a_checkpoint_takes_its_boundary_before_it_writes_what_came_till_then(
    late: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots are gone two rounds later; what is to be written down waits in the rings."""

    def capture(memory: Any, boundary: int) -> Any:
        late.done.append(f"capture {boundary}")
        raise Moved("too late")

    monkeypatch.setattr(scribe, "newest_boundary", lambda memory: 9)
    monkeypatch.setattr(scribe, "capture", capture)
    assert Scribe.save(late) == -1
    assert late.done == ["capture 9"] * 3


def test_evaluations_of_a_run_stay_until_it_goes_on(late: Any, tmp_path: Path) -> None:
    """A resume that stops, or fails, before its first round leaves what is still true."""
    final, best = tmp_path / "evaluation-final.json", tmp_path / "evaluation-best.json"
    final.write_text('{"version": 5}')
    best.write_text('{"version": 3}')
    late._drop_evaluations(of_versions_from=6)
    assert final.exists()
    assert best.exists()
    late._drop_evaluations(of_versions_from=5)  # an older checkpoint is resumed, and its future deleted
    assert not final.exists()
    assert best.exists()
    late._files = None
    with pytest.raises(AttributeError):  # at what comes after it
        Scribe._span(late, 5)
    assert not best.exists()


@pytest.mark.parametrize(
    ("oldest_readable_tick", "held"),
    [([35, 35], True), ([36], False), ([35, 36], False)],
    ids=["held", "written over", "written over while it was read"],
)
def test_overwritten_slots_are_not_part_of_a_span(
    late: Any, monkeypatch: pytest.MonkeyPatch, oldest_readable_tick: list[int], held: bool
) -> None:
    """A span of ticks 35 to 39, of which only what is known without its slots is told where these are gone."""
    late._memory.ring = SimpleNamespace(field={})
    late._run_schedule = SimpleNamespace(round_ticks=5)
    late._oldest_readable_tick = iter(oldest_readable_tick).__next__
    monkeypatch.setattr(scribe, "episodes_in", lambda ring, begin, end: [(begin, end)])
    monkeypatch.setattr(scribe, "span_values", lambda memory, stop, sample, held: {"stop": stop, "held": held})
    assert late._read(35, 8, None) == (held, {"stop": 8, "held": held}, [(35, 40)] if held else [])


@pytest.mark.parametrize(("method", "workers", "role"), [("dqn", 0, Role.LEARNER), ("a2c", 3, Role.WORKER)])
def test_a_record_wakes_the_process_that_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, workers: int, role: Role
) -> None:
    """It may wait until the scribe has written what lanes would overwrite."""
    run = Pretended(tmp_path / "run", method=method, workers=workers)
    memory, rung, due = run.memory, list[int](), [True]
    memory.board.commits.publish(memory.run_schedule.rounds)

    class Doorbells:
        fds = range(len(memory.plan.processes))

        def __getitem__(self, process: int) -> Any:
            return SimpleNamespace(ring=lambda: rung.append(process))

    def work() -> None:
        rung.clear()  # at the start all were rung
        due.clear()

    waiter = SimpleNamespace(wait=lambda ready: ready(), note_progress=lambda point: None)
    monkeypatch.setattr(scribe, "enter", lambda child_spec: (memory, waiter))
    monkeypatch.setattr(scribe, "Scribe", lambda *arguments: SimpleNamespace(due=lambda: bool(due), work=work))
    monkeypatch.setattr(scribe, "_close", lambda *arguments: None)
    child_spec: Any = SimpleNamespace(run_dir=tmp_path, doorbells=Doorbells(), process=int(Role.SCRIBE))
    scribe.main(child_spec)
    assert rung == [memory.plan.processes.index_of(role)]
    run.end()
