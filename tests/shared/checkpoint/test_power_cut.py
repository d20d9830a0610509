"""A writer that is killed, meets a full disk or loses its power at any step of a save never loses a checkpoint."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.finding import find_checkpoint, manifests_in
from shared.checkpoint.segments import load_segments
from shared.files import atomic
from tests.support.checkpoints import ACTIONS, CONFIG, SIZES, Fields, empty_ring, play_round, save, write_run

CALLS = ("open", "fsync", "rename", "unlink", "link", "mkdir")
"""Functions of `os` by which shared/ touches the disk, except writes to an open file."""
BEFORE, AFTER = 4, 5
"""The boundary whose checkpoint is there, and the one that is saved."""


class Disk:
    """Calls `before(n, name)` ahead of the n-th call that touches the disk, and `after(name, arguments)` behind it.

    A write is done in two halves, so a stop between them leaves half a file. What `after` does itself
    does not count.
    """

    def __init__(
        self,
        before: Callable[[int, str], None] = lambda n, name: None,
        after: Callable[[str, tuple[Any, ...]], None] = lambda name, arguments: None,
    ) -> None:
        self._before, self._after = before, after
        self._count, self._resting = 0, False

    def call(self, name: str, act: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Do one call."""
        if self._resting:
            return act(*arguments, **keywords)
        self._before(self._count, name)
        self._count += 1
        got = act(*arguments, **keywords)
        self._resting = True
        self._after(name, arguments)
        self._resting = False
        return got

    def _open(self, descriptor: int, mode: str) -> Halves:
        file = self.call("create", Halves, descriptor, mode)
        file.disk = self
        return file

    @contextmanager
    def between(self) -> Iterator[None]:
        """Stand between the writers and the disk during the block."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, partial(self.call, name, getattr(os, name)))
            patch.setattr(atomic, "open", self._open, raising=False)
            yield


class Halves(io.FileIO):
    """A file that is written in two halves."""

    disk: Disk

    def write(self, data: bytes) -> None:
        middle = len(data) // 2
        for half in (data[:middle], data[middle:]):
            self.disk.call("write", super().write, half)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the checkpoints of the boundaries 3 and `BEFORE`."""
    run = tmp_path_factory.mktemp("start") / "run"
    write_run(run, BEFORE)
    return run


@pytest.fixture(scope="module")
def ring() -> Fields:
    """The rings when the round after `BEFORE` has been played."""
    ring = empty_ring()
    for round_ in range(AFTER):
        play_round(ring, round_)
    return ring


def write_next(run: Path, ring: Fields) -> None:
    """The next checkpoint of the scribe, from inventory to cleanup."""
    save(CheckpointWriter(run, CONFIG, SIZES, ACTIONS), AFTER, ring)


def restart_and_write_next(run: Path, ring: Fields) -> None:
    """The same by a scribe that is started again between the segment and the checkpoint."""
    writer = CheckpointWriter(run, CONFIG, SIZES, ACTIONS)
    for segment in writer.missing_segments(AFTER):
        writer.add_segment(segment, ring)
    write_next(run, ring)


