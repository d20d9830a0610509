"""The actor process: steps the lanes that are ready. `Housekeeping` does everything else."""

from __future__ import annotations

from contextlib import suppress

from actors.env import Env
from actors.lane import Lane
from actors.lanes import Lanes
from actors.make_env import make_env
from shared.memory.board import Phase
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Stopped, Waiter
from shared.process.child import ChildSpec, enter


def main(child_spec: ChildSpec) -> None:
    """Play the lanes of one actor until the last round is committed or the run stops."""
    memory, waiter = enter(child_spec)
    housekeeping = Housekeeping(memory, waiter, child_spec)
    lanes, board = housekeeping.lanes, memory.board
    with suppress(Stopped):
        housekeeping.start()
        while not board.finished:
            worked = housekeeping.tend_lanes()
            for lane in lanes.ready():
                ended_round = lanes.step(lane)
                housekeeping.after_step(lane, ended_round)
                worked = True
            if not worked:
                housekeeping.wait()
        board.phase[child_spec.process] = Phase.DONE
    lanes.close()


class Housekeeping:
    """Phase, heartbeat, doorbells and new lanes of one actor.

    Attributes:
        lanes: the lanes that the actor plays.
    """

    def __init__(self, memory: Memory, waiter: Waiter, child_spec: ChildSpec) -> None:
        """No lane is played yet."""
        self._play, self._seed = memory.plan.config.play, memory.plan.config.run.seed
        self._board, self._waiter, self._process = memory.board, waiter, child_spec.process
        doorbells = child_spec.doorbells
        self._inference, self._learner = doorbells[Role.INFERENCE], doorbells[Role.LEARNER]
        self.lanes = Lanes(memory, child_spec.number, self._make_env, doorbells.of_role(Role.ACTOR), waiter)

    def start(self) -> None:
        """Make the envs, wait until the memory is prepared, and start the lanes."""
        self.lanes.start()
        self._learner.ring()
        self._inference.ring()

    def tend_lanes(self) -> bool:
        """Hand lanes over, and start a new one or make an env for it; else keep snapshots where the run ends.

        Return True if a lane was started or kept, or an env made.
        """
        self.lanes.hand_over()
        adopted = self.lanes.adopt()
        if adopted:
            self._inference.ring()
        replaying = any(lane.replaying for lane in self.lanes.played)
        self._board.phase[self._process] = Phase.REPLAYING if replaying else Phase.WORKING
        kept = not adopted and self.lanes.keep_last_snapshots()
        if kept:
            self._learner.ring()
        return adopted or kept

    def after_step(self, lane: Lane, ended_round: bool) -> None:
        """Ring the processes that may wait for the step, and send a heartbeat."""
        if ended_round:
            self._learner.ring()
        if lane.memory.cell_asks:
            self._inference.ring()
        self._waiter.heartbeat()

    def wait(self) -> None:
        """Use the time to make an env that will be needed; else wait until there is something to do."""
        if not self.lanes.prefetch_env():
            self._inference.ring()  # two actors that ask for a batch's last lanes at once may each miss the other's
            self._waiter.wait(lambda: self._board.finished or self.lanes.due)

    def _make_env(self, index: int) -> Env:
        """Make an env in the phase of a start: it may take far longer than a step."""
        phase = self._board.phase[self._process]
        self._board.phase[self._process] = Phase.STARTING
        try:
            return make_env(self._play, self._seed, index, training=True)
        finally:
            self._board.record_heartbeat(self._process)  # first: in another phase so long a silence is a hang
            self._board.phase[self._process] = phase
