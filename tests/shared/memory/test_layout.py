"""The shared region: where fields lie, and who may attach it."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from shared.memory.arena import Arena, ArenaError
from shared.memory.layout import Field, Layout, LayoutError

FIELDS = [Field("bytes", "u1", (3, 7), "me"), Field("word", "i8", (1,), "me"), Field("none", "f4", (0, 5), "me")]
LINE = 64
"""Bytes of a cache line."""


@pytest.fixture
def arena() -> Iterator[Arena]:
    """A region of `FIELDS`."""
    made = Arena.create(Layout(FIELDS))
    yield made
    made.close()


def test_fields_are_zeros_of_their_shape_and_share_no_cache_line(arena: Arena) -> None:
    for field in FIELDS:
        view = arena[field.name]
        assert (view.shape, view.dtype) == (field.shape, np.dtype(field.dtype))
        assert not view.any()
    places = [offset for offset, _ in arena.layout.offsets.values()]
    assert all(offset % LINE == 0 for offset in places)
    ends = [offset + field.nbytes for offset, field in arena.layout.offsets.values()]
    assert all(later // LINE > (end - 1) // LINE for end, later in zip(ends, places[1:], strict=False))


def test_the_bytes_of_a_field_do_not_overflow() -> None:
    absurd = Field("x", "u1", (1 << 40, 1 << 40), "")
    assert absurd.nbytes == 1 << 80
    assert Layout([absurd]).size > 1 << 80


def test_a_name_stands_once() -> None:
    with pytest.raises(LayoutError, match="'word' stands twice"):
        Layout([*FIELDS, FIELDS[1]])


def test_an_attached_process_sees_the_same_memory(arena: Arena) -> None:
    other = Arena.attach(os.dup(arena.fd), Layout(FIELDS))
    arena["word"][0] = 7
    other["bytes"][2, 6] = 9
    assert (other["word"][0], arena["bytes"][2, 6]) == (7, 9)
    other.close()


def test_a_read_only_view_cannot_be_written(arena: Arena) -> None:
    reader = Arena.attach(os.dup(arena.fd), Layout(FIELDS), writable=False)
    with pytest.raises(ValueError, match="read-only"):
        reader["word"][0] = 1
    reader.close()


def test_another_layout_is_refused(arena: Arena) -> None:
    with pytest.raises(LayoutError, match="bytes; this configuration needs"):
        Arena.attach(arena.fd, Layout(FIELDS[:1]))
    renamed = [FIELDS[0], Field("other", "i8", (1,), "me"), FIELDS[2]]
    with pytest.raises(LayoutError, match="laid out for another configuration"):
        Arena.attach(arena.fd, Layout(renamed))


@pytest.mark.parametrize(
    ("place", "says"), [(0, "not a Ringside memory region"), (8, "has format 129; this program knows format 1")]
)
def test_a_foreign_region_is_refused(arena: Arena, place: int, says: str) -> None:
    os.pwrite(arena.fd, b"\x81", place)
    with pytest.raises(LayoutError, match=says):
        Arena.attach(arena.fd, Layout(FIELDS))


@pytest.mark.parametrize("refused", [(os, "posix_fallocate"), (mmap, "mmap")], ids=["pages", "addresses"])
def test_memory_that_is_not_there_is_a_sentence_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, refused: tuple[object, str]
) -> None:
    def refuse(*_arguments: object, **_named: object) -> None:  # to ask for it in earnest would take all there is first
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(*refused, refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(
        ArenaError, match=r"0\.00 GB could not be reserved \(Cannot allocate memory\); fewer --envs need less\."
    ):
        Arena.create(Layout(FIELDS), advice="fewer --envs need less")
    assert os.listdir("/proc/self/fd") == before


def test_ctrl_c_while_memory_is_reserved_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "posix_fallocate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Arena.create(Layout([Field("a", "i8", (3,), "test")]))
    assert set(os.listdir("/proc/self/fd")) == before
