"""The actor process: steps the lanes that are ready. `Housekeeping` does everything else."""

from __future__ import annotations

from contextlib import suppress

from actors.env import Env
from actors.lane import Lane
from actors.lanes import Lanes
from actors.make_env import make_env
from shared.memory.board import Phase
from shared.memory.process_table import Role
from shared.memory.wait import Stopped
from shared.process.child import ChildSpec, enter


def main(child_spec: ChildSpec) -> None:
    """Play the lanes of one actor until the last round is committed or the run stops."""
    housekeeping = Housekeeping(child_spec)
    lanes = housekeeping.lanes
    with suppress(Stopped):
        housekeeping.start()
        while not housekeeping.finished:
            lanes.hand_over()
            worked = housekeeping.adopt_lanes() or housekeeping.keep_last_snapshots()
            for lane in lanes.ready():
                ended_round = lanes.step(lane)
                housekeeping.after_step(lane, ended_round)
                worked = True
            if not worked:
                housekeeping.wait()
        housekeeping.end()
    lanes.close()


class Housekeeping:
    """Phase, heartbeat, doorbells and new lanes of one actor.

    Attributes:
        lanes: the lanes that the actor plays.
    """

    def __init__(self, child_spec: ChildSpec) -> None:
        """Attach the memory; no lane is played yet."""
        memory, self._waiter = enter(child_spec)
        self._play, self._seed = memory.plan.config.play, memory.plan.config.run.seed
        self._board, self._process = memory.board, child_spec.process
        self._inference = child_spec.doorbells[Role.INFERENCE]
        self._learner = child_spec.doorbells[Role.LEARNER]
        actors = child_spec.doorbells.of_role(Role.ACTOR)
        self.lanes = Lanes(memory, child_spec.number, self._make_env, actors, self._waiter)

    def start(self) -> None:
        """Make the envs, wait until the memory is prepared, and start the lanes."""
        self.lanes.start()
        self._learner.ring()
        self._inference.ring()
        self._set_phase()

    @property
    def finished(self) -> bool:
        """True if the last round is committed."""
        return self._board.finished

    def adopt_lanes(self) -> bool:
        """Start a lane that became this actor's, or make an env for it. Return True if there was one."""
        adopted = self.lanes.adopt()
        if adopted:
            self._inference.ring()
        self._set_phase()
        return adopted

    def keep_last_snapshots(self) -> bool:
        """Keep the snapshots that lanes lack where the run ends, and wake the learner. Return True if there was one."""
        kept = self.lanes.keep_last_snapshots()
        if kept:
            self._learner.ring()
        return kept

    def after_step(self, lane: Lane, ended_round: bool) -> None:
        """Ring the processes that may wait for the step, and send a heartbeat."""
        if ended_round:
            self._learner.ring()
        if lane.cell_asks:
            self._inference.ring()
        self._waiter.heartbeat()

    def wait(self) -> None:
        """Use the time to make an env that will be needed; else wait until there is something to do."""
        if not self.lanes.prefetch_env():
            self._inference.ring()  # two actors that ask for a batch's last lanes at once may each miss the other's
            self._waiter.wait(lambda: self.finished or self.lanes.due)

    def end(self) -> None:
        """Say that the work is done."""
        self._board.phase[self._process] = Phase.DONE

    def _make_env(self, index: int) -> Env:
        """Make an env in the phase of a start: it may take far longer than a step."""
        phase = self._board.phase[self._process]
        self._board.phase[self._process] = Phase.STARTING
        try:
            return make_env(self._play, self._seed, index, training=True)
        finally:
            self._board.record_heartbeat(self._process)  # first: in another phase so long a silence is a hang
            self._board.phase[self._process] = phase

    def _set_phase(self) -> None:
        replaying = any(lane.replaying for lane in self.lanes.played)
        self._board.phase[self._process] = Phase.REPLAYING if replaying else Phase.WORKING