def copies(start: Path, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Endless numbered runs that are like `start`; each is removed when the next is made."""
    for number in range(10_000):
        run = tmp_path / f"run{number}"
        # Pieces are replaced, never changed, so that links to them do.
        shutil.copytree(start, run, copy_function=os.link)
        yield number, run
        shutil.rmtree(run)


def assert_recovers(run: Path, ring: Fields) -> None:
    """A whole checkpoint is found, none was lost, and the next writer finishes the work and cleans up."""
    found = find_checkpoint(run)
    assert (found.boundary, found.refused) in ((BEFORE, ()), (AFTER, ()))
    load_segments(found, SIZES, empty_ring())
    write_next(run, ring)
    assert find_checkpoint(run).boundary == AFTER
    assert not list((run / "checkpoints").glob(".*"))
    assert [boundary for boundary, _ in manifests_in(run / "checkpoints")] == [AFTER, BEFORE]


def test_killed_at_any_call(start: Path, ring: Fields, tmp_path: Path) -> None:
    """A child that ends at once, as by SIGKILL, before its n-th call; for every n until it comes to its end."""
    for stop_at, run in copies(start, tmp_path):
        child = os.fork()
        if not child:
            try:
                killed = Disk(lambda n, name, stop_at=stop_at: os._exit(9) if n == stop_at else None)
                with killed.between():
                    write_next(run, ring)
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9)
        assert_recovers(run, ring)
        if code == 0:
            break
    assert stop_at > 20


def test_refused_at_any_call(start: Path, ring: Fields, tmp_path: Path) -> None:
    """From the n-th call on the disk takes no more; what was begun is taken up again when it does."""
    for stop_at, run in copies(start, tmp_path):

        def refuse(n: int, name: str, stop_at: int = stop_at) -> None:
            if n >= stop_at and name in ("create", "write", "fsync", "rename", "mkdir"):
                raise OSError(errno.ENOSPC, "No space left on device")

        finished = False
        with Disk(refuse).between(), suppress(OSError):
            write_next(run, ring)
            finished = True
        assert_recovers(run, ring)
        if finished:
            break
    assert stop_at > 20


class Platter:
    """Possible contents of a directory after a loss of power, derived from the calls alone.

    Content is there only if it was forced to the disk; a name is what it was when the directory was last forced, or
    whatever it became since: names reach the disk in any order.
    """

    def __init__(self, directory: Path, scratch: Path) -> None:
        self.directory = directory
        self._store, self._cut = scratch / "store", scratch / "cut"
        self._store.mkdir()
        self._forced: set[int] = set()
        self._held: list[int] = []
        """Descriptors that keep inodes, whose numbers would be used again."""
        for path in directory.iterdir():
            self._force(os.open(path, os.O_RDONLY))
        self._names = self._listing()

    def _force(self, descriptor: int) -> None:
        self._held.append(descriptor)
        number = os.fstat(descriptor).st_ino
        if number not in self._forced:
            self._forced.add(number)
            shutil.copyfile(f"/proc/self/fd/{descriptor}", self._store / str(number))

    def _listing(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self.directory.iterdir()}

    def called(self, name: str, arguments: tuple[Any, ...]) -> None:
        """A call was done, which may have forced a descriptor to the disk."""
        if name != "fsync":
            return
        path = f"/proc/self/fd/{arguments[0]}"
        if not os.path.isdir(path):
            self._force(os.open(path, os.O_RDONLY))
        elif Path(os.readlink(path)) == self.directory:
            self._names = self._listing()

    def boundary_left(self, choose: random.Random | None) -> int:
        """The checkpoint in what may be left: of names that differ, `choose` takes some; None: none of the new."""
        shutil.rmtree(self._cut, ignore_errors=True)
        into = self._cut / "checkpoints"
        into.mkdir(parents=True)
        now = self._listing()
        for name in self._names.keys() | now.keys():
            new = choose is not None and choose.random() < 0.5
            number = (now if new else self._names).get(name)
            if number is None:
                continue
            if number in self._forced:
                os.link(self._store / str(number), into / name)
            else:
                (into / name).write_bytes(b"")
        return find_checkpoint(self._cut).boundary


@pytest.fixture
def platter(start: Path, tmp_path: Path) -> Platter:
    """The directory of a run that is like `start`."""
    shutil.copytree(start, tmp_path / "run")
    return Platter(tmp_path / "run" / "checkpoints", tmp_path)


@pytest.mark.parametrize("write", [write_next, restart_and_write_next])
def test_power_cut_at_any_call(platter: Platter, ring: Fields, write: Callable[[Path, Fields], None]) -> None:
    """After every call of a save: of all that the disk may hold then, a whole checkpoint is found."""
    choose, found = random.Random(1), list[int]()

    def look(name: str, arguments: tuple[Any, ...]) -> None:
        platter.called(name, arguments)
        found.extend(map(platter.boundary_left, (None, choose, choose)))

    with Disk(after=look).between():
        write(platter.directory.parent, ring)
    assert set(found) == {BEFORE, AFTER}
    assert found[-3:] == [AFTER] * 3  # once it has returned, it is there for good
    assert len(found) > 100


def test_power_cut_after_a_resume_in_another_directory(start: Path, ring: Fields, tmp_path: Path) -> None:
    """The segments of the other run have names here, which the disk must hold before a checkpoint counts on them."""
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    platter = Platter(run / "checkpoints", tmp_path)
    with Disk(after=platter.called).between():
        writer = CheckpointWriter(run, CONFIG, SIZES, ACTIONS)
        writer.adopt(find_checkpoint(start))
        writer.cut_back(BEFORE)
        restart_and_write_next(run, ring)
    assert platter.boundary_left(None) == AFTER


def test_without_forcing_a_power_cut_would_be_noticed(platter: Platter, ring: Fields) -> None:
    """The test above can fail: with a disk that is never told to hold on to anything."""
    write_next(platter.directory.parent, ring)
    assert platter.boundary_left(None) == BEFORE
