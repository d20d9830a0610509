"""Speed that the performance model expects of a run (docs/model.md), from the service times of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shared.machine import facts
from shared.memory.plan import Plan
from shared.performance import known_times
from shared.performance.allocation import teams_of
from shared.performance.service_times import RunShape
from shared.performance.throughput_model import Prediction, predict
from shared.text import readable

LIBRARIES = ("torch", "numpy", "ale-py")
"""Libraries whose versions decide service times."""
PLAY_FIELDS = ("game", "env", "protocol", "lane_envs", "frame_size", "frame_stack", "frame_color")
"""Settings of playing that decide service times."""


def run_shape(plan: Plan, *, learns: bool = True) -> RunShape:
    """Shape of a run on this machine, which plays all lanes itself and has no workers.

    Args:
        plan: of the run.
        learns: False: the part of the run before its first update.
    """
    config, run_schedule, machine = plan.config, plan.run_schedule, plan.config.machine
    return RunShape(
        cores=facts.usable_cores(),
        envs=run_schedule.envs,
        lane_envs=run_schedule.lane_envs,
        actors=machine.actors,
        inference_batch=machine.inference_batch,
        round_steps=run_schedule.round_steps,
        steps_per_update=run_schedule.steps_per_update if learns else None,
        inference_threads=machine.inference_threads,
        learner_threads=machine.learner_threads,
        teams=teams_of(machine.learner_shards),
        alternates=run_schedule.learns_same_round,
        barrier=config.learn.schedule != "free",
        on_gpu=machine.device != "cpu",
    )


def holds_for(plan: Plan) -> bool:
    """True if the model holds for a run: one learner, and an inference server that computes as it does."""
    machine = plan.config.machine
    same = machine.acting_device is None and machine.acting_precision is None
    return same and machine.learner_ranks == 1 and not plan.run_schedule.workers


def conditions(plan: Plan) -> dict[str, Any]:
    """Everything that the service times of a plan depend on."""
    config, described = plan.config, facts.describe()
    return {
        "cpu": described["cpu"],
        "cores": described["usable_cores"],
        "gpus": described["gpus"],
        "libraries": {name: described["libraries"].get(name) for name in LIBRARIES},
        "play": {name: getattr(config.play, name) for name in PLAY_FIELDS},
        "network": config.learn.network,
        "batch_size": config.learn.batch_size,
        "algorithm": asdict(config.algorithm),
        "device": config.machine.device,
        "precision": config.machine.precision,
        "actions": plan.actions,
    }


def expected(plan: Plan) -> Prediction | None:
    """Speed while the run learns; None where the parts were not measured, or the model does not hold."""
    if not holds_for(plan) or plan.gateways:
        return None
    times = known_times.find_times(known_times.key_of(conditions(plan)))
    return None if times is None else predict(times, run_shape(plan))


def comparison(predicted: float, measured: float | None) -> str:
    """Sentence about the figure of the model, beside that of the run where it is known."""
    if measured is None:
        return f"The model expects {readable(predicted)} steps/s."
    return f"The model expected {readable(predicted)} steps/s, and the run made {readable(measured)}."
