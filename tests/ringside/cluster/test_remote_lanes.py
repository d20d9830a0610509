"""Lanes that groups play, without Ray and without processes: what is played is that of one machine, whatever fails."""

import errno
import functools
import os
from typing import Any

import pytest

from ringside.cluster import remote_lanes
from ringside.cluster.group_host import group_plan
from ringside.cluster.node_object import Node, NodeLost, fingerprint
from shared.errors import FatalError
from shared.memory.board import Stop
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.network_spec import OwnTorso
from tests.support.cluster_of_objects import Fault, ObjectCluster, ObjectHost
from tests.support.configurations import settled
from tests.support.remote_world import NUMERICS, ROUND_TICKS, ROUNDS, SECONDS, PlayedGroup, RemoteWorld
from tests.support.waiting import until


@functools.cache
def alone(span: int = 1, method: str = "dqn") -> dict[str, bytes]:
    """Content of the rings after a run without gateways."""
    return RemoteWorld(0, span=span, method=method).run().played()


def run_as_alone(world: RemoteWorld, *settings: Any) -> RemoteWorld:
    """Run to the end; what is played is that of one machine."""
    assert world.run().played() == alone(*settings)
    return world


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits, and a fingerprint that reads no files."""
    software = fingerprint()
    monkeypatch.setattr(remote_lanes, "ANSWER_SECONDS", 0.02)
    monkeypatch.setattr(remote_lanes, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(remote_lanes, "fingerprint", lambda: software)
    answer(monkeypatch, (Node("n7", software, "CPU 7"), NUMERICS))


def answer(monkeypatch: pytest.MonkeyPatch, *nodes: tuple[Node, str]) -> None:
    """Let the groups give these nodes and hashes for their own, one after another; all later ones the last."""
    left, mine = list(nodes), dict[PlayedGroup, tuple[Node, str]]()

    def own(group: PlayedGroup, part: int) -> Any:
        if group not in mine:
            mine[group] = left.pop(0) if len(left) > 1 else left[0]
        return mine[group][part]

    monkeypatch.setattr(PlayedGroup, "describe", lambda self: own(self, 0))
    monkeypatch.setattr(PlayedGroup, "probe", lambda self: own(self, 1))


def fails(method: str, *calls: int) -> Fault:
    """The calls of a method with these numbers lose the node."""
    return lambda called, number: "died" if called == method and number in calls else None


@pytest.mark.parametrize("gateways", [1, 2])
def test_lanes_on_other_nodes_play_the_same(gateways: int) -> None:
    hosts = ObjectCluster(PlayedGroup)
    world = run_as_alone(RemoteWorld(gateways, hosts))
    assert [host.released for host in hosts.hosts] == [True] * gateways
    assert world.memory.board.redone.sum() == 0
    parameters = ROUNDS * world.memory.weights.data[0].nbytes
    assert world.memory.gateways.sent_bytes.tolist() == [parameters] * gateways, "they travel once a round"


@pytest.mark.parametrize("fault", [None, ("collect", 12), ("play", 3), ("keep", 1)])
def test_lanes_on_nodes_keep_a_snapshot_where_the_run_ends(fault: tuple[str, int] | None) -> None:
    """Boundary 3 has no regular snapshot, and is named while all lanes stand there."""
    expected = RemoteWorld(0, rounds=3).run().memory.lane_snapshots
    hosts = ObjectCluster(PlayedGroup, *([fails(*fault)] if fault else []))
    world = RemoteWorld(2, hosts, span=5)
    memory = world.memory

    def stop(version: int) -> None:
        if version == 3:
            assert memory.lane_snapshots.number.values.max() == 0
            if fault == ("keep", 1):
                until(lambda: len(hosts.hosts) > 2, 30)
            memory.board.last.publish(3)
            for doorbell in world.doorbells:
                doorbell.ring()
            until(lambda: bool(memory.lane_snapshots.number.values.max(1).min() == 3), 30)

    world.run(stop)
    assert memory.board.committed == 3
    if fault == ("keep", 1):
        assert len(hosts.hosts) > 2, "a group was lost while its lanes stood there"
    lanes = range(memory.run_schedule.lanes)
    assert [memory.lane_snapshots.read(lane, 3) for lane in lanes] == [expected.read(lane, 3) for lane in lanes]


def test_a_group_has_the_network_of_the_user() -> None:
    plan = Plan(settled(network="tests.support.own_networks:Linear"), 4, own_torso=OwnTorso(16, 512, (("w", (16, 4)),)))
    assert group_plan(plan, 2).parameters == plan.parameters


def test_the_head_plays_its_share_beside_a_node_that_is_lost() -> None:
    hosts = ObjectCluster(PlayedGroup, fails("collect", 9))
    owners = []
    world = RemoteWorld(1, hosts, head_share=1.0)
    world.run(lambda version: owners.append(world.memory.board.lane_owner.tolist()))
    assert (world.played(), owners, len(hosts.hosts)) == (alone(), ROUNDS * [[0, 0, 1, 1]], 2)


@pytest.mark.parametrize("method", ["vtrace", "ppo"])
def test_fields_that_a_method_declares_travel_too(method: str) -> None:
    run_as_alone(RemoteWorld(2, ObjectCluster(PlayedGroup, fails("collect", 9)), method=method), 1, method)


CALLS = [("describe", 1), ("probe", 1), ("begin", 1), ("play", 1), ("play", 3), ("collect", 1), ("collect", 40)]


@pytest.mark.parametrize(("method", "call"), CALLS)
@pytest.mark.parametrize("span", [1, 3])
def test_a_lost_node_changes_nothing(method: str, call: int, span: int) -> None:
    hosts = ObjectCluster(PlayedGroup, fails(method, call), fails(method, call))
    world = run_as_alone(RemoteWorld(2, hosts, span=span), span)
    assert (len(hosts.hosts), sum("died" in note for note in world.notes)) == (4, 2)


def test_a_node_lost_again_and_again_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lanes, "MOST_LOSSES", 6)  # in a row without a new step
    faults = [fails("collect", number) for number in range(3, 33, 2)]
    world = run_as_alone(RemoteWorld(2, ObjectCluster(PlayedGroup, *faults), span=2), 2)
    assert world.memory.board.redone.sum() > 0


def test_a_loss_without_progress_again_and_again_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lanes, "MOST_LOSSES", 3)
    faults = [fails("play", 1)] * 4
    with pytest.raises(FatalError, match=r"Node n7 died\. That was loss 4 in a row without a new step\."):
        RemoteWorld(1, ObjectCluster(PlayedGroup, *faults)).run()


def test_a_node_that_cannot_play_is_left_out_and_the_run_goes_on() -> None:
    """The first group has no room for its program."""
    errors = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]

    class Cramped(PlayedGroup):
        def _start(self, memory: Memory) -> None:
            super()._start(memory)
            if errors:
                raise errors.pop()

    hosts = ObjectCluster(Cramped)
    world = run_as_alone(RemoteWorld(1, hosts))
    assert len(hosts.left_out) == 1
    (sentence,) = (note for note in world.notes if "cannot play lanes" in note)
    assert sentence.endswith("No space left on device. It is left out.")


def test_the_first_parameters_of_a_group_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[float] = []
    call = ObjectHost.call

    def note(self: ObjectHost, method: str, *values: Any, seconds: float, **options: Any) -> Any:
        allowed.extend([seconds] * (method == "play"))
        return call(self, method, *values, seconds=seconds, **options)

    monkeypatch.setattr(ObjectHost, "call", note)
    RemoteWorld(1, ObjectCluster(PlayedGroup, fails("collect", 9))).run()
    assert (allowed[0], allowed.count(allowed[0])) == (remote_lanes.BEGIN_SECONDS, 2), "one group was lost"
    assert len(allowed) > ROUNDS


def test_without_a_free_node_this_machine_plays_and_nodes_join_and_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lanes, "PLACE_SECONDS", 0.05)
    hosts = ObjectCluster(PlayedGroup, room=0)
    owners = []

    def change(version: int) -> None:
        owners.append(sorted({int(actor) for actor in world.memory.board.lane_owner}))
        hosts.room = 0 if version in (1, 4) else 2
        if version == 2:
            until(lambda: not world.memory.board.vacant.any(), 30)
        if version == 4:  # all nodes leave
            for host in hosts.hosts:
                host.lost = True

    world = RemoteWorld(2, hosts)
    world.run(change)
    assert (world.played(), [0] in owners, len(owners)) == (alone(), True, ROUNDS), "this machine played all"
    for said in ("no free node for actor 1: its lanes are played elsewhere", "Lanes of actor 2 are played on node n7."):
        assert any(said in note for note in world.notes)


def test_a_gateway_that_dies_leaves_the_lanes_to_its_next_life() -> None:
    hosts = ObjectCluster(PlayedGroup)
    world = RemoteWorld(1, hosts, span=2)
    board = world.memory.board

    def replace(version: int) -> None:
        board.stop[0] = Stop.ABANDON
        for thread in world._threads:
            thread.join(SECONDS)
        board.stop[0] = Stop.RUN
        world.start(0)

    assert world.run(replace).played() == alone(2)
    assert len(hosts.hosts) >= ROUNDS  # the last one may find the run over


def test_a_group_that_does_not_repeat_a_tick_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Other(PlayedGroup):
        def _start(self, memory: Memory) -> None:
            made.append(self)
            self.more = 100 * len(made)  # another game than the group before
            super()._start(memory)

    with pytest.raises(FatalError, match=r"Node n7 played lane \d again from tick \d+ and did not repeat 'frame'"):
        RemoteWorld(1, ObjectCluster(Other, fails("collect", 20))).run()


GOOD = Node("n8", fingerprint(), "CPU 8"), NUMERICS
OTHER_SOFTWARE = Node("n7", fingerprint() | {"numpy": "1.0"}, "CPU 7"), NUMERICS
OTHER_BITS = Node("n7", fingerprint(), "CPU 7"), "other bits"


DIFFERENT = [
    (OTHER_SOFTWARE, False, "Node n7 has numpy 1.0, this machine"),
    (OTHER_SOFTWARE, True, "Node n7 has numpy 1.0, this machine"),
    (OTHER_BITS, False, "Node n7 (CPU 7) computes other last bits than this machine"),
]


@pytest.mark.parametrize(("bad", "mixed", "said"), DIFFERENT)
def test_a_node_that_differs_is_left_out(monkeypatch: pytest.MonkeyPatch, bad: Any, mixed: bool, said: str) -> None:
    answer(monkeypatch, bad, GOOD)
    hosts = ObjectCluster(PlayedGroup)
    world = run_as_alone(RemoteWorld(1, hosts, mixed=mixed))
    assert (hosts.left_out, len(hosts.hosts), world.memory.inexact_since) == (hosts.hosts[:1], 2, -1)
    assert world.notes[0].startswith(said)
    assert world.notes[0].endswith("It is left out.")
    assert "Lanes of actor 1 are played on node n8." in world.notes


def test_without_a_node_that_suits_this_machine_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lanes, "PLACE_SECONDS", 0.0)
    answer(monkeypatch, OTHER_BITS)
    world = run_as_alone(RemoteWorld(1, ObjectCluster(PlayedGroup)))
    assert any("no free node for actor 1" in note for note in world.notes)


def test_a_node_that_computes_other_bits_is_accepted_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, GOOD, OTHER_BITS)
    world = RemoteWorld(1, ObjectCluster(PlayedGroup, fails("play", 3)), mixed=True).run()
    assert world.memory.inexact_since == 2 * world.memory.run_schedule.round_steps
    assert any("the run is inexact from here on" in note for note in world.notes)


def test_a_gateway_killed_before_it_said_that_a_round_is_whole_says_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    finish, killed = remote_lanes.RemoteLanes._finish_boundaries, []

    def dies(self: remote_lanes.RemoteLanes, lanes: list[int]) -> None:
        if self._board.lane_done.values.max() == 2 * ROUND_TICKS and not killed:
            killed.append(self)
            raise NodeLost("died")
        finish(self, lanes)

    monkeypatch.setattr(remote_lanes.RemoteLanes, "_finish_boundaries", dies)
    run_as_alone(RemoteWorld(1, ObjectCluster(PlayedGroup)))
    assert killed
