"""What the libraries that start threads find in the environment of a run's processes when they are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""NumPy's library of matrix products starts a thread for every core in every process, be it asked for one or not; here
only PyTorch multiplies matrices."""
IGNORED_ENV = ("OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""OpenMP would bind the first thread of learner and inference to the first core, which is an actor's, or start fewer
threads than the run records; sums are split by their number, so the bits would be others."""


@contextmanager
def pinned_thread_env() -> Iterator[None]:
    """The environment for processes that are started within: theirs are the threads that the configuration names."""
    former = {name: os.environ.get(name) for name in (*ONE_THREAD, *IGNORED_ENV)}
    for name in IGNORED_ENV:
        os.environ.pop(name, None)
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
