"""Report of the update after which numbers ceased to be finite, with its minibatch and its parameters.

The learner checks the numbers only at the end of a round, because a check slows a GPU down. So it repeats the updates
since its newest snapshot one by one, with the same numbers, up to the first that leaves a number not finite.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from learner.engine.engine import Engine, NonFiniteError
from shared.files.atomic import write_atomic
from shared.memory.board import Phase
from shared.memory.run_memory import Memory
from shared.memory.wait import Waiter

SAVED = "nan-report-{round}-{update}"
"""Name of the two files in the run directory, .json and .safetensors."""

Arrays = dict[str, NDArray[np.generic]]


def report_nonfinite_update(
    memory: Memory, waiter: Waiter, engine: Engine, run_dir: Path, found: NonFiniteError
) -> str:
    """Write down what made the numbers of the present round cease to be finite; what is in memory stays as it is.

    Args:
        engine: of the learner; its state is replaced.
        found: what was noticed.

    Returns:
        A sentence that says where to look.

    Raises:
        Stopped: the run is to end.
    """
    memory.board.phase[waiter.process] = Phase.REPLAYING
    is_finite, arrays, update = repeat_updates(memory, waiter, engine)
    config, learn = memory.plan.config, memory.plan.config.learn
    content = {
        "said": str(found),
        "found_again": not is_finite,
        "round": engine.round,
        "update_of_round": update,
        "sums": found.sums,
        "not_finite": {name: int((~np.isfinite(array)).sum()) for name, array in arrays.items()},
        "learning_rate": memory.run_schedule.learning_rate(engine.round, learn),
        "optimizer": learn.optimizer,
        "network": str(memory.plan.network),
        "precision": config.machine.precision,
        "device": config.machine.device,
        "config_digest": config.digest(),
        "last_good_boundary": max(0, memory.board.committed),
    }
    path = run_dir / SAVED.format(round=engine.round, update=update)
    try:
        write_atomic(path.with_suffix(".safetensors"), save(arrays))
        write_atomic(path.with_suffix(".json"), json.dumps(content, indent=1).encode() + b"\n")
    except OSError as error:
        return f"A report could not be written ({error.strerror})."
    if is_finite:
        exact = config.machine.is_deterministic
        why = ": the machine's arithmetic cannot be trusted" if exact else ", as they may with --deterministic off"
        return f"Done again, the same updates stayed finite{why} ({path}.json)."
    return f"{path}.json says which update did it; .safetensors beside it holds its batch and the parameters before."


def repeat_updates(memory: Memory, waiter: Waiter, engine: Engine) -> tuple[bool, Arrays, int]:
    """Repeat the updates from the newest snapshot to the end of the engine's round, up to the first that is not finite.

    Returns:
        True if all stayed finite; of the last one its minibatch, with the parameters before it, and its number in its
        round, from 0.
    """
    run_schedule = memory.run_schedule
    before = np.zeros(memory.plan.parameters.count, np.float32)
    boundary, update = max(0, memory.learner_snapshots.newest()), 0
    engine.load(memory.learner_snapshots.read(boundary))  # fresh parameters where there is none yet
    for round_ in range(boundary, engine.round + 1):
        for update in range(engine.begin_round(round_, run_schedule.window_end(round_))):
            engine.store({"online": before})
            engine.run(1)
            waiter.heartbeat()
            try:
                engine.check()
            except NonFiniteError:
                return False, engine.last_update() | {"parameters_before": before}, update
        engine.end_round()  # which updates the priorities
        if run_schedule.target_changes_after(round_):
            engine.update_target()
    return True, engine.last_update() | {"parameters_before": before}, update
