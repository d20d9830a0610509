"""The evaluation actor: each queued version is played by the rules of the run, with random numbers of its own."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest

from actors import evaluator
from actors.evaluation import Evaluation, play_episodes
from shared.config.protocols import EvalRules
from shared.memory.board import Phase
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.process.ownership import evaluation_video
from tests.support.configurations import settled


@pytest.mark.parametrize("films", [False, True])
def test_the_evaluation_actor_plays_each_version_by_its_rules_and_number(tmp_path: Path, *, films: bool) -> None:
    evaluate = {"eval_every_steps": 80, "eval_episodes": 5, "eval_envs": 2, "eval_epsilon": 0.5, "eval_max_frames": 40}
    settings = {"network": "small", "round_steps": 80, "replay_size": 160, "total_steps": 800, "seed": 7}
    settings |= {"run_dir": tmp_path, "eval_video": films}
    memory = Memory.create(Plan(settled(env="tests.support.pixel_game:factory", **evaluate, **settings), 3))
    queue = memory.evaluations
    memory.board.prepared[0] = 1
    memory.board.commits.publish(memory.run_schedule.rounds)
    queue.done.publish(1)
    queue.queued.publish(3)

    def wait(ready: Any) -> None:
        """Inference answers at once: action 0 in every env."""
        if queue.asked is not None:
            queue.answer(queue.asked, np.zeros(2, np.uint8))
        assert ready()

    doorbells, phases = {role: Mock() for role in Role}, list[int]()
    waiter = Mock(wait=wait, heartbeat=lambda: phases.append(int(memory.board.phase[Role.EVALUATOR])))
    with patch.object(evaluator, "enter", lambda spec: (memory, waiter)):
        evaluator.main(Mock(doorbells=doorbells, process=int(Role.EVALUATOR), incarnation=0))
    assert (memory.board.phase[Role.EVALUATOR], queue.done.read()) == (Phase.DONE, 3)
    assert (doorbells[Role.SCRIBE].ring.called, phases) == (True, [Phase.STARTING] * 4), "an env may take long to make"
    points = [call.args[0] for call in waiter.note_progress.call_args_list]
    assert (points[0], points[len(points) // 2]) == ((1 << 32) + 1, (2 << 32) + 1), "as far as a new incarnation comes"
    for number in (1, 2):
        evaluation = Evaluation(memory.plan.config.play, EvalRules(0.5, 40), 7, number)
        stacks = np.zeros_like(queue.observations(memory.run_schedule.frames))
        expected = play_episodes(evaluation, stacks, lambda draws, starts: np.zeros(2, np.uint8), episodes=5)
        assert queue.returns[number].tolist() == [episode.total for episode in expected]
        assert queue.lengths[number].tolist() == [episode.steps for episode in expected] == [10] * 5
    assert queue.returns[1].tolist() != queue.returns[2].tolist(), "other blocks fall in another evaluation"
    assert all(evaluation_video(tmp_path, number).exists() == films for number in (1, 2))
    memory.arena.close()
