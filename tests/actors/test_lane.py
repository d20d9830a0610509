"""A lane's slots, its write-ahead log and its return from a snapshot, with an env whose frames say what they are."""

import struct
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from actors.env import EnvError
from actors.lane import Lane, ReplayMismatchError
from ringside.records.metrics import episodes_in
from shared.exploration import Exploration
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.memory.snapshot import SNAPSHOT_BYTES
from tests.support import sampled_method
from tests.support.configurations import settled
from tests.support.counting_env import Counting

TICKS = 35
AHEAD = ("frame", "start", "valid")
"""Fields that a tick writes into the next slot."""


def memory_of_lane(**settings: Any) -> Memory:
    sizes = {"envs": 4, "lane_envs": 2, "round_steps": 40, "total_steps": 400, "replay_size": 400, "network": "small"}
    memory = Memory.create(Plan(settled(**sizes | {"actors": 1} | settings), 4))
    memory.board.commits.publish(0)
    return memory


def begin(memory: Memory, index: int = 0, *of_lane: Counting) -> Lane:
    """A lane that has started, by default with two envs alike."""
    lane = Lane(memory.lane(index), memory.plan, of_lane or (Counting(), Counting()), actor=0)
    lane.start()
    return lane


def say_played(memory: Memory, logged: int, done: int) -> None:
    """Leave so many ticks of lane 0 to its next life."""
    memory.board.lane_logged.publish(0, logged)
    memory.board.lane_done.publish(0, done)


def play(memory: Memory, lane: Lane, ticks: int) -> None:
    """Advance a lane, answering it as inference would: action = tick mod 4."""
    for _ in range(ticks):
        if not lane.ready:
            lanes = np.array([lane.index])
            memory.mailbox.answer(lanes, memory.mailbox.request.values[lanes], np.full((1, 2), lane.tick % 4, np.uint8))
        assert lane.ready
        lane.step()


def envs() -> list[Counting]:
    """The second one ends an episode with the last tick before boundary 2."""
    return [Counting(), Counting(length=20)]


def fields_of(memory: Memory) -> dict[str, np.ndarray]:
    return {name: view[0, : TICKS + 1].copy() for name, view in memory.ring.field.items()}


Played = tuple[Memory, dict[str, np.ndarray]]


@pytest.fixture
def played() -> Played:
    memory = memory_of_lane()
    play(memory, begin(memory, 0, *envs()), TICKS)
    return memory, fields_of(memory)


def test_slots_say_how_ticks_ended(played: Played) -> None:
    slot = {name: view[:, 0] for name, view in played[1].items()}
    valid, over = slot["valid"] != 0, (slot["terminated"] | slot["truncated"])[:TICKS] != 0
    assert over.sum() >= 4
    assert slot["truncated"].any()
    assert slot["life_lost"].any()
    np.testing.assert_array_equal(valid[1:], ~over)
    np.testing.assert_array_equal(slot["start"][1:], [0, *over[:-1]])
    for name in ("raw_reward", "terminated", "truncated", "episode_steps"):
        assert not slot[name][~valid].any(), "the tick of the reset brings nothing"
    for end in np.flatnonzero(over):
        assert slot["episode_steps"][end] == 5
        assert slot["episode_return"][end] == slot["raw_reward"][end - 4 : end + 1].sum()


@pytest.mark.parametrize(("logged", "done"), [(25, 25), (25, 24), (20, 20), (21, 20), (30, 30)])
def test_a_lane_that_comes_back_repeats_itself(played: Played, logged: int, done: int) -> None:
    """As if the first life had been killed: what was not done is not in the ring, what was logged is."""
    memory, field = played
    say_played(memory, logged, done)
    for name, view in memory.ring.field.items():
        view[0, done + (name in AHEAD) : TICKS + 1] = 99
    memory.ring.field["action"][0, done:logged] = field["action"][done:logged]
    boundary = done // 10
    for buffer in range(2):
        number = memory.lane_snapshots.number.at(0, buffer)
        if number.read() > boundary:
            number.publish(-1)
    lane = begin(memory, 0, *envs())
    assert memory.board.lane_finished.values[0] == 3, "what the first life finished stays so"
    assert (lane.tick, lane.replaying) == (boundary * 10, logged > boundary * 10)
    play(memory, lane, TICKS - lane.tick)
    assert lane.redone == done - boundary * 10
    again = fields_of(memory)
    for name in field:
        last = TICKS + (name in AHEAD)
        assert np.array_equal(again[name][:last], field[name][:last]), name


