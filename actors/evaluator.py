"""The evaluation actor: plays the queued versions in order, in parallel with training."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from actors.evaluation import Evaluation, play_episodes
from shared.config.protocols import eval_rules
from shared.memory.board import Phase
from shared.memory.process_table import Role
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter
from shared.process.ownership import evaluation_video


def main(child_spec: ChildSpec) -> None:
    """Evaluate until the last round is committed and the queue is empty, or the run stops."""
    memory, waiter = enter(child_spec)
    board, queue, config = memory.board, memory.evaluations, memory.plan.config
    inference, scribe = child_spec.doorbells[Role.INFERENCE], child_spec.doorbells[Role.SCRIBE]
    rules = eval_rules(config.play, config.evaluate, memory.plan.method)
    observations, episodes = queue.observations(config.play.frames), memory.plan.evaluation_episodes
    asked = before = 0

    def ask(draws: NDArray[np.float64], starts: NDArray[np.bool_]) -> NDArray[np.uint8]:
        nonlocal asked
        asked += 1
        queue.draws[:], queue.starts[:] = draws, starts
        queue.ask(child_spec.incarnation, asked)
        inference.ring()
        waiter.wait(lambda: queue.asked is None)
        board.phase[child_spec.process] = Phase.WORKING
        waiter.note_progress((queue.done.read() << 32) + asked - before)
        return np.asarray(queue.actions)

    with suppress(Stopped):
        waiter.wait(lambda: bool(board.prepared[0]))
        while True:
            waiter.wait(lambda: queue.done.read() < queue.queued.read() or board.finished)
            number = queue.done.read()
            if number == queue.queued.read():
                break
            before, board.phase[child_spec.process] = asked, Phase.STARTING  # to make an env takes longer than a step
            evaluation = Evaluation(config.play, rules, config.run.seed, number)
            video = evaluation_video(config.run.run_dir, number) if config.evaluate.eval_video else None
            played = play_episodes(
                evaluation, observations, ask, episodes=episodes, video=video, heartbeat=waiter.heartbeat
            )
            place = number % len(queue.returns)
            queue.returns[place] = [episode.total for episode in played]
            queue.lengths[place] = [episode.steps for episode in played]
            queue.done.publish(number + 1)
            scribe.ring()
            inference.ring()
        board.phase[child_spec.process] = Phase.DONE
