"""The actor process: its lanes in turn, one stepping while another waits for its reply. Readable top to bottom."""

from __future__ import annotations

from actors.env import make_env
from actors.lane import Lane
from shared.board import Phase, Role
from shared.process import Birth, enter
from shared.wait import Stopped


def main(birth: Birth) -> None:
    """Play the lanes of one actor until the last round is committed or the run stops."""
    memory, waiter = enter(birth)
    board, config = memory.board, memory.plan.config
    inference, learner = birth.bells.of(Role.INFERENCE), birth.bells.of(Role.LEARNER)
    try:
        play, envs = config.play, memory.sizes.lane_envs
        lanes = []
        for index in memory.plan.lanes_of(birth.process - Role.ACTORS):
            games = [make_env(play, config.run.seed, index * envs + j, training=True) for j in range(envs)]
            lanes.append(Lane(memory, index, games, birth.incarnation))
            waiter.beat()
        waiter.wait(lambda: bool(board.prepared[0]))
        for lane in lanes:
            lane.begin()
            waiter.beat()
        learner.ring()
        inference.ring()
        before = int(board.redone[birth.process])
        while not board.finished:
            worked = False
            board.phase[birth.process] = Phase.REDOING if any(lane.redoing for lane in lanes) else Phase.WORKING
            for lane in lanes:
                if not lane.ready:
                    continue
                worked = True
                if lane.advance():
                    learner.ring()
                inference.ring()
                waiter.beat()
            board.redone[birth.process] = before + sum(lane.redone for lane in lanes)
            waiter.furthest(sum(lane.tick for lane in lanes))
            if not worked:
                waiter.wait(lambda: board.finished or any(lane.ready for lane in lanes))
        board.phase[birth.process] = Phase.DONE
    except Stopped:
        pass
