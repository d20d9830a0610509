"""Pictures of the envs against the played frames."""

import numpy as np

from ringside.watch.source import LAST_ACTIONS, mosaic, selected_env
from shared.config.method_declaration import method_declaration
from shared.memory.mailbox import request_number
from tests.support.watched import Pretended


def test_the_mosaic_shows_the_newest_frames_and_returns(run: Pretended) -> None:
    capacity = run.memory.run_schedule.capacity
    for ticks in (5, 2, capacity):  # the last one goes round the ring
        run.play(ticks)
        done = int(run.memory.board.lane_done.values[0])
        told, frames = mosaic(run.memory, 1, 4)
        returns, ended = [(done - 1) % 7 + 1] * 4, [done % 7 == 0] * 4
        assert (told["first"], told["envs"], told["returns"], told["ended"]) == (1, 4, returns, ended)
        for i, env in enumerate(range(1, 5)):
            expected = run.memory.ring.field["frame"][env // 2, done % capacity, env % 2]
            assert np.array_equal(frames[i], expected)


def test_before_the_first_tick_there_is_nothing_to_tell(run: Pretended) -> None:
    told, frames = mosaic(run.memory, 4, 96)
    assert (told["envs"], told["returns"], told["ended"], len(frames)) == (2, [0, 0], [False, False], 2)
    one, stack = selected_env(run.memory, 0)
    assert (one["actions"], one["values"], one["return"], one["steps"], stack.shape) == ([], None, 0.0, 0, (4, 84, 84))


def test_one_env_with_its_stack_actions_rewards_and_values(run: Pretended) -> None:
    run.play(30)
    memory = run.memory
    told, stack = selected_env(memory, 3)
    assert (told["env"], told["lane"], told["owner"]) == (3, 1, 1)
    assert (told["return"], told["steps"]) == (2.0, 2)  # of the episode that began with tick 28
    history = [memory.ring.field["action"][1, tick, 1] for tick in range(30 - LAST_ACTIONS, 30)]
    assert (told["actions"], told["rewards"]) == (history, [1.0] * LAST_ACTIONS)
    assert [i for i, ended in enumerate(told["ended"]) if ended] == [0, 7, 14, 21]  # ticks 6, 13, 20, 27
    assert told["values"] == memory.mailbox.values[1, 1].tolist()
    assert told["taken"] == int(np.argmax(told["values"])) == history[-1]
    # Tick 28 begins the episode: what lies before it counts as nothing.
    assert not stack[0].any()
    for i, tick in enumerate((28, 29, 30), start=1):
        assert np.array_equal(stack[i], memory.ring.field["frame"][1, tick, 1])


def test_an_action_is_not_shown_before_the_actor_has_read_it(run: Pretended) -> None:
    run.play(2)
    run.memory.mailbox.reply.publish(0, request_number(0, 2))  # answered, and the actor has not read it yet
    told, _ = selected_env(run.memory, 0)
    assert (told["taken"], told["are_probabilities"]) == (None, False)
    object.__setattr__(run.memory.plan, "method", method_declaration("a2c"))
    assert selected_env(run.memory, 0)[0]["are_probabilities"]


def test_a_reward_that_is_no_number_spoils_no_page(run: Pretended) -> None:
    run.play(2)
    run.memory.ring.field["episode_return"][:] = np.inf
    run.memory.ring.field["raw_reward"][:] = np.nan
    assert np.isfinite(selected_env(run.memory, 0)[0]["return"])
    assert np.isfinite(mosaic(run.memory, 0, 1)[0]["returns"]).all()
