"""Memory that a run needs, compared with that of the machine."""

from __future__ import annotations

from shared.errors import ConfigError
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.ring import ring_fields

OWN_BYTES = 1_500_000_000
"""Private memory of learner, inference, scribe and supervisor, generously, with torch on a CPU."""


ACTOR_BYTES = 100_000_000
"""Private memory of an actor with few emulators; tests/crash checks it."""


WORKER_BYTES = 450_000_000
"""The same of a process of workers, which loads torch beside the emulator."""


RANK_BYTES = 700_000_000
"""The same of a further rank of the learner on GPUs, besides the stacks of a round."""


MEMBER_BYTES = 120_000_000
"""The same of a further member of the learner on a CPU, which shares the pages of PyTorch; tests/crash checks it."""


EMULATOR_BYTES = 1_000_000
"""Memory of an emulator in its actor, generously."""


def own_bytes(plan: Plan) -> int:
    """Upper estimate of the bytes that the processes of a run take in addition to the shared region."""
    run_schedule, machine = plan.run_schedule, plan.config.machine
    player_bytes = WORKER_BYTES if plan.player is Role.WORKER else ACTOR_BYTES
    learner_bytes = MEMBER_BYTES if machine.device == "cpu" else RANK_BYTES
    own = OWN_BYTES + learner_bytes * (machine.learner_processes - 1)
    if plan.method.on_policy and not run_schedule.workers and machine.device == "cpu":
        # Beside the rings the learner holds the stacks of a whole round.
        stack_bytes = run_schedule.frames.stack * run_schedule.frames.nbytes
        own += (run_schedule.round_steps + run_schedule.envs) * stack_bytes
    return own + player_bytes * plan.actors + EMULATOR_BYTES * run_schedule.envs


def require_memory(plan: Plan, usable: int) -> None:
    """Refuse a plan for which `usable` bytes do not suffice; the message names the largest replay that fits."""
    region, own, run_schedule = plan.layout.size, own_bytes(plan), plan.run_schedule
    missing = region + own - usable
    if missing <= 0:
        return
    if plan.method.on_policy or run_schedule.workers or plan.config.run.resume is not None:
        advice = f"{plan.less_memory}."
    else:
        rings = sum(item.nbytes for item in ring_fields(run_schedule).values())
        step_bytes = rings // (run_schedule.capacity * run_schedule.envs)
        fits = run_schedule.window_ticks * run_schedule.envs - -(-missing // step_bytes)
        fits -= fits % 1_000
        some_fits = fits >= max(run_schedule.round_steps, plan.config.learn.batch_size)
        advice = f"--replay-size {fits:_} would fit." if some_fits else "no replay would fit."
    raise ConfigError(
        f"This run needs {region / 1e9:.1f} GB of shared memory and about {own / 1e9:.1f} GB for its processes, but "
        f"only {usable / 1e9:.1f} GB are free; {advice}"
    )
