"""Messages for a run directory that cannot be written: the fault and the remedy."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

_ADVICE = {
    errno.ENOSPC: "make space on its disk",
    errno.EDQUOT: "make space: a quota is used up",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "its file system is read-only: mount it for writing",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "make it writable for this user"),
    errno.ENOENT: "it was moved or removed, and is made again where that is possible",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "something else stands in its place: move that away"),
    errno.EISDIR: "a directory stands in the place of a file: move that away",
    errno.ELOOP: "a symbolic link stands in the place of a file: move that away",
    errno.EBUSY: "another run, or a mount, has its place: move that away",
    errno.EIO: "its disk fails: put another in its place, or look at the cable",
    errno.ESTALE: "its file server has lost it: mount it again",
}


def log_line(text: str) -> None:
    """Write a line to standard error, where a process of a run has its log; a full disk loses the line, no more."""
    with suppress(OSError, ValueError):  # of a stream that code of the user has closed
        print(end="", flush=True)  # else what the process printed before would come after the line
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def explain(number: int, run_dir: Path) -> str:
    """The meaning of the error `number` (errno) for a run directory and the remedy, as half a sentence."""
    advice = _ADVICE.get(number, "see logs/scribe.log there")
    return f"{run_dir} cannot be written ({os.strerror(number)}): {advice}"


def warning(number: int, run_dir: Path, *, queue_full: bool) -> str:
    """Warning while writes are retried; `queue_full`: there is no place for another evaluation."""
    continues = "The run continues" + (" until its next evaluation, which waits for former ones" if queue_full else "")
    return f"{explain(number, run_dir)}. {continues}, and writing is tried again."


def without_checkpoint(number: int, run_dir: Path) -> str:
    """Message of a run that ends without its last checkpoint or its summary."""
    return f"The last checkpoint could not be written. {explain(number, run_dir)}."