@pytest.mark.parametrize(("logged", "done"), [(27, 27), (28, 27), (24, 24), (20, 20), (21, 20), (0, 0), (1, 0)])
def test_a_lane_whose_env_does_not_repeat_itself_plays_no_tick_again(played: Played, logged: int, done: int) -> None:
    """Env 0 ends episodes with ticks 4, 10, 16, 22, env 1 with tick 19. The envs of the next life give other pixels."""
    memory, field = played
    say_played(memory, logged, done)
    memory.board.lane_inexact[0] = 0
    lane = begin(memory, 0, Counting(7), Counting(7, length=20))
    assert lane.tick == done
    play(memory, lane, TICKS - done)
    again = fields_of(memory)
    assert lane.redone == 0
    valid, start, truncated = again["valid"], again["start"], again["truncated"]
    for name in field:
        kept = done - (name not in AHEAD)
        assert np.array_equal(again[name][: max(0, kept)], field[name][: max(0, kept)]), name
    if done:
        cut = field["valid"][done - 1] & field["valid"][done]
        assert np.array_equal(truncated[done - 1] != 0, (field["truncated"][done - 1] | cut) != 0)
        assert np.array_equal(again["terminated"][done - 1], field["terminated"][done - 1]), "no end of the game"
        assert np.array_equal(again["frame"][done], field["frame"][done]), "bootstrapped from the last frame"
        assert (valid[done].any(), start[done + 1].all(), valid[done + 1].all()) == (False, True, True)
    expected, found = (episodes_in({name: view[None] for name, view in of.items()}, 0, done) for of in (field, again))
    assert found == expected, "an episode that was cut has no record"


def test_a_tick_that_is_not_repeated_ends_the_repetition(played: Played) -> None:
    """A user's env may differ; a game ends the run, as below."""
    memory, field = played
    say_played(memory, 27, 27)
    memory.lane_snapshots.number.at(0, int(memory.lane_snapshots.number.values[0].argmax())).publish(-1)
    lane = Lane(memory.lane(0), memory.plan, [Counting(7), Counting(7, length=20)], actor=0)
    lane._may_differ = True
    lane.start()
    assert lane.tick == 20
    assert not lane.step()
    assert (lane.tick, memory.board.env_inexact_since) == (27, 20 * memory.run_schedule.envs)
    assert memory.inexact_since == 20 * memory.run_schedule.envs
    play(memory, lane, TICKS - 27)
    assert np.array_equal(fields_of(memory)["frame"][:27], field["frame"][:27])
    assert lane.memory.read_snapshot(3) == memory.lane_snapshots.read(0, 3)


def test_files_that_are_older_than_a_cut_are_mended(played: Played) -> None:
    memory, field = played
    memory.ring.end_cut_episodes(0, TICKS)
    np.testing.assert_equal(fields_of(memory), field)
    memory.ring.field["valid"][0, 15, 1] = 0
    memory.ring.end_cut_episodes(0, TICKS)
    found = fields_of(memory)
    assert np.flatnonzero((found["truncated"] != field["truncated"])[:, 1]).tolist() == [14]
    assert found["episode_steps"][14, 1] == 0


def test_envs_hear_the_tick_of_every_step_and_reset() -> None:
    """Their random numbers are functions of it."""
    one, two = (Mock(wraps=Counting(), actions=4) for _ in range(2))
    memory, both = memory_of_lane(), Mock(one=one, two=two)
    play(memory, begin(memory, 0, one, two), 12)
    heard = [(name, arguments[0]) for name, arguments, _ in both.mock_calls if name.endswith(("reset", "step"))]
    kinds = ["reset" if tick in (5, 11) else "step" for tick in range(12)]
    expected = [("reset", 0), *((kind, tick) for tick, kind in enumerate(kinds))]
    assert heard == [(f"{env}.{kind}", tick) for kind, tick in expected for env in ("one", "two")]


def test_a_lane_explores_by_its_own_envs() -> None:
    memory = memory_of_lane()
    lane, best = Lane(memory.lane(1), memory.plan, [Counting(), Counting()], actor=0), np.array([0, 0])
    config = memory.plan.config
    other, own = (Exploration(each, memory.run_schedule, config.explore, config.run.seed) for each in (0, 1))
    expected, not_expected = ([each.choose(tick, best, [4, 4]) for tick in range(40)] for each in (own, other))
    assert [lane.choose(tick, best) for tick in range(40)] == expected != not_expected


