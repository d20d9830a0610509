"""Declarations of shared fields, and counters that publish data."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from shared.memory.arena import Arena
from shared.memory.layout import (
    ONE,
    Layout,
    SharedFields,
    float32,
    float64,
    int64,
    sequence,
    sequence_array,
    uint8,
)


class Base(SharedFields):
    word = int64("base.word", ONE, "me", "A number.")


class Fields(Base):
    bytes = uint8("bytes", ("rows", 3), "me", "Bytes.")
    single = float32("single", ("rows",), "me", "Single precision.")
    double = float64("double", (2,), "you", "Double precision.")
    count = sequence("count", "me", "A counter.")
    counts = sequence_array("counts", ("rows", 2), "me", "Counters.")


@pytest.fixture
def arena() -> Iterator[Arena]:
    """A region of `Fields`."""
    made = Arena.create(Layout(Fields.fields({"rows": 4})))
    yield made
    made.close()


def test_the_table_follows_from_the_declarations() -> None:
    table = [(field.name, field.dtype, field.shape, field.writer) for field in Fields.fields({"rows": 4})]
    assert table == [
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


def test_an_instance_has_views_in_the_place_of_the_declarations(arena: Arena) -> None:
    fields = Fields(arena)
    fields.bytes[3, 2], fields.word[0], fields.double[1] = 7, 8, 0.5
    assert (arena["bytes"][3, 2], arena["base.word"][0], arena["double"][1]) == (7, 8, 0.5)
    assert not hasattr(Fields, "bytes"), "access to an instance's view asks no descriptor"


def test_a_publication_of_one_process_is_read_by_another(arena: Arena) -> None:
    """The views of two mappings of one region."""
    writer, other = Fields(arena), Arena.attach(os.dup(arena.fd), arena.layout, writable=False)
    reader = Fields(other)
    assert reader.count.read() == 0
    writer.count.publish(1 << 40)
    assert reader.count.read() == 1 << 40
    writer.count.publish(-1)
    assert reader.count.read() == -1
    writer.counts.at(2, 1).publish(5)
    assert reader.counts.at(2, 1).read() == 5
    assert reader.counts.values.tolist() == [[0, 0], [0, 0], [0, 5], [0, 0]]
    writer.counts.publish(np.array([0, 3]), np.array([[1, 2], [3, 4]]))
    assert reader.counts.values.tolist() == [[1, 2], [0, 0], [0, 5], [3, 4]]
    writer.counts.publish_all(-1)
    assert (reader.counts.values == -1).all()
    other.close()


def test_values_of_counters_are_for_reading(arena: Arena) -> None:
    with pytest.raises(ValueError, match="read-only"):
        Fields(arena).counts.values[0, 0] = 1
    reader = Arena.attach(os.dup(arena.fd), arena.layout, writable=False)
    with pytest.raises(TypeError, match="read-only"):
        Fields(reader).count.publish(1)
    reader.close()
