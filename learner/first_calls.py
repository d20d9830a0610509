"""Code that numba loads at its first call; a fork server imports this module before it forks."""

from __future__ import annotations

import numpy as np

from learner.replay.sum_tree import refresh

refresh(np.empty(0, np.int64), np.empty(0, np.int64), 0, 0)
