"""Evaluation beside training: a queue of versions, and the mailbox of the evaluation actor.

The learner queues the version of a fixed step; the evaluator plays the queue in order; the scribe writes the returns
down and so frees the place. Late evaluations wait in the queue, and the learner waits rather than drop one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.config.settings import FRAME_SIDE, STACK
from shared.memory.arena import Arena
from shared.memory.layout import Field
from shared.memory.mailbox import request_number

EVALUATION_QUEUE = 4


def evaluations_until(boundary: int, round_steps: int, every: int) -> int:
    """Versions that are queued in the rounds before `boundary`: after each that reaches a multiple of `every` steps."""
    return min(boundary, boundary * round_steps // every) if every else 0


def evaluation_fields(parameters: int, envs: int, episodes: int) -> list[Field]:
    """The layout's part; one place of the queue holds `parameters` float32 and the results of `episodes`."""
    queue = EVALUATION_QUEUE if episodes else 1
    playing = envs if episodes else 1
    return [
        Field("evaluation.data", "f4", (queue, parameters if episodes else 1), "learner"),
        Field("evaluation.step", "i8", (queue,), "learner"),
        Field("evaluation.queued", "i8", (1,), "learner"),
        Field("evaluation.returns", "f8", (queue, max(1, episodes)), "evaluator"),
        Field("evaluation.lengths", "i8", (queue, max(1, episodes)), "evaluator"),
        Field("evaluation.done", "i8", (1,), "evaluator"),
        Field("evaluation.stacks", "u1", (playing, STACK, FRAME_SIDE, FRAME_SIDE), "evaluator"),
        Field("evaluation.request", "i8", (1,), "evaluator"),
        Field("evaluation.reply", "i8", (1,), "inference"),
        Field("evaluation.actions", "u1", (playing,), "inference"),
        Field("evaluation.logged", "i8", (1,), "scribe"),
    ]


class Evaluations:
    """The queue and the evaluator's mailbox. Evaluation `k` (from 0) lies in place `k % EVALUATION_QUEUE`."""

    def __init__(self, arena: Arena) -> None:
        self.data = arena["evaluation.data"]
        self.step = arena["evaluation.step"]
        self.queued = arena["evaluation.queued"]
        self.returns = arena["evaluation.returns"]
        self.lengths = arena["evaluation.lengths"]
        self.done = arena["evaluation.done"]
        self.stacks = arena["evaluation.stacks"]
        self._request = arena["evaluation.request"]
        self._reply = arena["evaluation.reply"]
        self.actions = arena["evaluation.actions"]
        self.logged = arena["evaluation.logged"]

    @property
    def pending(self) -> bool:
        """Whether a queued version has not been played to the end and written down."""
        return bool(self.logged[0] < self.queued[0])

    @property
    def full(self) -> bool:
        """Whether no place is free."""
        return bool(self.queued[0] - self.logged[0] >= len(self.data))

    def ask(self, incarnation: int, number: int) -> None:
        """Ask for the actions of the stacks, the `number`-th question of this life of the evaluator."""
        self._request[0] = request_number(incarnation, number)

    @property
    def asked(self) -> int | None:
        """The number of the question that waits for its answer; None: there is none."""
        number = int(self._request[0])
        return number if number != self._reply[0] else None

    def answer(self, number: int, actions: NDArray[np.uint8]) -> None:
        """Reply uint8[envs] to the question of that number, read before its stacks were."""
        self.actions[:] = actions
        self._reply[0] = number
