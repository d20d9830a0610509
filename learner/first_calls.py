"""Code that PyTorch and numba load at their first call; a fork server imports this module before it forks."""

from __future__ import annotations

import numpy as np
import torch.fx.experimental.symbolic_shapes  # noqa: F401  (loaded by the first tensor without data)

from learner.replay.sum_tree import refresh

refresh(np.empty(0, np.int64), np.empty(0, np.int64), 0, 0)
