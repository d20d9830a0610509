"""Current frames of the envs, and the values of their actions, from the memory of a living run.

Actors write while this reads, and nothing delays them. When the newest `done` tick of a lane is read, the frame after
it is complete, and its slot is overwritten only after a full turn of the ring. Other values may be a tick newer. A
stale or torn read spoils one picture; nothing else depends on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.memory.mailbox import Mailbox
from shared.memory.run_memory import Memory

MOST_ENVS = 96
"""Most envs in one mosaic; the page has buttons for the others."""
LAST_ACTIONS = 24
"""Number of recent actions shown for the selected env."""


def pictures(memory: Memory, first: int, count: int, env: int) -> tuple[dict[str, Any], list[NDArray[np.uint8]]]:
    """Fields and frames of a mosaic of at most `count` envs from `first`, and of one env with its stack.

    Numbers out of range are clipped.
    """
    last = memory.run_schedule.envs - 1
    mosaic_fields, frames = mosaic(memory, min(max(first, 0), last), min(max(count, 1), MOST_ENVS))
    env_fields, stack = selected_env(memory, min(max(env, 0), last))
    shape = memory.run_schedule.frames._asdict()
    return {"mosaic": mosaic_fields, "chosen": env_fields, "shape": shape}, [frames, stack]


def mosaic(memory: Memory, first: int, count: int) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Newest frames uint8[n, *frame] of at most `count` envs from `first`, and their returns so far."""
    run_schedule, flat = memory.run_schedule, memory.ring.flat
    envs = np.arange(first, min(first + count, run_schedule.envs))
    ticks = memory.board.lane_done.values[envs // run_schedule.lane_envs]
    frames = flat["frame"][memory.ring.rows(envs, ticks)]
    before = memory.ring.rows(envs, np.maximum(ticks - 1, 0))
    fields = {
        "first": int(first),
        "envs": len(envs),
        "returns": _finite(np.where(ticks > 0, flat["episode_return"][before], 0)),
        "ended": (_ended(memory, before) & (ticks > 0)).tolist(),
    }
    return fields, frames


def selected_env(memory: Memory, env: int) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """One env: its state, and the stack uint8[stack, *frame], oldest first, that decides its next action."""
    run_schedule, flat, board = memory.run_schedule, memory.ring.flat, memory.board
    lane, place = divmod(env, run_schedule.lane_envs)
    tick = int(board.lane_done.values[lane])
    rows, mask = memory.ring.stack_rows(np.array([env]), np.array([tick]))
    stack = flat["frame"][rows[0]]
    stack[~mask[0]] = 0
    history = np.arange(max(0, tick - LAST_ACTIONS), tick)
    past = memory.ring.rows(np.full(len(history), env), history)
    fields = {
        "env": env,
        "lane": lane,
        "owner": int(board.lane_owner[lane]),
        "return": _finite(flat["episode_return"][past])[-1] if len(past) else 0.0,
        "steps": int(flat["episode_steps"][past[-1]]) if len(past) else 0,
        "actions": flat["action"][past].tolist(),
        "rewards": _finite(flat["raw_reward"][past]),
        "valid": (flat["valid"][past] != 0).tolist(),
        "ended": _ended(memory, past).tolist(),
        "are_probabilities": memory.plan.method.samples_actions,
        **_values(memory, lane, place),
    }
    return fields, stack


def _finite(values: NDArray[np.float32]) -> list[float]:
    """Values as finite numbers, which JSON requires."""
    return np.nan_to_num(values).tolist()


def _ended(memory: Memory, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for rows whose tick ended an episode."""
    flat = memory.ring.flat
    return ((flat["terminated"][rows] | flat["truncated"][rows]) & flat["valid"][rows]) != 0


def _values(memory: Memory, lane: int, place: int) -> dict[str, Any]:
    """Action values of inference's last reply, and the action taken; reads the reply's number first.

    Inference writes the values before the reply's number: they belong to this tick or, for one picture, to the next.
    """
    reply = int(memory.mailbox.reply.values[lane])
    values = memory.mailbox.values[lane, place].copy()
    if reply == 0 or not np.isfinite(values).all():
        return {"values": None, "taken": None}
    tick = int(Mailbox.tick_of(np.array([reply]))[0])
    logged = int(memory.board.lane_logged.values[lane]) > tick
    action = memory.ring.field["action"][lane, tick % memory.run_schedule.capacity, place]
    return {"values": values.tolist(), "taken": int(action) if logged else None}
