"""One mailbox a lane: the request (a number) and the reply (the number again, and one action an env).

A number is (life of the lane, tick). A lane begins a life with every actor that takes it and every time that its actor
comes back. Inference answers whenever request and reply differ, so a tick may be asked for again, and a reply to a
former life is not taken for one to this. Data first, then its number: the frames of a tick are whole before it is
asked for, the actions are whole before the reply carries the number.

Beside the actions lie the values that they were chosen by, for whoever looks on: nothing in a run reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.config.method_declaration import MethodDeclaration
from shared.config.run_schedule import RunSchedule
from shared.memory.arena import Arena
from shared.memory.layout import Field

_TICK_BITS = 40


def mailbox_fields(run_schedule: RunSchedule, actions: int) -> list[Field]:
    """The mailboxes' part of the layout; `actions` is the size of the action set."""
    return [
        Field("mail.request", "i8", (run_schedule.lanes,), "the lane's owner"),
        Field("mail.reply", "i8", (run_schedule.lanes,), "inference"),
        Field("mail.actions", "u1", (run_schedule.lanes, run_schedule.lane_envs), "inference"),
        Field("mail.values", "f4", (run_schedule.lanes, run_schedule.lane_envs, actions), "inference"),
        *(
            Field(f"mail.{name}", dtype, (run_schedule.lanes, run_schedule.lane_envs, *shape), "inference")
            for name, dtype, shape in run_schedule.method.slot_fields
        ),
    ]


def request_number(life: int, tick: int) -> int:
    """The number of a request; never 0, which an empty mailbox holds."""
    return ((life + 1) << _TICK_BITS) | tick


class Mailbox:
    """All mailboxes of a run.

    Attributes:
        declared: the fields of the slot that the method declares, by name; inference writes them beside the actions.
    """

    def __init__(self, arena: Arena, method: MethodDeclaration) -> None:
        self.request = arena["mail.request"]
        self.reply = arena["mail.reply"]
        self.actions = arena["mail.actions"]
        self.values = arena["mail.values"]
        self.declared = {name: arena[f"mail.{name}"] for name, _, _ in method.slot_fields}

    def ask(self, lane: int, life: int, tick: int) -> None:
        """Ask for the actions of `tick`, whose frames are in the ring."""
        self.request[lane] = request_number(life, tick)

    def answered(self, lane: int) -> bool:
        """Whether the reply to the last request of this life of the lane is there."""
        return bool(self.reply[lane] == self.request[lane])

    def all_ask(self, lanes: slice) -> bool:
        """Whether every one of these lanes waits for a reply."""
        return not np.count_nonzero(self.request[lanes] == self.reply[lanes])

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
            declared: by name the fields [m, lane_envs, ...] that the method declares; default: it declares none.
        """
        self.actions[lanes] = actions
        for name, field in self.declared.items():
            field[lanes] = (declared or {})[name]
        self.reply[lanes] = numbers
