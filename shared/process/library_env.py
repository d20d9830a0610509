"""Environment variables that numeric libraries read when they are loaded: threads, workspace and cache."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shared.errors import FatalError

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""NumPy's library of matrix products would start a thread for every core in every process; here only PyTorch multiplies
matrices."""
IGNORED_ENV = ("OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""With these, OpenMP would bind the first thread of learner and inference to the first core, which is an actor's, or
start fewer threads than the run records. Sums are split by the number of threads, so the bits would differ."""
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
SAME_BITS = (":4096:8", ":16:8")
"""Its values with which products of matrices have the same bits every time."""


@contextmanager
def pinned_thread_env() -> Iterator[None]:
    """Start processes within this context: they use the number of threads that the configuration names."""
    former = {name: os.environ.pop(name, None) for name in (*ONE_THREAD, *IGNORED_ENV)}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ.update({name: value for name, value in former.items() if value is not None})


def choose_workspace() -> None:
    """Choose the faster of `SAME_BITS`, unless the user has chosen, for this process and those that it starts.

    It must be in the environment before CUDA is initialized.
    """
    os.environ.setdefault(WORKSPACE, SAME_BITS[0])


def choose_kernel_cache(package: Path) -> None:
    """Name a folder for the compiled kernels of a package where numba's own choices cannot be written.

    numba keeps them beside the source, or in the user's cache folder, and refuses to import a cached kernel when it can
    write neither. It reads the name when it is imported itself, so each package with kernels says this first of all.
    The folder carries the user's number and must be theirs: compiled code is loaded from it.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    beside = package / "__pycache__"
    # A home directory may be closed, or have no name; unlike pathlib's, these functions then raise nothing.
    user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    nearest = next(folder for folder in (user, *user.parents) if os.path.exists(folder))
    if any(os.access(folder, os.W_OK) for folder in (beside if os.path.exists(beside) else package, nearest)):
        return
    try:
        folder = Path(tempfile.gettempdir()) / f"ringside-kernels-{os.getuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    except OSError as error:
        raise FatalError(f"Compiled kernels have no folder ({error.strerror}): set NUMBA_CACHE_DIR to one.") from error
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise FatalError(f"Others may write to {folder}; set NUMBA_CACHE_DIR to a folder of your own.")
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
