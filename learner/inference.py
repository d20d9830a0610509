"""The inference server: answers all lanes in batches of a fixed shape, with the newest published parameters.

Env `e` has the same row of its batch in every answer, and a batch always has the same shape. So numbers depend neither
on neighbors nor on scheduling. On a CPU the server answers a cell of lanes when all its lanes wait, so every row is
used. On a GPU one batch of all envs answers all lanes that wait.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray

from learner.answers import Answers
from learner.engine.device import device_bytes_reader, prepare_torch
from learner.engine.faults import device_faults_named
from learner.networks.categorical import sample_at
from learner.networks.policy import Policy, acting_policy, greedy
from shared.memory.board import Phase
from shared.memory.mailbox import Mailbox
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter


class Server:
    """Batches of lanes, answered by one policy: a lane has the same row in every pass."""

    def __init__(self, memory: Memory, policy: Policy) -> None:
        run_schedule, lanes = memory.run_schedule, memory.plan.batch_lanes
        self._memory, self._policy, self._partial = memory, policy, memory.plan.partial_batches
        self._answers = Answers(memory, policy)
        self._batches = [np.arange(first, first + lanes) for first in range(0, run_schedule.lanes, lanes)]
        self._loaded = -1

    def due(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Lanes to be answered now: for each batch that is due, (lanes, their request numbers)."""
        board, mailbox, run_schedule = self._memory.board, self._memory.mailbox, self._memory.run_schedule
        committed = board.committed
        if committed < 0 or self._memory.weights.current < 0:
            return []
        numbers = mailbox.request.values.copy()  # one look, so that what is answered is what was seen
        waiting = numbers != mailbox.reply.values
        rounds = Mailbox.tick_of(numbers) // run_schedule.round_ticks
        servable = waiting & (rounds < committed + run_schedule.max_rounds_ahead) & (rounds < board.last.read())
        due = []
        for lanes in self._batches:
            mine = servable[lanes]
            if mine.any() and (self._partial or waiting[lanes].all()):
                due.append((lanes[mine], numbers[lanes[mine]]))
        return due

    def answer(self, lanes: NDArray[np.int64], numbers: NDArray[np.int64]) -> int:
        """Reply to lanes of one batch, with the newest publication; return the rows used."""
        memory = self._memory
        if memory.weights.current != self._loaded:
            self._loaded = memory.weights.read(self._policy.take)
        return self._answers.answer(lanes, numbers)


class EvaluationServer:
    """Answers the evaluation actor with the version that it plays, in a separate batch.

    Actions are greedy, or sampled at the draws of the request.
    """

    def __init__(self, memory: Memory, policy: Policy) -> None:
        self._queue, self._policy, self._loaded = memory.evaluations, policy, -1
        self._observations = memory.evaluations.observations(memory.run_schedule.frames)
        self._samples = memory.plan.config.evaluate.eval_actions == "sample"
        self._recurrent = memory.plan.network.recurrent > 0

    def due(self) -> bool:
        """True if the evaluator waits."""
        return self._queue.asked is not None

    def answer(self) -> None:
        """Reply to the evaluator; it plays evaluation number `done`."""
        queue = self._queue
        question, number = queue.asked, queue.done.read()
        assert question is not None, "answer only what is due"
        if number != self._loaded:
            self._policy.load(queue.data[number % len(queue.data)])
            self._loaded = number
        values = self._values(question)
        chosen = sample_at(values, queue.draws)[0] if self._samples else greedy(values)
        queue.answer(question, chosen.astype(np.uint8))

    def _values(self, question: int) -> NDArray[np.float32]:
        """Values of the stacks of a request.

        States before and after a request lie in different places. So a server that was killed before its reply, and is
        started again, gives the same one.
        """
        queue, policy = self._queue, self._policy
        if not self._recurrent:
            return policy.values(self._observations)
        place = question % 2
        state = queue.recurrent_state[1 - place].copy()
        state[queue.starts != 0] = 0
        values = policy.values(self._observations, state)
        queue.recurrent_state[place] = policy.next_state
        return values


def main(child_spec: ChildSpec) -> None:
    """Serve until the last round is committed and evaluated, or the run stops.

    Raises:
        DeviceFault: the GPU does not do its part.
    """
    with suppress(Stopped), device_faults_named():
        memory, waiter = enter(child_spec)
        board, config, machine = memory.board, memory.plan.config, memory.plan.config.machine
        device = torch.device(machine.acts_on)
        waiter.device_bytes = device_bytes_reader(device)
        prepare_torch(device, machine.acts_in, machine.inference_threads, deterministic=machine.is_deterministic)
        server = evaluation = None
        if not memory.run_schedule.workers:  # which answer for themselves; then the server plays evaluations alone
            server = Server(memory, acting_policy(memory.plan, machine.inference_batch, config.run.seed))
        if memory.plan.evaluation_episodes:
            evaluation = EvaluationServer(memory, acting_policy(memory.plan, len(memory.evaluations.stacks)))
        actors, evaluator = child_spec.doorbells.of_role(Role.ACTOR), child_spec.doorbells[Role.EVALUATOR]
        # In all incarnations: rows for lanes, or where there is no server for them, answers to evaluations.
        served = max(0, int(board.furthest[child_spec.process]))

        def lanes_due() -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
            return [] if server is None else server.due()

        def finished() -> bool:
            return board.finished and not memory.evaluations.pending

        board.phase[child_spec.process] = Phase.WORKING
        while not finished():
            due = lanes_due()
            if server is not None:
                for lanes, numbers in due:
                    served += server.answer(lanes, numbers)
                    for actor in np.unique(board.lane_owner[lanes]):
                        actors[actor].ring()
                    waiter.heartbeat()
                waiter.note_progress(served)
            if evaluation is not None and evaluation.due():
                evaluation.answer()
                evaluator.ring()
                if server is None:
                    served += 1
                    waiter.note_progress(served)
            elif not due:
                waiter.wait(lambda: finished() or (evaluation is not None and evaluation.due()) or bool(lanes_due()))
        board.phase[child_spec.process] = Phase.DONE
