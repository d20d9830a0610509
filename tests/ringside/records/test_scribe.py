"""The work of the scribe, without a run."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, Mock, call

import numpy as np
import pytest

from ringside.records import preparation, scribe
from ringside.records.metrics import MetricsLog
from ringside.records.scribe import Scribe
from ringside.records.summary import make_summary, run_counters
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.segments import segment_of
from shared.checkpoint.weights_file import load_weights
from shared.errors import FatalError
from shared.files.lock import identity, locked
from shared.memory.boundary import Moved
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped, Waiter
from shared.process.ownership import LOCK_FILE
from tests.support.checkpoints import random_weights
from tests.support.configurations import settled
from tests.support.watched import Pretended

SMALL = {"network": "small", "round_steps": 80, "replay_size": 160, "total_steps": 800}


def prepared(run_dir: Path, **settings: Any) -> tuple[Memory, Scribe]:
    """Memory of a run that its scribe has prepared."""
    run_dir.mkdir(exist_ok=True)
    memory = Memory.create(Plan(settled(**SMALL | {"run_dir": run_dir} | settings), 4))
    _ARENAS.callback(memory.arena.close)
    resume = settings.get("resume")
    return memory, Scribe(memory, run_dir, checkpoint=None if resume is None else find_checkpoint(resume))


_ARENAS = ExitStack()


@pytest.fixture(autouse=True)
def _close_arenas() -> Iterator[None]:
    yield
    _ARENAS.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock of its own for the scribe, in seconds."""
    made = SimpleNamespace(now=1_000.0, monotonic=lambda: made.now, monotonic_ns=lambda: round(made.now * 1e9))
    for module in (scribe, preparation):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def late(tmp_path: Path) -> Any:
    """A scribe for which everything is due; what it writes is in `done`."""
    made: Any = prepared(tmp_path)[1]
    made.done = []
    made.due_now = {"evaluation", "save", "record"}
    made._board.written[0], made._board.trouble[0] = 3, 5
    for name in ("evaluation", "save", "record"):
        setattr(made, f"_{name}_due", lambda name=name: name in made.due_now)
    made._record_evaluation = lambda: made.done.append("evaluation")
    made._record_rounds = lambda: made.done.append("record")
    made.save = lambda: made.done.append("save") or 3
    return made


def test_records_that_are_always_due_keep_nothing_else_waiting(late: Any) -> None:
    for due in ("evaluation", "save", "record"):
        late.work()
        late.due_now.discard(due)
    assert (late.done, late._board.trouble[0]) == (["evaluation", "save", "record"], 0)
    late._board.trouble[0] = 5
    late.work()
    assert late._board.trouble[0] == 5, "an idle scribe leaves a reported disk error"
    late.due_now = {"save", "record"}
    late.save = lambda: -1
    late.work()
    assert late.done[3:] == ["record"], "a checkpoint that cannot be taken keeps no record waiting"


