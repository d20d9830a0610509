"""Where everything lies in the shared region: a table of fields turned into offsets and numpy views.

The first 128 bytes are the header: magic, format number, size and a digest of the field table. Attaching to
a region that was laid out otherwise fails with a sentence.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

MAGIC = b"RINGSIDE"
FORMAT = 1
_HEADER = struct.Struct("<8sQQ32s")
_HEADER_BYTES = 128
_ALIGN = 128
"""Two cache lines, so that fields never share one (adjacent-line prefetch). Within a field lanes and processes do:
some twelve stores a tick of a lane, which takes hundreds of microseconds."""


class LayoutError(RuntimeError):
    """The shared region is not the one that this process was told about."""


@dataclass(frozen=True)
class Field:
    """One named array of the shared region."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    writer: str
    """The only role that writes it (docs: shared/README.md, rule 1)."""

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


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
            name: np.frombuffer(buffer, f.dtype, int(np.prod(f.shape, dtype=np.int64)), off).reshape(f.shape)
            for name, (off, f) in self.offsets.items()
        }
