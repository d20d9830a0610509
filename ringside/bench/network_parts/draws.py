"""Prioritized against uniform draws of transitions from a full window (learner/replay/priorities.py).

Each timed call draws for one chunk of updates. Uniform: draw random indices and look up their transitions. Prioritized:
draw positions in proportion to their weights; then also update these weights.
"""

from __future__ import annotations

from functools import partial
from itertools import count as counting

import numpy as np
from numpy.typing import NDArray

from learner.engine.interfaces import CHUNK_UPDATES
from learner.replay.priorities import Priorities
from learner.replay.sampling import draw_fractions, draw_integers
from learner.replay.sum_tree import EPSILON, QUANTUM
from ringside.bench.harness.interleaved import seconds_per_call
from ringside.bench.harness.tables import Report, WrongResult
from ringside.bench.limits import Options
from ringside.bench.system_parts.memory_paths import SEED
from shared.config.sections import Learn

WINDOW_TICKS, ENVS = 125_000, 8
PLACES = WINDOW_TICKS * ENVS
ALPHA = 0.6
"""Exponent of the proportional variant (Schaul et al. 2016, section 4)."""


def measure(options: Options, report: Report) -> None:
    """The part `priorities` of `launch.py bench limits`."""
    with report.measuring("priorities"):
        _measure(options, report)


def _measure(options: Options, report: Report) -> None:
    count, batch = CHUNK_UPDATES, Learn().batch_size
    ids = np.arange(PLACES)
    priorities = _filled()
    _check(priorities, draw_fractions(count, batch, SEED, 1, 0))
    errors = _errors(count * batch)
    number = counting(1)

    def prioritized(*, setting: bool) -> None:
        places, _ = priorities.sample(draw_fractions(count, batch, SEED, 1, next(number)))
        if setting:
            priorities.update(places, errors)

    drawing, both = (partial(prioritized, setting=setting) for setting in (False, True))
    actions = (lambda: ids[draw_integers(PLACES, count, batch, SEED, next(number))], drawing, both)
    times = np.array([seconds_per_call(actions, options.seconds) for _ in range(options.repeats)])
    priorities.check_valid()
    names = [
        f"{kind}, {count} x {batch}" for kind in ("uniform draw", "prioritized draw", "prioritized draw and update")
    ]
    for index, name in enumerate(names):
        note = f"{1e6 * float(np.median(times[:, index])):.1f} us"
        speeds = (count * batch / times[:, index]).tolist()
        report.add(name, "transitions/s", speeds, limit=names[0] if index else None, note=note)


def _filled() -> Priorities:
    """A full window whose priorities differ."""
    priorities = Priorities(window_ticks=WINDOW_TICKS, envs=ENVS, alpha=ALPHA)
    priorities.admit(0, np.ones((WINDOW_TICKS, ENVS), bool))
    priorities.update(np.arange(PLACES), _errors(PLACES))
    return priorities


def _errors(n: int) -> NDArray[np.float32]:
    return np.random.default_rng(SEED).exponential(size=n).astype(np.float32)


def _check(priorities: Priorities, uniform: NDArray[np.float64]) -> None:
    """Raise `WrongResult` unless draw and update agree with a cumulative sum over all weights."""
    before = _weights(priorities)
    up_to = np.cumsum(before, dtype=np.float64)
    batch = uniform.shape[1]
    expected = np.searchsorted(up_to, (uniform + np.arange(batch)) / batch * up_to[-1], side="right").reshape(-1)
    places, _ = priorities.sample(uniform)
    if not np.array_equal(places, expected):
        raise WrongResult("Other places are drawn than the running sum of all weights tells.")
    errors = _errors(len(expected))
    priorities.update(places, errors)
    for place, error in zip(expected, errors.tolist(), strict=True):
        before[place] = (error + EPSILON) ** ALPHA
    if not np.allclose(_weights(priorities), before, rtol=1e-6, atol=QUANTUM):
        raise WrongResult("An update leaves other weights than the powers of the errors.")


def _weights(priorities: Priorities) -> NDArray[np.float32]:
    state = np.zeros(priorities.state_size, np.float32)
    priorities.store(state)
    return state[:-1]
