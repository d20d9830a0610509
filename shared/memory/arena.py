"""One anonymous region of shared memory for a whole run.

It is a `memfd`: it has no name, so nothing can be left behind, and the size of /dev/shm does not bound it. Its
pages are reserved at once with `posix_fallocate`, so a machine that is too small fails now, not with a SIGBUS later.
Children inherit the descriptor (`ringside.run.children`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from contextlib import ExitStack

import numpy as np

from shared.errors import RingsideError
from shared.memory.layout import Layout, LayoutError


class ArenaError(RingsideError, RuntimeError):
    """The region could not be made. The message is a sentence for the user."""


_LIBC, _MFD_CLOEXEC = ctypes.CDLL(None, use_errno=True), 1
"""Builds of Python with headers older than the call lack `os.memfd_create`, such as conda's."""


def memory_file(name: str) -> int:
    """Descriptor of a new file in memory (memfd_create(2)). Raises `OSError`."""
    descriptor: int = _LIBC.memfd_create(name.encode(), _MFD_CLOEXEC)
    if descriptor < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return descriptor


class Arena:
    """A mapped region and the numpy views of its fields (`arena["name"]`)."""

    def __init__(self, fd: int, layout: Layout, *, fresh: bool, writable: bool = True) -> None:
        self.fd = fd
        self.layout = layout
        self._map = mmap.mmap(fd, layout.size, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
        self._map.madvise(mmap.MADV_DONTDUMP)  # a crash would write gigabytes of it to the disk
        buffer = memoryview(self._map)
        if fresh:
            layout.write_header(buffer)
        else:
            layout.check_header(buffer)
        self._views = layout.views(buffer)

    @classmethod
    def create(cls, layout: Layout, unused: Iterable[tuple[int, int]] = (), advice: str = "") -> Arena:
        """Make and reserve a zero-filled region. Raises `ArenaError` when memory does not suffice.

        Args:
            unused: offset and length of parts that no process will touch; they are not reserved.
            advice: half a sentence for the error: what needs less memory.
        """
        with ExitStack() as unfinished:
            try:
                fd = memory_file("ringside")
                unfinished.callback(os.close, fd)  # also after Ctrl-C, while gigabytes are reserved
                os.ftruncate(fd, layout.size)
                reserved = 0
                for offset, length in sorted([*unused, (layout.size, 0)]):
                    if offset > reserved:
                        os.posix_fallocate(fd, reserved, offset - reserved)
                    reserved = offset + length
                arena = cls(fd, layout, fresh=True)
            except OSError as error:
                raise ArenaError(
                    f"Shared memory of {layout.size / 1e9:.2f} GB could not be reserved ({error.strerror})"
                    f"{advice and '; '}{advice}."
                ) from error
            unfinished.pop_all()
        return arena

    @classmethod
    def attach(cls, fd: int, layout: Layout, *, writable: bool = True) -> Arena:
        """Map a region that another process made. Raises `LayoutError` if it is laid out otherwise.

        Not `writable`, the kernel itself sees to it that nothing is written: views refuse it, with a `ValueError`.
        """
        if os.fstat(fd).st_size != layout.size:
            raise LayoutError(
                f"The memory region has {os.fstat(fd).st_size} bytes; this configuration needs {layout.size}."
            )
        return cls(fd, layout, fresh=False, writable=writable)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._views[name]

    def close(self) -> None:
        """Give up the descriptor; the mapping goes when its last view does."""
        os.close(self.fd)
