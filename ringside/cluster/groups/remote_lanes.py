"""The lanes of a gateway: it owns them and writes their memory, and a group on a node plays them.

Only answers to calls on the present host are read, and each session has its own name. So nothing of a lost group is
ever written, however late it comes. When a group is lost, its lanes go back to their snapshots, like those of an actor
that died. Their logged actions go to the next group, and ticks that the ring holds already are compared.

A node that has other software, or computes other bits, is left out. One that passes this check and later fails an audit
is left out from then on, and the run continues as inexact: all that was played is valid, but no repetition would give
it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.cluster.groups.audit import Audit
from ringside.cluster.groups.group_host import GroupError
from ringside.cluster.groups.lane_state import capture_lane
from ringside.cluster.groups.node_place import NodePlace, UnsuitableNode
from ringside.cluster.groups.parameters import ParameterCoding
from ringside.cluster.groups.parcel import LaneTicks, ParcelError, unpack
from ringside.cluster.hosts import DataLost, Host, NodeLost
from shared.errors import FatalError
from shared.memory.parts.board import Phase
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Waiter
from shared.text import count

SILENT_SECONDS = 5.0
"""Time without an answer after which a node counts as lost that plays. It answers within `ANSWER_SECONDS`."""
ANSWER_SECONDS = 0.25
"""Longest wait of a node for ticks before it answers that there are none."""
BEGIN_SECONDS = 60.0
"""The same for the first answers of a group: it reserves memory, starts a program, and gets parameters over a link of
unknown speed."""
KEEP_SECONDS = 2.0
"""Between two calls to a group that has nothing to do."""
SLOWER = 5.0
"""Multiple of its slowest answer so far that a node may take: on an overloaded machine it is slow, not lost."""
MOST_LOSSES = 20
"""Losses in a row without a new tick after which the run ends."""


class RemoteLanes:
    """The lanes of one gateway."""

    def __init__(
        self,
        memory: Memory,
        place: NodePlace,
        waiter: Waiter,
        *,
        learner: Doorbell,
        inference: Doorbell,
        actors: Sequence[Doorbell],
        note: Callable[[str], None],
    ) -> None:
        """Nothing is placed yet.

        Args:
            place: of the group that will play the lanes.
            learner, inference: their doorbells.
            actors: doorbells of all actors.
            note: is called with a sentence about each loss.
        """
        self._memory, self._place, self._waiter = memory, place, waiter
        self._learner, self._inference, self._actors, self._note = learner, inference, actors, note
        assert memory.gateways is not None, "the run has gateways"
        self._report, self._actor, self._number = memory.gateways, place.actor, place.number
        self._coding = ParameterCoding(memory.plan)
        self._board, self._run_schedule = memory.board, memory.run_schedule
        self._process = waiter.process
        self._ticks = max(0, int(self._board.furthest[self._process]))
        self._redone = int(self._board.redone[self._process])
        self._agreed_step = -1
        """Step of the newest round in which the node had this machine's bits; -1: it has played nothing."""
        self._audit: Audit | None = None
        """None: the node is known to compute other bits, or plays nothing."""
        self._begun: list[int] = []
        self._session = ""
        self._sent: dict[int, int] = {}
        """By lane the first tick that the group has not sent."""
        self._content: int | None = None
        """Updates of the parameters that the group has."""
        self._states: dict[int, tuple[int, bytes]] = {}
        """By lane the newest boundary of which the group has sent the state, and that state."""
        self._losses = 0
        self._slowest = 0.0
        """Longest time of an answer."""

    def run(self) -> None:
        """Play until the last round is committed.

        Raises:
            Stopped: the run is to end. FatalError: it cannot go on.
        """
        try:
            while not self._board.finished:
                try:
                    self._step()
                except NodeLost as lost:
                    self._lose(f"Node {self._place.name or '?'} {lost}")
                except (GroupError, ParcelError) as error:
                    self._lose(str(error))
                except UnsuitableNode as why:
                    self._place.leave_out(str(why))
                    self._forget_group()
        finally:
            self._release(gently=True)

    # --- places

    def _step(self) -> None:
        """Do the next thing: find a node, take over lanes, play a round."""
        if self._prepared:
            self._hand_over()
        if not self._place.find():
            return
        host = self._place.host
        assert host is not None, "there is a node"
        if self._can_leave():
            self._note(f"Node {self._place.name} was told to leave; {self._fate('go on elsewhere')}.")
            self._release(gently=True)
            return
        lanes = self._playable() if self._prepared else []
        begins = bool(lanes) and lanes != self._begun
        if begins:
            self._begin(host, lanes)
        self._place.examine()  # takes seconds, in which the program of a group that has begun starts
        if begins:
            self._choose_audit(lanes)
        if lanes:
            self._play(host, lanes)
        elif self._begun:
            self._release(gently=True)  # its region would only hold memory
        else:
            self._wait_awake(host, lambda: self._prepared and bool(self._playable()))

    @property
    def _prepared(self) -> bool:
        """True if the state before the first round is in memory; a node may be sought before."""
        return bool(self._board.prepared[0])

    def _lose(self, sentence: str) -> None:
        """Give the group up; its lanes will be played again from their snapshots."""
        self._losses += 1
        if self._losses > MOST_LOSSES:
            raise FatalError(f"{sentence}. That was loss {self._losses} in a row without a new step.")
        self._report.losses[self._number] += 1
        self._note(f"{sentence.removesuffix('.')}; {self._fate()}.")
        self._release()
        self._place.seek_again()

    def _can_leave(self) -> bool:
        """True if the node was told to leave, and nothing would be played again."""
        return self._place.is_leaving() and all(map(self._at_boundary, self._begun))

    def _fate(self, words: str = "will be played again") -> str:
        """Effect of the loss of a node, as half a sentence."""
        if not self._begun:
            return "it had no lanes"
        steps = self._snapshot_step(self._begun)
        return f"{count(len(self._begun), 'lane')} {words} from step {steps:,} on"

    def _release(self, *, gently: bool = False) -> None:
        self._place.release(gently=gently)
        self._forget_group()

    def _forget_group(self) -> None:
        self._begun, self._sent, self._content, self._states = [], {}, None, {}
        self._audit, self._agreed_step = None, -1

    # --- lanes

    def _owned(self) -> list[int]:
        """Lanes that this gateway owns."""
        return [int(lane) for lane in np.flatnonzero(self._board.lane_owner == self._actor)]

    def _playable(self) -> list[int]:
        """Lanes of the cells that this gateway owns as a whole: inference does not answer a part of one."""
        owned, cell = self._board.lane_owner == self._actor, self._memory.plan.cell_of
        return [lane for lane in self._owned() if owned[cell(lane)].all()]

    def _hand_over(self) -> None:
        """Hand lanes over that other actors should own: those at a boundary, or any that no group plays."""
        taken = set[int]()
        for lane in self._owned():
            wanted = int(self._board.lane_wanted[lane])
            if wanted != self._actor and (lane not in self._begun or self._at_boundary(lane)):
                self._memory.lane(lane).hand_over(wanted)
                taken.add(wanted)
        for actor in taken:
            self._actors[actor].ring()

    def _at_boundary(self, lane: int) -> bool:
        """True if the lane has played all ticks before its newest snapshot, and none after it."""
        boundary = self._memory.lane_snapshots.newest(lane)
        tick = boundary * self._run_schedule.round_ticks
        return boundary >= 0 and int(self._board.lane_logged.values[lane]) <= tick

    def _begin(self, host: Host, lanes: list[int]) -> None:
        """Have the group play these lanes."""
        self._board.phase[self._process] = Phase.REPLAYING
        self._finish_boundaries(lanes)
        states = [capture_lane(self._memory, lane) for lane in lanes]
        self._session, self._begun, self._content = secrets.token_hex(8), lanes, None
        ticks = self._run_schedule.round_ticks
        self._sent = {state.lane: max(-1, state.boundary * ticks) for state in states}
        try:
            self._call(host, "begin", self._session, states, seconds=BEGIN_SECONDS)
        except GroupError as error:
            raise UnsuitableNode(str(error)) from error

    def _choose_audit(self, lanes: list[int]) -> None:
        """Audit the answers of a node that computes the bits of this machine; record that the run is inexact else."""
        if self._place.same_bits:
            self._audit = Audit(self._memory, lanes, self._waiter, self._inference)
            self._agreed_step = self._agreed_step if self._agreed_step >= 0 else self._snapshot_step(lanes)
        else:
            self._mark_inexact(self._snapshot_step(lanes))

    def _snapshot_step(self, lanes: list[int]) -> int:
        """Step of the oldest among the newest snapshots of these lanes."""
        boundary = min(self._memory.lane_snapshots.newest(lane) for lane in lanes)
        return max(0, boundary) * self._run_schedule.round_steps

    def _mark_inexact(self, step: int) -> None:
        """Record that from this step on nodes may have acted otherwise than this machine."""
        marks = self._report.inexact_since
        if not 0 <= marks[self._number] <= step:
            marks[self._number] = step

    # --- rounds

    def _play(self, host: Host, lanes: list[int]) -> None:
        """Play the oldest round that a lane has not finished, once its version is committed."""
        finished = self._board.lane_finished
        round_ = int(finished.values[lanes].min())
        if round_ >= 0:
            self._wait_awake(
                host, lambda: self._board.committed >= round_ or self._changed(lanes) or self._lacks(lanes)
            )
            self._finish_boundaries(lanes)
            while self._lacks(lanes):  # the group may have begun where the run ends
                self._collect(host, lanes, round_)
            if self._changed(lanes) or self._board.committed < round_ or self._board.finished:
                return
            self._send(host, round_)
        self._board.phase[self._process] = Phase.WORKING
        while int(finished.values[lanes].min()) <= round_:
            self._collect(host, lanes, round_)

    def _collect(self, host: Host, lanes: list[int], round_: int) -> None:
        """File what the group has played of a round, and publish what is whole."""
        finished, done = self._board.lane_finished, self._board.lane_done
        due = {
            lane: self._sent[lane]
            for lane in lanes
            if finished.values[lane] <= round_ or self._sent[lane] < done.values[lane]
        }
        parcel = self._call_at_work(host, "collect", due, ANSWER_SECONDS)
        self._report.received_bytes[self._number] += len(parcel)
        for ticks in unpack(self._memory, self._session, due, parcel):
            self._file(ticks)
        self._audit_round()
        self._finish_boundaries(lanes)
        self._waiter.heartbeat()

    def _send(self, host: Host, round_: int) -> None:
        """Have the group play a round, with its parameters."""
        content, begun = int(self._memory.weights.content[0]), time.monotonic_ns()
        if content == self._content:
            self._call_at_work(host, "play", round_, None)
        else:
            least = BEGIN_SECONDS if self._content is None else SILENT_SECONDS
            weights = self._place.hosts.share(content, self._coded_weights)
            try:
                self._call_at_work(host, "play", round_, weights, least=least)
            except DataLost:
                self._call_at_work(host, "play", round_, self._coded_weights(), least=least)
            self._content = content
            self._report.sent_bytes[self._number] += self._coding.bytes
        self._report.transfer_ns[self._number] += time.monotonic_ns() - begun

    def _audit_round(self) -> None:
        """Compare some answers with those of this machine. Raises `UnsuitableNode` if one differs."""
        if self._audit is None:
            return
        before = self._audit.answers
        mismatch = self._audit.find_mismatch()
        agreed = self._audit.answers - before
        self._report.audits[self._number] += agreed
        if mismatch is not None:
            lane, tick = mismatch
            self._mark_inexact(self._agreed_step)
            raise UnsuitableNode(
                f"Node {self._place.name} answered tick {tick:,} of lane {lane} otherwise than this machine, though it "
                f"computed the same bits when it joined. The run is inexact from step {self._agreed_step:,} on."
            )
        if agreed:
            self._agreed_step = max(0, self._board.committed) * self._run_schedule.round_steps

    def _changed(self, lanes: list[int]) -> bool:
        """True if the gateway has other lanes to play than these, or has to hand one over."""
        if self._playable() != lanes:
            return True
        return any(self._board.lane_wanted[lane] != self._actor and self._at_boundary(lane) for lane in lanes)

    def _lacks(self, lanes: list[int]) -> bool:
        """True if a lane stands where the run ends, without a snapshot."""
        last, kept = self._board.last.read(), self._memory.lane_snapshots.newest
        return any(self._board.lane_finished.values[lane] == last and kept(lane) < last for lane in lanes)

    def _coded_weights(self) -> NDArray[np.uint16]:
        """The newest parameters as they travel. No commit replaces them before these lanes have played."""
        coded: list[NDArray[np.uint16]] = []
        self._memory.weights.read(lambda data: coded.append(self._coding.encode(data)))
        return coded[-1]

    def _file(self, ticks: LaneTicks) -> None:
        """Write what the ring does not hold yet, and compare the rest."""
        board, lane = self._board, ticks.lane
        logged, done = board.lane_logged.at(lane), board.lane_done.at(lane)
        held, begin, shift = done.read(), max(0, ticks.first), ticks.first + 1
        again = min(max(0, held - begin), ticks.last - begin)
        opened = 0
        if board.lane_finished.values[lane] >= 0:
            opened = min(max(0, held + 1 - shift), ticks.last - ticks.first)
        for name, values in ticks.results.items():
            self._put(name, lane, begin, values, again)
        for name, values in ticks.opening.items():
            self._put(name, lane, shift, values, opened)
        if ticks.last > held:
            logged.publish(ticks.last)
            done.publish(ticks.last)
        boundary = ticks.last // self._run_schedule.round_ticks
        if ticks.snapshot is not None:
            self._states[lane] = boundary, ticks.snapshot
        self._sent[lane] = ticks.last
        self._redone += again
        board.redone[self._process] = self._redone
        fresh = ticks.last - begin - again
        if fresh:
            self._ticks += fresh
            self._losses = 0
            self._waiter.note_progress(self._ticks)

    def _finish_boundaries(self, lanes: list[int]) -> None:
        """Publish the rounds of these lanes that are whole, with their snapshots."""
        done, finished, snapshots = self._board.lane_done.values, self._board.lane_finished, self._memory.lane_snapshots
        for lane in lanes:
            boundary = int(done[lane]) // self._run_schedule.round_ticks
            kept, state = self._states.get(lane, (-1, b""))
            lacks = self._board.is_snapshot(boundary) and snapshots.newest(lane) < boundary
            if lacks and kept == boundary:
                snapshots.write(lane, boundary, state)
                self._learner.ring()
                lacks = False
            if finished.values[lane] < boundary and not lacks:
                finished.publish(lane, boundary)
                self._learner.ring()

    def _put(self, name: str, lane: int, first: int, values: NDArray[np.generic], again: int) -> None:
        """Write the values of ticks from `first` on into the ring; compare the first `again` of them instead."""
        slots = self._memory.ring.field[name][lane]
        places = np.arange(first, first + len(values)) % self._run_schedule.capacity
        if again and not np.array_equal(slots[places[:again]], values[:again]):
            raise FatalError(
                f"Node {self._place.name} played lane {lane} again from tick {first} and did not repeat {name!r}: it "
                "cannot be trusted, or this machine cannot. The last checkpoint was made before."
            )
        slots[places[again:]] = values[again:]

    # --- calls

    def _call(self, host: Host, method: str, *arguments: object, seconds: float) -> Any:
        """Call the group, with heartbeats while it works."""
        return host.call(method, *arguments, seconds=seconds, meanwhile=self._waiter.heartbeat)

    def _call_at_work(self, host: Host, method: str, *arguments: object, least: float = SILENT_SECONDS) -> Any:
        """Call a group that plays. Its pace is known, so a node that falls silent is soon noticed.

        `least`: seconds without an answer that are not silence yet.
        """
        begun = time.monotonic()
        answer = self._call(host, method, *arguments, seconds=max(least, SLOWER * self._slowest))
        self._slowest = max(self._slowest, time.monotonic() - begun)
        return answer

    def _wait_awake(self, host: Host, ready: Callable[[], bool]) -> None:
        """Wait for other processes of this machine or the end of the node, and keep the group's lease meanwhile."""
        while not (ready() or self._board.finished or self._can_leave()):
            begun = time.monotonic()
            self._waiter.wait(partial(self._is_over, ready, begun + KEEP_SECONDS))
            self._call_at_work(host, "keep")

    def _is_over(self, ready: Callable[[], bool], deadline: float) -> bool:
        return ready() or self._board.finished or time.monotonic() > deadline
