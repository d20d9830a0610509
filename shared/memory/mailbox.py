"""Mailboxes, one for each lane: the request is a number, the reply the same number and an action for each env.

A number is (life of the lane, tick). A lane begins a new life with every actor that starts it, and with every restart
of that actor. The inference server answers whenever request and reply differ. So a lane may request a tick again, and
it ignores a reply to a former life. The data come before their number: the frames of a tick before the request, the
actions before the reply.

The mailbox also holds the values that chose the actions, for observers. No process of the run reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.config.run_schedule import RunSchedule
from shared.memory.layout import Field, SharedFields, Views, float32, sequence_array, uint8

_TICK_BITS = 40


def request_number(life: int, tick: int) -> int:
    """The number of a request; never 0, which an empty mailbox holds."""
    return ((life + 1) << _TICK_BITS) | tick


class Mailbox(SharedFields):
    """All mailboxes of a run.

    Attributes:
        declared: the fields that inference sends for the slot, by name (`RunSchedule.reply_fields`).
    """

    request = sequence_array("mail.request", ("lanes",), "the lane's owner", "Number of the newest request.")
    reply = sequence_array("mail.reply", ("lanes",), "inference", "Number of the request that was answered.")
    actions = uint8("mail.actions", ("lanes", "lane_envs"), "inference", "Actions of the reply.")
    values = float32("mail.values", ("lanes", "lane_envs", "actions"), "inference", "Values of all actions.")

    def __init__(self, views: Views, run_schedule: RunSchedule) -> None:
        """Bind the fields."""
        super().__init__(views)
        self.declared = {name: views[f"mail.{name}"] for name, _, _ in run_schedule.reply_fields}

    @staticmethod
    def sizes(run_schedule: RunSchedule, actions: int) -> dict[str, int]:
        """Sizes of the fields; `actions` is the size of the action set."""
        return {"lanes": run_schedule.lanes, "lane_envs": run_schedule.lane_envs, "actions": actions}

    @staticmethod
    def declared_fields(run_schedule: RunSchedule) -> list[Field]:
        """The fields that inference sends for the slot, which follow the others in the table."""
        lead = (run_schedule.lanes, run_schedule.lane_envs)
        return [
            Field(f"mail.{name}", dtype, (*lead, *shape), "inference", "Part of the reply, for the slot.")
            for name, dtype, shape in run_schedule.reply_fields
        ]

    @staticmethod
    def tick_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ticks of request numbers."""
        return numbers & ((1 << _TICK_BITS) - 1)

    def answer(
        self,
        lanes: NDArray[np.int64],
        numbers: NDArray[np.int64],
        actions: NDArray[np.uint8],
        declared: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> None:
        """Reply to requests read earlier.

        Args:
            lanes: int64[m].
            numbers: int64[m], of their requests.
            actions: uint8[m, lane_envs].
            declared: by name the fields [m, lane_envs, ...] for the slot; default: there are none.
        """
        self.actions[lanes] = actions
        for name, field in self.declared.items():
            field[lanes] = (declared or {})[name]
        self.reply.publish(lanes, numbers)
