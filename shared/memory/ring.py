"""The rings: the recent ticks of every lane, every frame written once.

Slot `t % capacity` of a lane holds tick `t`: the observation `o_t`, the action `a_t`, its reward, and how the tick
ended. After an end, tick `t + 1` holds the true last frame with `valid = 0` (never sampled as a start, its action
ignored); tick `t + 2` opens the next episode with `start = 1`.

There are no locks, because each part has one writer: only a lane's actor writes its slots; the learner reads finished
ticks, inference reads the newest stack of a lane that asked (shared/README.md, rule 3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.config.method_declaration import SlotField
from shared.config.run_schedule import RECURRENT_STATE, RunSchedule
from shared.frame_shape import FrameShape
from shared.memory.layout import Field, Views

SLOT_FIELDS: tuple[SlotField, ...] = (
    ("frame", "u1", FrameShape().frame),  # the newest frame of o_t
    ("action", "u1", ()),  # a_t, index into the game's action set
    ("raw_reward", "f4", ()),  # r_t, unclipped
    ("terminated", "u1", ()),  # the game ended with this tick
    ("truncated", "u1", ()),  # the time limit ended the episode with this tick
    ("life_lost", "u1", ()),  # a life was lost in this tick, and the protocol ends the return there
    ("start", "u1", ()),  # the stack begins here: earlier frames count as zeros
    ("valid", "u1", ()),  # 0: the true last frame after an end, not a state to act from
    ("episode_return", "f4", ()),  # raw return of the episode up to and including r_t
    ("episode_steps", "u2", ()),  # its steps up to and including this one
)
"""Fields of a slot with every method, with frames of the default shape."""


def slot_fields(run_schedule: RunSchedule) -> tuple[SlotField, ...]:
    """Fields of a slot of a run: those that inference sends with the action stand after it."""
    fields, frame = SLOT_FIELDS[:2] + run_schedule.reply_fields + SLOT_FIELDS[2:], run_schedule.frames.frame
    return tuple((name, dtype, frame if name == "frame" else shape) for name, dtype, shape in fields)


def ring_fields(run_schedule: RunSchedule) -> dict[str, Field]:
    """The ring's part of the table, by name of the slot's field: shape [lanes, capacity, lane_envs, ...]."""
    lead = (run_schedule.lanes, run_schedule.capacity, run_schedule.lane_envs)
    slots = slot_fields(run_schedule)
    return {name: Field(f"ring.{name}", dtype, lead + shape, "the lane's owner") for name, dtype, shape in slots}


class Ring:
    """Views of all rings, and the arithmetic of ticks and rows.

    A *row* numbers the slots of all rings: `row(env, tick) = (lane * capacity + tick % capacity) * lane_envs + j`,
    the index into the flattened fields of `flat`.

    Attributes:
        planes: uint8[planes, size, size], the frames of all rows as planes; `plane_rows` numbers them.
    """

    def __init__(self, views: Views, run_schedule: RunSchedule) -> None:
        """Bind the fields."""
        self.run_schedule = run_schedule
        self.field = {name: views[item.name] for name, item in ring_fields(run_schedule).items()}
        rows = run_schedule.lanes * run_schedule.capacity * run_schedule.lane_envs
        self.flat = {name: view.reshape(rows, *view.shape[3:]) for name, view in self.field.items()}
        size = run_schedule.frames.size
        self.planes = self.flat["frame"].reshape(-1, size, size)

    def end_cut_episodes(self, first: int, stop: int) -> None:
        """Mark cut episodes in the ticks [first, stop), read from files that may be older than the mark.

        Such a tick did not end, and the next one is not valid (actors/lane.py).
        """
        slots = np.arange(first, stop + 1) % self.run_schedule.capacity
        valid = self.field["valid"][:, slots] != 0
        ended = (self.field["terminated"][:, slots] | self.field["truncated"][:, slots]) != 0
        lane, tick, env = np.nonzero(valid[:, :-1] & ~valid[:, 1:] & ~ended[:, :-1])
        self.field["truncated"][lane, slots[tick], env] = 1
        self.field["episode_steps"][lane, slots[tick], env] = 0

    def rows(self, env: NDArray[np.int64], tick: NDArray[np.int64], ticks: int | None = None) -> NDArray[np.int64]:
        """Rows of (env, tick) pairs, which broadcast, in lanes of so many `ticks`; default: those of the ring."""
        lane, j = np.divmod(env, self.run_schedule.lane_envs)
        ticks = ticks or self.run_schedule.capacity
        return (lane * ticks + tick % ticks) * self.run_schedule.lane_envs + j

    def stack_rows(
        self, env: NDArray[np.int64], tick: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows of the frames of the stack that ends with t, oldest first, and which of them belong to the episode.

        Args:
            env, tick: int64[n].

        Returns:
            rows int64[n, stack] and mask bool[n, stack]; a masked-out frame counts as zeros. Nothing before tick 0
            belongs.
        """
        ticks = tick[:, None] + np.arange(1 - self.run_schedule.frames.stack, 1)
        rows = self.rows(env[:, None], ticks)
        start = self.flat["start"][rows] != 0
        later_start = np.zeros_like(start)  # True if a stack begins at some frame after this one, up to t
        later_start[:, :-1] = np.logical_or.accumulate(start[:, :0:-1], axis=1)[:, ::-1]
        return rows, ~later_start & (ticks >= 0)

    def recurrent_state(self, env: NDArray[np.int64], tick: NDArray[np.int64]) -> NDArray[np.float32]:
        """State float32[n, 2, units] with which an LSTM reads the stacks of (env, tick).

        It is that after the tick before, or zeros where an episode begins.
        """
        state: NDArray[np.float32] = self.flat[RECURRENT_STATE][self.rows(env, tick - 1)]
        state[self.flat["start"][self.rows(env, tick)] != 0] = 0
        return state


def plane_rows(
    rows: NDArray[np.int64], mask: NDArray[np.bool_], channels: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Numbers of the planes of frames, and which of them count: a frame in color has three, which lie side by side.

    Args:
        rows, mask: int64 and bool[n, k], of the frames.
        channels: planes of a frame.

    Returns:
        int64 and bool[n, k * channels].
    """
    if channels == 1:
        return rows, mask
    planes = rows[:, :, None] * channels + np.arange(channels)
    return planes.reshape(len(rows), rows.shape[1] * channels), np.repeat(mask, channels, axis=1)