def test_the_checkpoint_interval_survives_a_death(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a scribe that dies in each checkpoint would be restarted for ever, and its run never saved."""
    monkeypatch.setattr(scribe, "newest_boundary", lambda memory: 3)
    memory, first = prepared(tmp_path, checkpoint_every_minutes=2.0)
    assert not first._save_due()
    clock.now += 119
    assert not first._save_due()
    clock.now += 1
    assert first._save_due()
    assert Scribe(memory, tmp_path)._save_due()
    memory.board.saved[0] = 3
    assert not first._save_due(), "there is nothing newer"


@pytest.mark.parametrize("stops", [False, True])
def test_a_full_disk_is_tried_again_for_ten_minutes_or_once(late: Any, clock: Any, tmp_path: Path, stops: bool) -> None:
    """After 1, 2, 4, ... and then every 30 s; after a stop, once."""
    tries = list[float]()
    late._files = SimpleNamespace(reopen=lambda: None)

    def close() -> None:
        tries.append(clock.now - 1_000)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def wait(ready: Any) -> None:
        if stops:
            raise Stopped
        clock.now = late.retries["end"].at

    late.close = close
    with pytest.raises(FatalError):
        scribe._close(late, cast(Waiter, SimpleNamespace(wait=wait)), tmp_path)
    assert tries[:8] == ([0, 0] if stops else [0, 1, 3, 7, 15, 31, 61, 91])
    assert stops or 600 <= tries[-1] <= 630


def test_a_checkpoint_takes_its_boundary_before_it_writes_the_rest(late: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are gone two rounds later; what is to be written down waits in the rings."""

    capture = Mock(side_effect=Moved("too late"))
    monkeypatch.setattr(scribe, "newest_boundary", lambda memory: 9)
    monkeypatch.setattr(scribe, "capture", capture)
    assert (Scribe.save(late), late.done, capture.mock_calls) == (-1, [], [call(late._memory, 9)] * 3)


def test_evaluations_of_a_run_stay_until_it_goes_on(late: Any, tmp_path: Path) -> None:
    """A resume that stops, or fails, before its first round leaves what is still true."""
    files = {tmp_path / f"evaluation-{name}.json": version for name, version in (("final", 5), ("best", 3))}
    for path, version in files.items():
        path.write_text(f'{{"version": {version}}}')
    for versions in (6, 5):  # an older checkpoint is resumed, and its future deleted
        preparation.drop_evaluations(tmp_path, of_versions_from=versions)
        assert all(path.exists() == (version < versions) for path, version in files.items())
    late._files = SimpleNamespace(run_dir=tmp_path)
    with pytest.raises(AttributeError):  # at what comes after it
        Scribe._record_rounds(late)
    assert not any(path.exists() for path in files)


READS = {"held": ([35, 35], True), "written over": ([36], False), "written over while it was read": ([35, 36], False)}


@pytest.mark.parametrize(("oldest", "held"), READS.values(), ids=READS)
def test_overwritten_slots_have_no_record(late: Any, monkeypatch: pytest.MonkeyPatch, oldest: Any, held: bool) -> None:
    """A record of ticks 35 to 39; where its slots are gone, only what is known without them is told."""
    late._memory.ring = SimpleNamespace(field={})
    late._run_schedule = SimpleNamespace(round_ticks=5)
    late._oldest_readable_tick = iter(oldest).__next__
    monkeypatch.setattr(scribe, "episodes_in", lambda ring, begin, end: [(begin, end)])
    monkeypatch.setattr(scribe, "record_values", lambda memory, first, stop, sample, held: {"stop": stop, "held": held})
    assert late._read_rounds(7, 8, None) == ({"stop": 8, "held": held}, [(35, 40)] if held else [])


@pytest.mark.parametrize(
    ("options", "role"),
    [({"method": "dqn"}, Role.LEARNER), ({"method": "a2c", "workers": 3}, Role.WORKER), ({"method": "dqn"}, None)],
    ids=["learner", "workers", "full disk"],
)
def test_the_main_loop_rings_who_commits_and_ends_at_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], role: Role | None
) -> None:
    """The committer may wait for a record. With a full disk something is due for ever, and `_close` has a limit."""
    run = Pretended(tmp_path / "run", **options)
    memory, done, works = run.memory, list[object](), [True]
    memory.board.commits.publish(memory.run_schedule.rounds)
    memory.board.trouble[0] = 0 if role else errno.ENOSPC

    doorbells = MagicMock(fds=range(len(memory.plan.processes)))
    doorbells.__getitem__.side_effect = lambda process: Mock(ring=lambda: done.append(process))

    def work() -> None:
        done[:] = ["worked"]  # at the start all were rung
        works.clear()

    waiter = SimpleNamespace(wait=lambda ready: ready(), note_progress=lambda point: None)
    made = SimpleNamespace(due=lambda: role is None or bool(works), work=work)
    monkeypatch.setattr(scribe, "enter", lambda child_spec: (memory, waiter))
    monkeypatch.setattr(scribe, "Scribe", lambda *arguments: made)
    monkeypatch.setattr(scribe, "_close", lambda *arguments: done.append("closed"))
    words = {"run_dir": Path(), "doorbells": doorbells, "process": int(Role.SCRIBE), "lock": None, "checkpoint": None}
    scribe.main(SimpleNamespace(**words))
    if role is None:
        assert (done[-1], works) == ("closed", [True]), "the last round is committed: nothing is worked at"
    else:
        assert done == ["worked", memory.plan.processes.index_of(role), "closed"]


