"""The shared region's table of fields: their declarations, their offsets and their numpy views.

A class of `SharedFields` declares its fields once. Its part of the table and its views both follow from that:

    class Counters(SharedFields):
        owner = int64("lane.owner", ("lanes",), "supervisor", "Actor that plays the lane.")
        done = sequence_array("lane.done", ("lanes",), "the lane's owner", "Ticks whose results are in the ring.")

    layout = Layout(Counters.fields({"lanes": 3}))
    counters = Counters(Arena.create(layout))
    counters.done.at(2).publish(7)

The first 128 bytes are the header: magic, format number, size and a digest of the field table. Attaching to
a region that was laid out otherwise fails with a sentence.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from shared.memory.sequence import Sequence, SequenceArray

MAGIC = b"RINGSIDE"
FORMAT = 1
_HEADER = struct.Struct("<8sQQ32s")
_HEADER_BYTES = 128
_ALIGN = 128
"""Two cache lines, so that fields never share one (adjacent-line prefetch). Within a field lanes and processes do:
some twelve stores a tick of a lane, which takes hundreds of microseconds."""


class LayoutError(RuntimeError):
    """The shared region is not that of this process's configuration."""


@dataclass(frozen=True)
class Field:
    """One named array of the shared region."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    writer: str
    """The only role that writes it (shared/README.md, rule 1)."""
    meaning: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class Layout:
    """Offsets of a table of fields."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self.offsets: dict[str, tuple[int, Field]] = {}
        offset = _HEADER_BYTES
        for item in fields:
            if item.name in self.offsets:
                raise LayoutError(f"The field {item.name!r} stands twice in the layout.")
            self.offsets[item.name] = (offset, item)
            offset += -(-item.nbytes // _ALIGN) * _ALIGN
        self.size = offset

    def digest(self) -> bytes:
        """SHA-256 over names, types, shapes and offsets."""
        table = [(name, off, f.dtype, f.shape) for name, (off, f) in self.offsets.items()]
        return hashlib.sha256(repr(table).encode()).digest()

    def write_header(self, buffer: memoryview) -> None:
        """Stamp a fresh region."""
        _HEADER.pack_into(buffer, 0, MAGIC, FORMAT, self.size, self.digest())

    def check_header(self, buffer: memoryview) -> None:
        """Raise `LayoutError` unless `buffer` was stamped by an equal layout."""
        magic, format_, size, digest = _HEADER.unpack_from(buffer, 0)
        if magic != MAGIC:
            raise LayoutError(f"This is not a Ringside memory region: it begins with {magic!r}.")
        if format_ != FORMAT:
            raise LayoutError(f"The memory region has format {format_}; this program knows format {FORMAT}.")
        if (size, digest) != (self.size, self.digest()):
            raise LayoutError("The memory region was laid out for another configuration.")

    def views(self, buffer: memoryview) -> dict[str, np.ndarray]:
        """Numpy views of every field of a region."""
        return {
            name: np.frombuffer(buffer, f.dtype, prod(f.shape), off).reshape(f.shape)
            for name, (off, f) in self.offsets.items()
        }


class Views(Protocol):
    """Numpy views of fields by name, as an `Arena` has them."""

    def __getitem__(self, name: str) -> np.ndarray: ...


class _Declaration:
    """A field of a class, with the names of its sizes."""

    def __init__(
        self, name: str, dtype: str, shape: tuple[str | int, ...], writer: str, meaning: str, kind: type | None = None
    ) -> None:
        self._name, self._dtype, self._shape, self._writer, self._meaning = name, dtype, shape, writer, meaning
        self._kind = kind

    def field(self, sizes: Mapping[str, int]) -> Field:
        """The field of a run with these sizes."""
        shape = tuple(sizes[size] if isinstance(size, str) else size for size in self._shape)
        return Field(self._name, self._dtype, shape, self._writer, self._meaning)

    def bind(self, views: Views) -> Any:
        """The view of the field, or what makes it readable."""
        view = views[self._name]
        return view if self._kind is None else self._kind(view)


class SharedFields:
    """Base of classes that declare fields of the shared region.

    A declaration is replaced by the view of an instance, so access costs as much as that of any attribute.
    """

    _declarations: ClassVar[dict[str, _Declaration]] = {}

    def __init_subclass__(cls) -> None:
        """Take the declarations out of the class; `__init__` puts views in their place."""
        found = {name: value for name, value in vars(cls).items() if isinstance(value, _Declaration)}
        cls._declarations = cls._declarations | found
        for name in found:
            delattr(cls, name)

    def __init__(self, views: Views) -> None:
        """Bind every declared field."""
        for name, declaration in self._declarations.items():
            setattr(self, name, declaration.bind(views))

    @classmethod
    def fields(cls, sizes: Mapping[str, int]) -> list[Field]:
        """The class's part of the table, in the order of the declarations. Raises `KeyError` for a size not given."""
        return [declaration.field(sizes) for declaration in cls._declarations.values()]


Shape = tuple[str | int, ...]
"""Lengths, or names of sizes that the run decides."""
ONE = (1,)
"""Shape of a single value."""


# These functions return declarations, of which the type is that of the view: as with `dataclasses.field`.


def uint8(name: str, shape: Shape, writer: str, meaning: str) -> NDArray[np.uint8]:
    """Declare an array of bytes."""
    return _Declaration(name, "u1", shape, writer, meaning)  # type: ignore[return-value]


def int64(name: str, shape: Shape, writer: str, meaning: str) -> NDArray[np.int64]:
    """Declare an array of integers."""
    return _Declaration(name, "i8", shape, writer, meaning)  # type: ignore[return-value]


def float32(name: str, shape: Shape, writer: str, meaning: str) -> NDArray[np.float32]:
    """Declare an array of single precision."""
    return _Declaration(name, "f4", shape, writer, meaning)  # type: ignore[return-value]


def float64(name: str, shape: Shape, writer: str, meaning: str) -> NDArray[np.float64]:
    """Declare an array of double precision."""
    return _Declaration(name, "f8", shape, writer, meaning)  # type: ignore[return-value]


def texts(name: str, shape: Shape, length: int, writer: str, meaning: str) -> NDArray[np.bytes_]:
    """Declare an array of texts, which numpy cuts to so many bytes or fills up with zeros."""
    return _Declaration(name, f"S{length}", shape, writer, meaning)  # type: ignore[return-value]


def sequence(name: str, writer: str, meaning: str) -> Sequence:
    """Declare a counter that publishes data."""
    return _Declaration(name, "i8", ONE, writer, meaning, Sequence)  # type: ignore[return-value]


def sequence_array(name: str, shape: Shape, writer: str, meaning: str) -> SequenceArray:
    """Declare several such counters."""
    return _Declaration(name, "i8", shape, writer, meaning, SequenceArray)  # type: ignore[return-value]
