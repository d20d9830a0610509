"""The actor process: its lanes in turn, one stepping while another waits for its reply. Readable top to bottom."""

from __future__ import annotations

from actors.lanes import Lanes
from actors.make_env import make_env
from shared.memory.board import Phase
from shared.memory.process_table import Role
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter


def main(child_spec: ChildSpec) -> None:
    """Play the lanes of one actor until the last round is committed or the run stops."""
    memory, waiter = enter(child_spec)
    board, config = memory.board, memory.plan.config
    inference, learner = child_spec.bells.of(Role.INFERENCE), child_spec.bells.of(Role.LEARNER)
    lanes = Lanes(
        memory,
        child_spec.number,
        lambda index: make_env(config.play, config.run.seed, index, training=True),
        child_spec.bells.actors,
        waiter.beat,
    )
    redone, progress = int(board.redone[child_spec.process]), max(0, int(board.furthest[child_spec.process]))
    try:
        while lanes.prefetch_env():
            waiter.beat()
        waiter.wait(lambda: bool(board.prepared[0]))
        while lanes.adopt():
            waiter.beat()
        learner.ring()
        inference.ring()
        while not board.finished:
            worked = lanes.adopt()
            if worked:
                inference.ring()
                waiter.beat()
            board.phase[child_spec.process] = (
                Phase.REPLAYING if any(lane.replaying for lane in lanes.played) else Phase.WORKING
            )
            for lane in tuple(lanes.played):
                if not lane.ready:
                    continue
                worked = True
                if lanes.step(lane):
                    learner.ring()
                if lane.batch_asks:
                    inference.ring()
                waiter.beat()
            board.redone[child_spec.process] = redone + lanes.redone
            waiter.furthest(progress + lanes.ticks - lanes.redone)
            if worked:
                continue
            if lanes.prefetch_env():
                waiter.beat()
            else:
                inference.ring()  # two actors that ask for a batch's last lanes at once may each miss the other's
                waiter.wait(lambda: board.finished or lanes.due)
        board.phase[child_spec.process] = Phase.DONE
    except Stopped:
        pass
