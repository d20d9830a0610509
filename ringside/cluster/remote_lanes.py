"""The lanes of a gateway: it owns them and writes their memory, and a group on a node plays them.

Only answers to calls on the present host are read. So nothing of a lost group is ever written, however late it comes.
When a group is lost, its lanes go back to their snapshots, like those of an actor that died. Their logged actions go to
the next group, and ticks that the ring holds already are compared.

A node that has other software, or computes other bits, is left out before it plays.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ringside.cluster.group_host import GroupHost
from ringside.cluster.node_object import Host, Hosts, Node, NodeLost, fingerprint
from ringside.cluster.parcel import OPENING, LaneTicks, ParcelError, capture_lane, ticks_by_field, unpack
from shared.errors import FatalError, RingsideError, RunFailed
from shared.files.disk_trouble import log_line
from shared.memory.board import Phase
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Waiter
from shared.process.child import Doorbells
from shared.text import count, refused

EXAMINE_SECONDS = 180.0
"""Longest silence of a node under examination, which computes for a while."""
PLACE_SECONDS = 10.0
"""Wait for a free node after which the lanes go to other gateways, or to the actors of this machine."""
POLL_SECONDS = 0.25
"""Longest wait for a place in one call."""
SILENT_SECONDS = 5.0
"""Longest silence of a node that plays; it answers within `ANSWER_SECONDS`."""
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


class UnsuitableNode(RingsideError):
    """A node must not play. The message is a sentence."""


@dataclass
class _Group:
    """A group, from the search for its place to its end, and what was exchanged with it."""

    host: Host
    node: Node | None = None
    """None: it is not placed yet."""
    same_bits: bool = True
    """True if the node computes the bits of this machine."""
    lanes: list[int] = field(default_factory=list)
    """Lanes that it plays."""
    sent: dict[int, int] = field(default_factory=dict)
    """By lane the first tick that the group has not sent."""
    content: int | None = None
    """Updates of the parameters that the group has."""
    states: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """By lane the newest boundary of which the group has sent the state, and that state."""


class RemoteLanes:
    """The lanes of one gateway."""

    def __init__(self, memory: Memory, actor: int, waiter: Waiter, doorbells: Doorbells, hosts: Hosts) -> None:
        """Nothing is placed yet. `actor`: number of the gateway among the actors."""
        assert memory.gateways is not None, "the run has gateways"
        self._memory, self._waiter, self._doorbells, self._hosts = memory, waiter, doorbells, hosts
        self._learner, self._settings = doorbells[Role.LEARNER], memory.plan.elsewhere.settings
        self._report, self._actor, self._number = memory.gateways, actor, actor - memory.plan.config.machine.actors
        self._report.write_name(self._number, "")
        self._board, self._run_schedule = memory.board, memory.run_schedule
        self._process = waiter.process
        self._vacant = self._board.vacant[self._process : self._process + 1]
        self._parameters = np.empty_like(memory.weights.data[0])
        self._sought_since = time.monotonic()
        """Infinite: there is a node that suits."""
        self._group = self._sought()
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
                    self._lose(f"{self._name} {lost}")
                except (RunFailed, ParcelError) as error:
                    self._lose(str(error))
                except UnsuitableNode as why:
                    self._note(f"{why} It is left out.")
                    with suppress(NodeLost):  # then it is gone anyway
                        self._hosts.leave_out(self._group.host)
                    self._replace()
        finally:
            self._group.host.release(gently=True)
            self._report.write_name(self._number, "")

    # --- places

    def _step(self) -> None:
        """Do the next thing: find a node, take over lanes, play a round."""
        if self._board.prepared[0]:
            self._hand_over()  # else the state before the first round is not in memory; a node may be sought before
        if not self._find():
            return
        lanes = self._playable() if self._board.prepared[0] else []
        if lanes:
            if lanes != self._group.lanes:
                self._begin(lanes)
            self._play(lanes)
        elif self._group.lanes:
            self._replace(gently=True)  # its region would only hold memory
        else:
            self._wait_awake(lambda: self._board.prepared[0] and bool(self._playable()))

    @property
    def _name(self) -> str:
        """Name of the node in a sentence."""
        return f"Node {self._group.node.name if self._group.node else '?'}"

    def _note(self, sentence: str) -> None:
        """Write a sentence into the log, and have the launcher show it."""
        log_line(sentence)
        self._report.tell(self._number, sentence)

    def _sought(self) -> _Group:
        """A new group, whose place is sought from now on."""
        return _Group(self._hosts.place(GroupHost, self._memory.plan, self._settings["cores"]))

    def _replace(self, *, gently: bool = False) -> None:
        """Give the group up, and seek a place for another one."""
        self._group.host.release(gently=gently)
        self._group = self._sought()
        self._report.write_name(self._number, "")
        self._sought_since = min(self._sought_since, time.monotonic())
        self._tell_vacancy()

    def _tell_vacancy(self) -> None:
        """Say that there is no node, if the search has lasted for too long; others get the lanes."""
        if time.monotonic() - self._sought_since > PLACE_SECONDS and not self._vacant[0]:
            self._note(f"There is no free node for actor {self._actor}: its lanes are played elsewhere.")
            self._vacant[0] = 1

    def _find(self) -> bool:
        """Wait a moment for a node, and examine it, which takes seconds; True if there is one.

        Without one for too long the gateway is vacant.

        Raises:
            NodeLost: the node was lost. UnsuitableNode: it has other software or computes other bits; leave it out.
        """
        group = self._group
        if group.node is not None:
            return True
        deadline = time.monotonic() + POLL_SECONDS
        self._waiter.wait(lambda: group.host.ready(0.0) or time.monotonic() > deadline)
        if not group.host.ready(0.0):
            self._tell_vacancy()
            return False
        group.node = node = self._call("describe", seconds=EXAMINE_SECONDS)
        if sentence := node.difference(fingerprint()):
            raise UnsuitableNode(sentence)
        with refused("A node does not suit:", RunFailed, UnsuitableNode):
            group.same_bits = self._call("probe", seconds=EXAMINE_SECONDS) == self._settings["numerics"]
        if not group.same_bits:
            if not self._settings["mixed"]:
                raise UnsuitableNode(node.other_bits)
            self._note(f"{self._name} computes other last bits than this machine: the run is inexact from here on.")
        self._sought_since, self._vacant[0] = math.inf, 0
        self._report.write_name(self._number, node.name)
        self._note(f"Lanes of actor {self._actor} are played on node {node.name}.")
        return True

    def _lose(self, sentence: str) -> None:
        """Give the group up; its lanes will be played again from their snapshots."""
        self._losses += 1
        if self._losses > MOST_LOSSES:
            raise FatalError(f"{sentence}. That was loss {self._losses} in a row without a new step.")
        self._report.losses[self._number] += 1
        lanes, effect = self._group.lanes, "it had no lanes"
        if lanes:
            effect = f"{count(len(lanes), 'lane')} will be played again from step {self._snapshot_step(lanes):,} on"
        self._note(f"{sentence.removesuffix('.')}; {effect}.")
        self._replace()

    # --- lanes

    def _playable(self) -> list[int]:
        """Lanes of the cells that this gateway owns as a whole: inference does not answer a part of one."""
        owned, cell = self._board.lane_owner == self._actor, self._memory.plan.cell_of
        return [lane for lane in np.flatnonzero(owned).tolist() if owned[cell(lane)].all()]

    def _hand_over(self) -> None:
        """Hand lanes over that other actors should own: those at a boundary, or any that no group plays."""
        for lane in np.flatnonzero(self._board.lane_owner == self._actor).tolist():
            wanted = int(self._board.lane_wanted[lane])
            if wanted != self._actor and (lane not in self._group.lanes or self._at_boundary(lane)):
                self._memory.lane(lane).hand_over(wanted)
                self._doorbells.of_role(Role.ACTOR)[wanted].ring()

    def _at_boundary(self, lane: int) -> bool:
        """True if the lane has played all ticks before its newest snapshot, and none after it."""
        boundary = self._memory.lane_snapshots.newest(lane)
        ticks = boundary * self._run_schedule.round_ticks
        return boundary >= 0 and int(self._board.lane_logged.values[lane]) <= ticks

    def _begin(self, lanes: list[int]) -> None:
        """Have the group play these lanes."""
        self._board.phase[self._process] = Phase.REPLAYING
        self._finish_boundaries(lanes)
        states = [capture_lane(self._memory, lane) for lane in lanes]
        ticks = self._run_schedule.round_ticks
        sent = {state.lane: max(-1, state.boundary * ticks) for state in states}
        self._group = replace(self._group, lanes=lanes, sent=sent, content=None, states={})
        with refused("A node does not suit:", RunFailed, UnsuitableNode):
            self._call("begin", states, seconds=BEGIN_SECONDS)
        marks, step = self._report.inexact_since, self._snapshot_step(lanes)
        if not self._group.same_bits and not 0 <= marks[self._number] <= step:
            marks[self._number] = step  # from here on nodes may act otherwise than this machine

    def _snapshot_step(self, lanes: list[int]) -> int:
        """Step of the oldest among the newest snapshots of these lanes."""
        boundary = min(self._memory.lane_snapshots.newest(lane) for lane in lanes)
        return max(0, boundary) * self._run_schedule.round_steps

    # --- rounds

    def _play(self, lanes: list[int]) -> None:
        """Play the oldest round that a lane has not finished, once its version is committed."""
        finished, board = self._board.lane_finished.values, self._board
        round_ = int(finished[lanes].min())
        if round_ >= 0:
            self._wait_awake(lambda: board.committed >= round_ or self._changed(lanes) or self._lacks(lanes))
            self._finish_boundaries(lanes)
            while self._lacks(lanes):  # the group may have begun where the run ends
                self._collect(lanes, round_)
            if self._changed(lanes) or board.committed < round_ or board.finished:
                return
            self._send(round_)
        board.phase[self._process] = Phase.WORKING
        while int(finished[lanes].min()) <= round_:
            self._collect(lanes, round_)

    def _collect(self, lanes: list[int], round_: int) -> None:
        """File what the group has played of a round, and publish what is whole."""
        finished, done, sent = self._board.lane_finished.values, self._board.lane_done.values, self._group.sent
        due = {lane: sent[lane] for lane in lanes if finished[lane] <= round_ or sent[lane] < done[lane]}
        parcel = self._call_at_work("collect", due, ANSWER_SECONDS)
        self._report.received_bytes[self._number] += len(parcel)
        for ticks in unpack(self._memory, due, parcel):
            self._file(ticks)
        self._finish_boundaries(lanes)
        self._waiter.heartbeat()

    def _send(self, round_: int) -> None:
        """Have the group play a round, with its parameters."""
        content, group, begun = int(self._memory.weights.content[0]), self._group, time.monotonic_ns()
        weights, least = None, SILENT_SECONDS
        if content != group.content:
            self._memory.weights.read(partial(np.copyto, self._parameters))  # no commit replaces them before the round
            weights, least = self._parameters, BEGIN_SECONDS if group.content is None else SILENT_SECONDS
            self._report.sent_bytes[self._number] += weights.nbytes
        self._call_at_work("play", round_, weights, least=least)
        group.content = content
        self._report.transfer_ns[self._number] += time.monotonic_ns() - begun

    def _changed(self, lanes: list[int]) -> bool:
        """True if the gateway has other lanes to play than these, or has to hand one over."""
        leaving = (lane for lane in lanes if self._board.lane_wanted[lane] != self._actor)
        return self._playable() != lanes or any(map(self._at_boundary, leaving))

    def _lacks(self, lanes: list[int]) -> bool:
        """True if a lane stands where the run ends, without a snapshot."""
        last, kept = self._board.last.read(), self._memory.lane_snapshots.newest
        return any(self._board.lane_finished.values[lane] == last and kept(lane) < last for lane in lanes)

    def _file(self, ticks: LaneTicks) -> None:
        """Write what the ring does not hold yet, and compare the rest."""
        board, lane, last = self._board, ticks.lane, ticks.last
        done, begin = board.lane_done.at(lane), max(0, ticks.first)
        held = done.read()
        opened = held + 1 if board.lane_finished.values[lane] >= 0 else 0
        for name, span in ticks_by_field(self._memory, ticks.first, last).items():
            self._put(name, lane, span, ticks.fields[name], opened if name in OPENING else held)
        if last > held:
            board.lane_logged.publish(lane, last)
            done.publish(last)
        if ticks.snapshot is not None:
            self._group.states[lane] = last // self._run_schedule.round_ticks, ticks.snapshot
        self._group.sent[lane] = last
        again = min(max(0, held - begin), last - begin)
        board.redone[self._process] += again
        if (new := last - begin - again) > 0:
            self._losses = 0
            self._waiter.note_progress(max(0, int(board.furthest[self._process])) + new)

    def _put(self, name: str, lane: int, span: range, data: bytes, held: int) -> None:
        """Write the values of ticks into the ring; compare those of ticks below `held` instead."""
        ring = self._memory.ring.field[name][lane]
        values = np.frombuffer(data, ring.dtype).reshape(len(span), *ring.shape[1:])
        slots, again = np.array(span, int) % len(ring), max(0, held - span.start)
        if not np.array_equal(ring[slots[:again]], values[:again]):
            raise FatalError(
                f"{self._name} played lane {lane} again from tick {span.start} and did not repeat {name!r}: "
                "it cannot be trusted, or this machine cannot. The last checkpoint was made before."
            )
        ring[slots[again:]] = values[again:]

    def _finish_boundaries(self, lanes: list[int]) -> None:
        """Publish the rounds of these lanes that are whole, with their snapshots."""
        done, finished, snapshots = self._board.lane_done.values, self._board.lane_finished, self._memory.lane_snapshots
        for lane in lanes:
            boundary = int(done[lane]) // self._run_schedule.round_ticks
            kept, state = self._group.states.get(lane, (-1, b""))
            lacks = self._board.is_snapshot(boundary) and snapshots.newest(lane) < boundary
            if lacks and kept == boundary:
                snapshots.write(lane, boundary, state)
                self._learner.ring()
                lacks = False
            if finished.values[lane] < boundary and not lacks:
                finished.publish(lane, boundary)
                self._learner.ring()

    # --- calls

    def _call(self, method: str, *arguments: object, seconds: float) -> Any:
        """Call the group, with heartbeats while it works."""
        return self._group.host.call(method, *arguments, seconds=seconds, meanwhile=self._waiter.heartbeat)

    def _call_at_work(self, method: str, *arguments: object, least: float = SILENT_SECONDS) -> Any:
        """Call a group that plays. Its pace is known, so a node that falls silent is soon noticed.

        `least`: seconds to wait before the node counts as silent.
        """
        begun = time.monotonic()
        answer = self._call(method, *arguments, seconds=max(least, SLOWER * self._slowest))
        self._slowest = max(self._slowest, time.monotonic() - begun)
        return answer

    def _wait_awake(self, ready: Callable[[], bool]) -> None:
        """Wait for other processes of this machine and keep the group's lease meanwhile."""

        def is_over() -> bool:
            return ready() or self._board.finished

        while not is_over():
            deadline = time.monotonic() + KEEP_SECONDS
            self._waiter.wait(lambda: is_over() or time.monotonic() > deadline)  # noqa: B023  (it is called here)
            self._call_at_work("keep")
