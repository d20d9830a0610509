"""Evaluation beside training: a queue of versions, and the mailbox of the evaluation actor.

The learner queues the version of a fixed step. The evaluator plays the queue in order. The scribe writes the returns
to the metrics, which frees the place. Late evaluations wait in the queue; when it is full, the learner waits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.frame_shape import FrameShape
from shared.memory.layout import SharedFields, float32, float64, int64, sequence, uint8
from shared.memory.mailbox import request_number

EVALUATION_QUEUE = 4


def evaluations_until(boundary: int, round_steps: int, every: int) -> int:
    """Versions that are queued in the rounds before `boundary`: after each that reaches a multiple of `every` steps."""
    return min(boundary, boundary * round_steps // every) if every else 0


def next_evaluation_boundary(boundary: int, round_steps: int, every: int) -> int:
    """The first boundary after `boundary` at which a version is queued."""
    number = evaluations_until(boundary, round_steps, every) + 1
    return max(boundary + 1, -(-number * every // round_steps))


class EvaluationHistory(NamedTuple):
    """Evaluations of a run whose --eval-every-steps may have changed at a resume."""

    every: int
    """The present --eval-every-steps; 0: none."""
    before: int = 0
    """Versions queued before `since`."""
    since: int = 0
    """Boundary from which `every` holds."""

    def until(self, boundary: int, round_steps: int) -> int:
        """Versions that are queued in the rounds before `boundary`."""
        now, then = (evaluations_until(at, round_steps, self.every) for at in (boundary, self.since))
        return self.before + max(0, now - then)

    @property
    def places(self) -> int:
        """Places of the queue."""
        return EVALUATION_QUEUE if self.every else 1


class Evaluations(SharedFields):
    """The queue and the evaluator's mailbox. Evaluation `k` (from 0) lies in place `k % EVALUATION_QUEUE`."""

    data = float32("evaluation.data", ("evaluations", "evaluated"), "learner", "Parameters of the queued versions.")
    step = int64("evaluation.step", ("evaluations",), "learner", "Steps of the run at which they were queued.")
    queued = sequence("evaluation.queued", "learner", "Versions queued.")
    returns = float64("evaluation.returns", ("evaluations", "episodes"), "evaluator", "Raw returns.")
    lengths = int64("evaluation.lengths", ("evaluations", "episodes"), "evaluator", "Steps of the episodes.")
    done = sequence("evaluation.done", "evaluator", "Versions played to the end.")
    stacks = uint8(
        "evaluation.stacks",
        ("evaluation_envs", "frame_stack", "frame_lines", "frame_size"),
        "evaluator",
        "Stacks of the request, the planes of a frame one below the other.",
    )
    draws = float64(
        "evaluation.draws", ("evaluation_envs",), "evaluator", "Uniform numbers at which a policy is sampled."
    )
    starts = uint8("evaluation.starts", ("evaluation_envs",), "evaluator", "1: the stack opens an episode.")
    request = sequence("evaluation.request", "evaluator", "Number of the newest request.")
    reply = sequence("evaluation.reply", "inference", "Number of the request that was answered.")
    actions = uint8("evaluation.actions", ("evaluation_envs",), "inference", "Actions of the reply.")
    recurrent_state = float32(
        "evaluation.recurrent_state",
        (2, "evaluation_envs", 2, "evaluation_units"),
        "inference",
        "States of an LSTM after the newest requests of even and of odd numbers.",
    )
    logged = sequence("evaluation.logged", "scribe", "Versions whose returns are written down.")

    @staticmethod
    def sizes(parameters: int, envs: int, episodes: int, frames: FrameShape, units: int = 0) -> dict[str, int]:
        """Sizes of the fields for versions of `parameters` float32, with an LSTM of `units`; 0: there is none.

        A run without evaluation has next to none.
        """
        return {
            "evaluations": EVALUATION_QUEUE if episodes else 1,
            "evaluated": parameters if episodes else 1,
            "episodes": max(1, episodes),
            "evaluation_envs": envs if episodes else 1,
            "frame_stack": frames.stack,
            "frame_lines": frames.channels * frames.size,
            "frame_size": frames.size,
            "evaluation_units": units if episodes and units else 1,
        }

    def observations(self, frames: FrameShape) -> NDArray[np.uint8]:
        """The stacks as observations uint8[envs, *frames.observation]."""
        return self.stacks.reshape(-1, *frames.observation)

    @property
    def pending(self) -> bool:
        """True if a queued version has not been played to the end and written down."""
        return self.logged.read() < self.queued.read()

    @property
    def full(self) -> bool:
        """True if no place is free."""
        return self.queued.read() - self.logged.read() >= len(self.data)

    def ask(self, incarnation: int, number: int) -> None:
        """Ask for the actions of stacks and draws, the `number`-th request of this incarnation of the evaluator."""
        self.request.publish(request_number(incarnation, number))

    @property
    def asked(self) -> int | None:
        """The number of the request that waits for its reply; None: there is none."""
        number = self.request.read()
        return number if number != self.reply.read() else None

    def answer(self, number: int, actions: NDArray[np.uint8]) -> None:
        """Reply uint8[envs] to the request of that number, which was read before its stacks."""
        self.actions[:] = actions
        self.reply.publish(number)
