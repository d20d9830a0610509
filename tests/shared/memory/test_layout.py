"""The shared region: where fields lie, who may attach it, and what follows from their declarations."""

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import Mock

import numpy as np
import pytest

from shared.memory import layout
from shared.memory.arena import Arena, ArenaError
from shared.memory.layout import Field, Layout, LayoutError, SharedFields

FIELDS = [Field("bytes", "u1", (3, 7), "me"), Field("word", "i8", (1,), "me"), Field("none", "f4", (0, 5), "me")]
LINE = 64
"""Bytes of a cache line."""


@pytest.fixture
def arena() -> Iterator[Arena]:
    """A region of `FIELDS`."""
    with closing(Arena.create(Layout(FIELDS))) as made:
        yield made


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


def test_another_layout_is_refused(arena: Arena) -> None:
    with pytest.raises(LayoutError, match="bytes; this configuration needs"):
        Arena.attach(arena.fd, Layout(FIELDS[:1]))
    renamed = [FIELDS[0], Field("other", "i8", (1,), "me"), FIELDS[2]]
    with pytest.raises(LayoutError, match="laid out for another configuration"):
        Arena.attach(arena.fd, Layout(renamed))


FOREIGN = [(0, "not a Ringside memory region"), (8, "has format 129; this program knows format 1")]


@pytest.mark.parametrize(("place", "says"), FOREIGN)
def test_a_foreign_region_is_refused(arena: Arena, place: int, says: str) -> None:
    os.pwrite(arena.fd, b"\x81", place)
    with pytest.raises(LayoutError, match=says):
        Arena.attach(arena.fd, Layout(FIELDS))


@pytest.mark.parametrize("refused", [(os, "posix_fallocate"), (mmap, "mmap")], ids=["pages", "addresses"])
@pytest.mark.parametrize("fault", [OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), KeyboardInterrupt()])
def test_memory_that_is_not_there_is_a_sentence_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, refused: tuple[object, str], fault: BaseException
) -> None:
    """Nor does Ctrl-C, while memory is reserved."""
    # To ask for it in earnest would take all there is first.
    monkeypatch.setattr(*refused, Mock(side_effect=fault))
    before = os.listdir("/proc/self/fd")
    says = r"0\.00 GB could not be reserved \(Cannot allocate memory\); fewer --envs need less\."
    is_error = isinstance(fault, OSError)
    with pytest.raises(ArenaError if is_error else KeyboardInterrupt, match=says if is_error else None):
        Arena.create(Layout(FIELDS), advice="fewer --envs need less")
    assert os.listdir("/proc/self/fd") == before


# Declarations


class Base(SharedFields):
    word = layout.int64("base.word", layout.ONE, "me", "A number.")


class Fields(Base):
    bytes = layout.uint8("bytes", ("rows", 3), "me", "Bytes.")
    single = layout.float32("single", ("rows",), "me", "Single precision.")
    double = layout.float64("double", (2,), "you", "Double precision.")
    count = layout.sequence("count", "me", "A counter.")
    counts = layout.sequence_array("counts", ("rows", 2), "me", "Counters.")


@pytest.fixture
def declared() -> Iterator[Arena]:
    """A region of `Fields`."""
    with closing(Arena.create(Layout(Fields.fields({"rows": 4})))) as made:
        yield made


@pytest.fixture
def reader(declared: Arena) -> Iterator[Fields]:
    """The fields of that region, as another process sees them."""
    with closing(Arena.attach(os.dup(declared.fd), declared.layout, writable=False)) as other:
        yield Fields(other)


def test_the_table_follows_from_the_declarations() -> None:
    assert [(field.name, field.dtype, field.shape, field.writer) for field in Fields.fields({"rows": 4})] == [
        ("base.word", "i8", (1,), "me"),
        ("bytes", "u1", (4, 3), "me"),
        ("single", "f4", (4,), "me"),
        ("double", "f8", (2,), "you"),
        ("count", "i8", (1,), "me"),
        ("counts", "i8", (4, 2), "me"),
    ]
    assert [field.name for field in Base.fields({})] == ["base.word"]
    with pytest.raises(KeyError):
        Fields.fields({})


def test_an_instance_has_views_in_the_place_of_the_declarations(declared: Arena) -> None:
    fields = Fields(declared)
    fields.bytes[3, 2], fields.word[0], fields.double[1] = 7, 8, 0.5
    assert (declared["bytes"][3, 2], declared["base.word"][0], declared["double"][1]) == (7, 8, 0.5)
    assert not hasattr(Fields, "bytes"), "access to an instance's view asks no descriptor"


def test_a_publication_of_one_process_is_read_by_another(declared: Arena, reader: Fields) -> None:
    """The views of two mappings of one region."""
    writer = Fields(declared)
    assert reader.count.read() == 0
    for count in (1 << 40, -1):
        writer.count.publish(count)
        assert reader.count.read() == count
    writer.counts.at(2, 1).publish(5)
    assert reader.counts.at(2, 1).read() == 5
    assert reader.counts.values.tolist() == [[0, 0], [0, 0], [0, 5], [0, 0]]
    writer.counts.publish(np.array([0, 3]), np.array([[1, 2], [3, 4]]))
    assert reader.counts.values.tolist() == [[1, 2], [0, 0], [0, 5], [3, 4]]
    writer.counts.publish_all(-1)
    assert (reader.counts.values == -1).all()


def test_values_of_counters_are_for_reading(declared: Arena, reader: Fields) -> None:
    with pytest.raises(ValueError, match="read-only"):
        Fields(declared).counts.values[0, 0] = 1
    with pytest.raises(TypeError, match="read-only"):
        reader.count.publish(1)
