"""The one setting of CUDA that has to be in the environment before CUDA is initialized."""

from __future__ import annotations

import os

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
SAME_BITS = (":4096:8", ":16:8")
"""Its values with which products of matrices come out the same every time."""


def choose_workspace() -> None:
    """Choose the faster of these, unless the user has chosen. For this process and those that it starts."""
    os.environ.setdefault(WORKSPACE, SAME_BITS[0])