def commit(memory: Memory, boundary: int) -> None:
    """Commit a boundary with snapshots of all lanes and of the learner."""
    for lane in range(memory.run_schedule.lanes):
        memory.lane_snapshots.write(lane, boundary, b"state")
    memory.learner_snapshots.write(boundary, lambda out: [vector.fill(0.5) for vector in out.values()] and None)
    memory.board.commits.publish(boundary)


class FullDisk:
    """A disk on which nothing of a kind fits, on a clock of its own, while a run plays a span a second.

    `patch` changes more.
    """

    def __init__(
        self, run_dir: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, *refused: str, method: str = "a2c"
    ) -> None:
        settings: dict[str, Any] = {"method": method, "schedule": "alternate", "round_steps": 20, "envs": 4}
        settings |= {"batch_size": 20} if method == "a2c" else {"schedule": "concurrent", "replay_size": 80}
        settings |= {"snapshot_every_steps": 40, "total_steps": 4_000, "checkpoint_every_minutes": 0, "eval_envs": 2}
        settings |= {"lane_envs": 2, "actors": 1, "eval_every_steps": 40, "eval_episodes": 2}
        self.memory = Memory.create(Plan(settled(**settings, run_dir=run_dir), 4))
        _ARENAS.callback(self.memory.arena.close)
        self.clock, self.patch = clock, monkeypatch
        self.scribe = Scribe(self.memory, run_dir)
        for name in refused:
            monkeypatch.setattr(CheckpointWriter, name, self._refuse)
        for name in ("valid", "terminated", "episode_steps"):  # an episode ends in each tick
            self.memory.ring.field[name][:] = 1
        self.commit(0)

    @staticmethod
    def _refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file")

    def commit(self, boundary: int) -> None:
        """A second later another boundary is committed, and the scribe does all that it can do."""
        self.clock.now += 1.0
        commit(self.memory, boundary)
        before = -1
        while self.scribe.due() and before != self.memory.board.written[0]:
            before = int(self.memory.board.written[0])
            self.scribe.work()

    def played(self, spans: int) -> list[dict[str, Any]]:
        """Records of a run of so many spans."""
        rounds = self.memory.run_schedule.snapshot_rounds
        for span in range(1, spans + 1):
            self.commit(span * rounds)
        lines = (self.scribe._files.run_dir / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


MakeDisk = Callable[..., FullDisk]


@pytest.fixture
def full_disk(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> MakeDisk:
    """Maker of a full disk: what it refuses, and the `method` of its run."""
    return partial(FullDisk, tmp_path / "run", clock, monkeypatch)


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_run_begins_with_the_weights_that_are_given(tmp_path: Path, *, prioritized: bool) -> None:
    given = random_weights(tmp_path / "other", actions=4)
    memory, _ = prepared(tmp_path / "run", init_from=given, prioritized=prioritized)
    state = memory.learner_snapshots.read(0)
    np.testing.assert_array_equal(state["online"], load_weights(given).flat)
    assert not any(state[name].any() for name in state.keys() - {"online", "priorities"})
    if prioritized:
        assert state["priorities"].nonzero()[0].tolist() == [len(state["priorities"]) - 1]
        assert state["priorities"][-1] == 1.0


@pytest.mark.parametrize(("change", "since"), [({}, -1), ({"precision": "bf16"}, 0), ({"actors": 1}, -1)])
def test_a_resume_continues_counts_and_says_whether_it_is_exact(tmp_path: Path, change: Any, since: int) -> None:
    memory, scribe = prepared(tmp_path / "run")
    memory.board.restarts[1] = 2
    commit(memory, 0)
    assert scribe.save() == 0
    (tmp_path / "run" / "summary.json").write_text('{"finished": true}')
    (tmp_path / "run" / "evaluation-final.json").write_text('{"version": 3}')
    memory, scribe = prepared(tmp_path / "run", resume=tmp_path / "run", **change)
    assert memory.inexact_since == since
    assert (run_counters(memory)["restarts"], run_counters(memory)["seconds"] > 0) == (2, True)
    assert not (tmp_path / "run" / "summary.json").exists(), "the run is unfinished"
    assert not (tmp_path / "run" / "evaluation-final.json").exists(), "of a round that is played again"
    told = make_summary(memory, scribe._files.metrics, 0, {})
    assert (told["exact"], told["inexact_since_steps"]) == (since < 0, None if since < 0 else since)
    memory.board.commits.publish(0)
    memory.board.saved[0] = -1
    scribe.save()
    memory, _ = prepared(tmp_path / "run", resume=tmp_path / "run", **change)
    assert memory.inexact_since == since, "also after another resume"


def test_a_run_that_begins_keeps_nothing_of_one_without_a_checkpoint(tmp_path: Path) -> None:
    first = prepared(tmp_path / "run")[1]
    first._files.metrics.log_round(0, 80, {}, [], envs=8)
    best = random_weights(tmp_path / "other", actions=4)
    (tmp_path / "run" / "checkpoints" / "best.safetensors").write_bytes(best.read_bytes())
    second = prepared(tmp_path / "run", seed=2)[1]
    assert (second._files.metrics.last_round, second._files.checkpoints.best_mean()) == (-1, None)
    assert not (tmp_path / "run" / "checkpoints" / "best.safetensors").exists()


def test_a_resume_elsewhere_takes_records_and_best_weights_along(tmp_path: Path, full_disk: MakeDisk) -> None:
    disk = full_disk()
    plan, boundary = disk.memory.plan, disk.memory.run_schedule.snapshot_rounds
    disk.scribe._files.checkpoints.save_best(np.zeros(plan.parameters.count, np.float32), 1, 3.5)
    disk.commit(boundary)
    run = replace(plan.config.run, run_dir=tmp_path / "other", resume=tmp_path / "run")
    left = CheckpointWriter(tmp_path / "other", plan.config, disk.memory.run_schedule, 4)  # without a checkpoint
    left.save_best(np.zeros(plan.parameters.count, np.float32), boundary, 9.0)
    memory = Memory.create(replace(plan, config=replace(plan.config, run=run)))
    other = Scribe(memory, tmp_path / "other", checkpoint=find_checkpoint(tmp_path / "run"))
    assert other._files.checkpoints.best_mean() == 3.5
    records = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("run", "other")]
    assert b'"kind": "round"' in records[0]
    assert records[0] == records[1]


def test_a_resume_from_a_copy_inside_the_run_has_no_checkpoint_yet(tmp_path: Path, full_disk: MakeDisk) -> None:
    disk, run_dir = full_disk(), tmp_path / "run"
    disk.commit(disk.memory.run_schedule.snapshot_rounds)
    copy = shutil.copytree(run_dir / "checkpoints", run_dir / "copy")
    memory = Memory.create(disk.memory.plan)
    Scribe(memory, run_dir, checkpoint=find_checkpoint(copy)).save()
    assert find_checkpoint(run_dir).boundary == disk.memory.run_schedule.snapshot_rounds


@pytest.mark.parametrize("refused", [False, True])
def test_the_records_are_on_the_disk_before_a_checkpoint_that_counts_them(full_disk: MakeDisk, refused: bool) -> None:
    disk, done, save = full_disk(), list[str](), CheckpointWriter.save
    disk.patch.setattr(MetricsLog, "sync", lambda log: done.append("sync") or (refused and FullDisk._refuse()))
    disk.patch.setattr(CheckpointWriter, "save", lambda *arguments: done.append("save") or save(*arguments))
    disk.commit(disk.memory.run_schedule.snapshot_rounds)
    assert done == (["sync"] if refused else ["sync", "save"])


def test_a_segment_that_was_overwritten_meanwhile_is_deleted(tmp_path: Path) -> None:
    memory, scribe = prepared(tmp_path / "run")
    done: list[str] = []
    checkpoints = Mock(add_segment=lambda segment, ring: done.append(f"add {segment.name}"))
    checkpoints.discard_segment = lambda name: done.append(f"discard {name}")
    scribe._files = cast(Any, SimpleNamespace(checkpoints=checkpoints))
    segment = segment_of(memory.run_schedule, 1)
    first_tick = segment.first_tick
    for oldest, needed in ((first_tick + 1, 0), (first_tick + 1, first_tick)):
        scribe._oldest_readable_tick = lambda oldest=oldest: oldest
        with pytest.raises(Moved):
            scribe._add_segment(segment, needed)
    scribe._add_segment(segment, first_tick + 1)
    scribe._oldest_readable_tick = lambda: first_tick
    scribe._add_segment(segment)
    assert done == [f"add {segment.name}", f"discard {segment.name}"] * 2 + [f"add {segment.name}"] * 2


@pytest.mark.parametrize("has_tail", [False, True])
def test_lanes_that_overwrite_a_tail_spoil_a_checkpoint_that_has_one(full_disk: MakeDisk, has_tail: bool) -> None:
    disk = full_disk(method="dqn")
    disk.patch.setattr(Scribe, "_save_due", lambda scribe: False)
    disk.commit(disk.memory.run_schedule.snapshot_rounds)
    tail = segment_of(disk.memory.run_schedule, 0)
    disk.patch.setattr(CheckpointWriter, "missing_segments", lambda *arguments: [tail] * has_tail)
    disk.patch.setattr(CheckpointWriter, "save", lambda *arguments: 1)
    disk.patch.setattr(Scribe, "_oldest_readable_tick", lambda scribe: 10**6)
    assert disk.scribe.save() == (-1 if has_tail else disk.memory.run_schedule.snapshot_rounds)


WEIGHTS = [("a2c", ["save"]), ("a2c", ["save_best"]), ("dqn", ["save", "add_segment"])]


@pytest.mark.parametrize(("method", "refused"), WEIGHTS)
def test_without_space_for_weights_episodes_are_recorded(full_disk: MakeDisk, method: str, refused: list[str]) -> None:
    """Between two tries to write weights or segments, lanes overwrite the ring many times."""
    disk = full_disk(*refused, method=method)
    memory = disk.memory
    if "save_best" in refused:
        memory.evaluations.queued.publish(1)
        memory.evaluations.done.publish(1)
    kinds = [record["kind"] for record in disk.played(spans=12)]
    assert (kinds.count("round"), kinds.count("episode"), memory.board.trouble[0]) == (12, 12 * 40, errno.ENOSPC)
    assert not memory.board.records_refused[0], "the learner waits for the scribe as ever"
    assert (memory.board.saved[0] > 0) == ("save_best" in refused)


WRITES = [(MetricsLog, "log_round", "a2c"), (CheckpointWriter, "add_segment", "dqn")]


@pytest.mark.parametrize(("kind", "name", "method"), WRITES)
def test_a_refused_write_is_done_once_it_fits(full_disk: MakeDisk, kind: type, name: str, method: str) -> None:
    disk = full_disk(method=method)
    board, rounds = disk.memory.board, disk.memory.run_schedule.snapshot_rounds
    with disk.patch.context() as patch:
        patch.setattr(kind, name, FullDisk._refuse)
        disk.commit(rounds)
    assert (board.trouble[0], board.records_refused[0]) == (errno.ENOSPC, name == "log_round")
    disk.clock.now += 60
    disk.scribe.work()
    assert not board.records_refused[0]
    disk.commit(2 * rounds)
    assert (board.trouble[0], board.saved[0]) == (0, 2 * rounds)


def test_segments_are_tried_again_after_pauses_alone(full_disk: MakeDisk) -> None:
    """After 1, 2, 4, ... seconds, while a span is recorded every second."""
    disk, tries = full_disk("save", method="dqn"), list[float]()

    def refuse(*_: object) -> None:
        tries.append(disk.clock.now)
        FullDisk._refuse()

    disk.patch.setattr(CheckpointWriter, "add_segment", refuse)
    disk.patch.setattr(Scribe, "_save_due", lambda scribe: False)
    disk.played(spans=20)
    assert [round(later - first) for first, later in pairwise(tries)] == [1, 2, 4, 8]


def test_a_run_whose_directory_was_moved_writes_nothing_into_that_of_another(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    with locked(path / LOCK_FILE, "--run-dir", "a run"):
        memory = Memory.create(Plan(settled(**SMALL, run_dir=path), 4))
        moved = Scribe(memory, path, identity(path / LOCK_FILE))
        moved._files.metrics.log_round(0, 80, {}, [], envs=8)
        path.rename(tmp_path / "moved")
        path.mkdir()
        with locked(path / LOCK_FILE, "--run-dir", "a run"):
            memory.board.commits.publish(1)
            moved.work()
            with pytest.raises(OSError, match="another run is in its place"):
                moved.close()
            assert (memory.board.trouble[0], os.listdir(path)) == (errno.EBUSY, [LOCK_FILE])
