"""Which transitions to learn from: priorities of a full window (learner/priorities.py) against uniform drawing.

Timed is a chunk of updates, another one at each call. Uniform: random ids below the number of transitions, looked up in
the list of these. Prioritised: random numbers, places drawn by weight, and the weights of these places set anew. On
CUDA the random numbers lie there already, the same ones at each call, and drawing and setting are one graph.
"""

from __future__ import annotations

from functools import partial
from itertools import count as counting

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.devices import Device, devices
from benchmarks.limits import Options
from benchmarks.memory_paths import SEED
from benchmarks.report import Report, WrongResult
from benchmarks.timing import seconds_per_call
from learner.priorities import Priorities, priorities_on
from learner.replay import draw, draw_uniform
from learner.sum_tree import EPSILON, QUANTUM
from learner.update import CHUNK_UPDATES
from shared.config import Learn

WINDOW_TICKS, ENVS = 125_000, 8
PLACES = WINDOW_TICKS * ENVS
ALPHA = 0.6
"""Of the proportional variant (Schaul et al. 2016, section 4)."""


def measure(options: Options, report: Report) -> None:
    """The part `priorities` of `launch.py bench limits`."""
    for device in devices("priorities", report):
        with report.measuring(device.named("priorities")):
            device.prepare("fp32", 1)
            _measure(options, report, device)


@torch.inference_mode()
def _measure(options: Options, report: Report, device: Device) -> None:
    count, batch = CHUNK_UPDATES, Learn().batch_size
    ids = np.arange(PLACES)
    priorities = _filled(device)
    _check(priorities, draw_uniform(count, batch, SEED, 1))
    uniform = torch.from_numpy(draw_uniform(count, batch, SEED, 1)).to(device.torch)
    errors = _errors(count * batch).to(device.torch)
    on_cpu = device.torch.type == "cpu"
    round_ = counting(2)

    def prioritised(setting: bool) -> None:
        chosen = torch.from_numpy(draw_uniform(count, batch, SEED, next(round_))) if on_cpu else uniform
        places, _ = priorities.sample(chosen)
        if setting:
            priorities.update(places, errors)

    drawing, both = (device.captured(partial(prioritised, setting)) for setting in (False, True))
    actions = (lambda: ids[draw(PLACES, count, batch, SEED, next(round_))], drawing, both)
    times = np.array([seconds_per_call(actions, options.seconds, device.settle) for _ in range(options.repeats)])
    priorities.check_valid()
    kinds = ("uniform draw", "prioritised draw", "prioritised draw and update")
    names = [device.named(f"{kind}, {count} x {batch}") for kind in kinds]
    for index, name in enumerate(names):
        note = f"{1e6 * float(np.median(times[:, index])):.1f} us"
        speeds = (count * batch / times[:, index]).tolist()
        report.add(name, "transitions/s", speeds, limit=names[0] if index else None, note=note)


def _filled(device: Device) -> Priorities:
    """A full window whose priorities differ."""
    priorities = priorities_on(device.torch, window_ticks=WINDOW_TICKS, envs=ENVS, alpha=ALPHA)
    priorities.admit(0, torch.ones(WINDOW_TICKS, ENVS, dtype=torch.bool, device=device.torch))
    priorities.update(torch.arange(PLACES, device=device.torch), _errors(PLACES).to(device.torch))
    return priorities


def _errors(n: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(SEED).exponential(size=n).astype(np.float32))


def _check(priorities: Priorities, uniform: NDArray[np.float64]) -> None:
    """Raise `WrongResult` unless a chunk is drawn and set as a running sum over all weights would have it."""
    before = _weights(priorities)
    up_to = np.cumsum(before, dtype=np.float64)
    batch = uniform.shape[1]
    expected = np.searchsorted(up_to, (uniform + np.arange(batch)) / batch * up_to[-1], side="right").reshape(-1)
    places, _ = priorities.sample(torch.from_numpy(uniform).to(priorities.device))
    if not np.array_equal(places.cpu().numpy(), expected):
        raise WrongResult("Other places are drawn than the running sum of all weights tells.")
    errors = _errors(len(expected))
    priorities.update(places, errors.to(priorities.device))
    for place, error in zip(expected, errors.tolist(), strict=True):
        before[place] = (error + EPSILON) ** ALPHA
    if not np.allclose(_weights(priorities), before, rtol=1e-6, atol=QUANTUM):
        raise WrongResult("An update leaves other weights than the powers of the errors.")


def _weights(priorities: Priorities) -> NDArray[np.float32]:
    state = np.zeros(priorities.state_size, np.float32)
    priorities.store(state)
    return state[:-1]