def test_a_sampled_action_is_played_and_logged_with_its_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick played again leaves both in the ring as they were, whatever inference would answer then.

    All of a reply is in the slot before its number: a lane that is killed in between asks again.
    """
    sampled_method.register(monkeypatch)
    memory = memory_of_lane(method="sampled", batch_size=20, snapshot_every_steps=400, epsilon_end=1.0)
    lane = begin(memory)
    logs, slot, seen = lane.memory.logged, memory.ring.field, list[object]()

    def publish(value: int) -> None:
        seen.append((value, slot["action"][0, value - 1, 0], slot["log_prob"][0, value - 1, 0]))
        logs.publish(value)

    lane.memory.logged = Mock(read=logs.read, publish=publish)
    for tick in range(8):
        actions, log_prob = np.array([[tick % 4, 3]], np.uint8), np.array([[-0.5 * tick, -1.5]], np.float32)
        memory.mailbox.answer(np.array([0]), memory.mailbox.request.values[:1].copy(), actions, {"log_prob": log_prob})
        lane.step()
    assert seen == [(tick + 1, tick % 4, -0.5 * tick) for tick in range(8)]

    def check_logged() -> None:
        assert slot["action"][0, :8].tolist() == [[tick % 4, 3] for tick in range(8)]
        assert slot["log_prob"][0, :8].tolist() == [[-0.5 * tick, -1.5] for tick in range(8)]

    check_logged()
    memory.mailbox.declared["log_prob"][:] = 99.0
    again = begin(memory)
    for _ in range(8):
        assert again.replaying
        again.step()
    check_logged()


RESULTS = ("raw_reward", "terminated", "truncated", "life_lost", "episode_return", "episode_steps")


@pytest.mark.parametrize("name", [*RESULTS, "start", "valid", "frame"])
def test_a_number_or_pixel_that_is_not_repeated_is_reported(played: Played, name: str) -> None:
    memory, _ = played
    memory.lane_snapshots.clear()
    say_played(memory, TICKS, TICKS)
    view = memory.ring.field[name][0, 5 + (name not in RESULTS), 1:]  # of the next tick it opens the slot
    view[(*np.array(view.shape) // 2,)] += 1
    other = begin(memory, 0, *envs())  # from the first tick: without a snapshot the episodes are opened again
    with pytest.raises(ReplayMismatchError, match="Env 1 played tick 5 again"):
        play(memory, other, TICKS)


def _header(length: int, steps: int = 0) -> bytes:
    return struct.pack("<qqdq", length, 0, 0.0, steps)


DAMAGED = "The snapshot of lane 1 is damaged: "
DAMAGES = [
    (b"", DAMAGED + "it ends too early"),
    (_header(8) + bytes(8) + _header(8)[:-1], DAMAGED + "it ends too early"),
    (_header(9) + bytes(8), DAMAGED + "the header of env 0 is none"),
    (_header(-1) + bytes(8), DAMAGED + "the header of env 0 is none"),
    (_header(8, -1) + bytes(8), DAMAGED + "the header of env 0 is none"),
    (_header(8) + bytes(8) + _header(8, 1 << 16) + bytes(8), DAMAGED + "the header of env 1 is none"),
    (_header(0) * 2, "Lane 1 cannot be restored: These 0 bytes are foreign."),
]


@pytest.mark.parametrize(("data", "says"), DAMAGES)
def test_a_damaged_snapshot_is_a_sentence(monkeypatch: pytest.MonkeyPatch, data: bytes, says: str) -> None:
    def refuse(env: Counting, data: bytes, *_: object) -> None:
        if not data:
            raise EnvError("These 0 bytes are foreign.")

    memory = memory_of_lane()
    memory.lane_snapshots.write(1, 0, data)
    monkeypatch.setattr(Counting, "restore", refuse)
    with pytest.raises(EnvError) as raised:
        begin(memory, 1)
    assert says in str(raised.value)


def test_a_snapshot_that_has_no_room_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "snapshot", lambda self: bytes(SNAPSHOT_BYTES + 1))
    with pytest.raises(EnvError, match=r"Env 2 needs 57345 bytes to be kept, more than 57344\."):
        begin(memory_of_lane(), 1)
