"""Descriptors that some builds of Python cannot open, such as conda's: their headers are older than these calls."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)
_MFD_CLOEXEC = 1
_PIDFD_OPEN = 434
"""Number of the call, the same with every processor."""


def memory_file(name: str) -> int:
    """Descriptor of a new file in memory (memfd_create(2)). Raises `OSError`."""
    return _checked(_LIBC.memfd_create(name.encode(), _MFD_CLOEXEC))


def process_descriptor(pid: int) -> int:
    """Descriptor of a process, readable once that has ended (pidfd_open(2), Linux 5.3). Raises `OSError`."""
    return _checked(_LIBC.syscall(_PIDFD_OPEN, pid, 0))


def can_open_processes() -> bool:
    """True if the kernel has such descriptors, and no container forbids them."""
    try:
        os.close(process_descriptor(os.getpid()))
    except OSError:
        return False
    return True


def _checked(descriptor: int) -> int:
    if descriptor < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return descriptor
