"""Runs on a real Ray cluster of three nodes, some of which fail: the weights are those of one machine."""

import functools
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.memory.run_memory import Memory
from tests.support.ray_cluster import NEEDS_RAY, RayCluster, ray_cluster, silenced
from tests.support.runs import Process, finish, flags_in, kill, memory_of, records, start, summary, wait_until
from tests.support.waiting import until

pytestmark = [NEEDS_RAY, pytest.mark.stress, pytest.mark.timeout(400)]
SECONDS = 200.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(nodes=3) as made:
        yield made


@functools.cache
def alone(**changes: Any) -> dict[str, Any]:
    """Summary and episodes of a run on this machine alone."""
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = Path(scratch) / "run"
        finish(start(run_dir, actors="1", **changes), SECONDS)
        return result(run_dir)


def result(run_dir: Path) -> dict[str, Any]:
    """Figures of a run that do not depend on the machine on which lanes are played."""
    names = ("weights_sha256", "steps", "updates", "episodes")
    returns = [each["return"] for each in records(run_dir, "episode")]
    return {name: summary(run_dir)[name] for name in names} | {"returns": returns}


def begin(
    cluster: RayCluster, run_dir: Path, *words: str, nodes: int, committed: int = 2, **changes: str
) -> tuple[Process, Memory]:
    """Start a run on so many nodes, and wait until it has committed some rounds and a node plays."""
    process = start(run_dir, "--ray", cluster.address, "--nodes", str(nodes), *words, actors="1", **changes)
    memory = memory_of(process, run_dir, gateways=nodes)
    wait_until(process, lambda: memory.board.committed >= committed and bool(cluster.programs()), SECONDS)
    return process, memory


def kill_first(find: Callable[[RayCluster], list[Any]], end: Callable = lambda _, each: each.kill()) -> Callable:
    """Disturbance: SIGKILL of the first process or node that is found."""

    def disturb(_: object, cluster: RayCluster) -> None:
        found: list[Any] = []
        until(lambda: found.extend(find(cluster)) or found)
        end(cluster, found[0])

    return disturb


DISTURBANCES: dict[str, Callable[..., None]] = {
    "node": kill_first(RayCluster.playing_nodes, RayCluster.kill_node),
    "worker": kill_first(RayCluster.workers),
    "program": kill_first(RayCluster.programs),
    "inference": kill_first(lambda cluster: cluster.group_children("inference")),
    "actor": kill_first(lambda cluster: cluster.group_children("actor 0")),
    "gateway": lambda process, cluster: kill(process, "actor 1"),
}


@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_a_death_changes_nothing(cluster: RayCluster, tmp_path: Path, disturbance: str) -> None:
    cluster.fill(3)
    process, _ = begin(cluster, tmp_path / "run", nodes=2)
    DISTURBANCES[disturbance](process, cluster)
    finish(process, SECONDS)
    assert result(tmp_path / "run") == alone()
    until(lambda: not cluster.programs(), 15)


@pytest.mark.timeout(1800)
def test_a_storm_of_deaths_changes_nothing(cluster: RayCluster, tmp_path: Path) -> None:
    """All of them, each three times, at any moment; then the run is stopped."""
    cluster.fill(3)
    storm = 3 * list(DISTURBANCES)
    random.Random(1).shuffle(storm)
    process, memory = begin(cluster, tmp_path / "run", nodes=2, total_steps="1_000_000")
    for disturbance in storm:
        DISTURBANCES[disturbance](process, cluster)
        cluster.fill(3)
        committed = memory.board.committed
        wait_until(process, lambda at=committed: memory.board.committed > at and bool(cluster.programs()), SECONDS)
    process.send_signal(signal.SIGINT)
    finish(process, SECONDS)
    found = result(tmp_path / "run")
    assert found == alone(total_steps=str(found["steps"]))
    until(lambda: not cluster.programs(), 15)


def test_a_silent_node_changes_nothing(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.fill(3)
    process, _ = begin(cluster, tmp_path / "run", nodes=2)
    with silenced(cluster.workers()[0]):
        finish(process, SECONDS)
    assert result(tmp_path / "run") == alone()
    until(lambda: not cluster.programs(), 90)  # the lease of the one that was stopped


@pytest.mark.parametrize("mixed", [False, True])
def test_a_node_that_rounds_otherwise_is_left_out_or_accepted(cluster: RayCluster, tmp_path: Path, mixed: bool) -> None:
    while cluster.nodes:
        cluster.kill_node(cluster.nodes[0])
    cluster.add_nodes(1, MKL_CBWR="COMPATIBLE", ONEDNN_MAX_CPU_ISA="AVX2")  # computes as an older processor does
    cluster.add_nodes(1)
    words = ["--mixed-numerics"] if mixed else []
    process = start(tmp_path / "run", "--ray", cluster.address, *words, actors="1", precision="fp32")
    printed = finish(process, SECONDS)
    cluster.kill_node(cluster.nodes[0])
    assert "computes other last bits than this machine" in printed
    assert ("It is left out." in printed, summary(tmp_path / "run")["exact"]) == (not mixed, not mixed)
    if not mixed:
        assert result(tmp_path / "run") == alone(precision="fp32")


def test_a_killed_launcher_is_resumed_with_other_nodes_and_with_none(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.fill(3)
    run_dir, often = tmp_path / "run", ("--checkpoint-every-minutes", "0")
    process = start(run_dir, "--ray", cluster.address, "--nodes", "2", *often, actors="1")
    kill_at(process, cluster, run_dir, 2, gateways=2)
    process = start(run_dir, "--resume", str(run_dir), "--ray", cluster.address, "--nodes", "1", *often)
    kill_at(process, cluster, run_dir, 5, gateways=1)
    finish(start(run_dir, "--resume", str(run_dir)), SECONDS)
    assert result(run_dir) == alone()


def kill_at(process: Process, cluster: RayCluster, run_dir: Path, boundary: int, gateways: int) -> None:
    """SIGKILL a launcher once a checkpoint of this boundary exists; its groups end, too."""
    memory = memory_of(process, run_dir, gateways=gateways)
    wait_until(process, lambda: bool(memory.board.saved[0] >= boundary), SECONDS)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not cluster.programs(), 30)


ON_POLICY = "batch_size=160 envs=8 round_steps=480 precision=fp32 snapshot_every_steps=480"
METHODS = {
    "ppo": f"method=ppo schedule=concurrent {ON_POLICY}",
    "vtrace": f"method=vtrace {ON_POLICY}",
    "parts": "prioritized n_step=3 double precision=fp32 acting_precision=bf16",
    "rainbow": "method=c51 prioritized n_step=3 double noisy dueling",
    "evaluation": "eval_every_steps=1_440 eval_episodes=2 eval_max_frames=400",
}


@pytest.mark.parametrize("flags", METHODS.values(), ids=METHODS)
def test_other_methods_have_their_weights(cluster: RayCluster, tmp_path: Path, flags: str) -> None:
    cluster.fill(3)
    remote = start(tmp_path / "run", "--ray", cluster.address, "--nodes", "2", actors="1", **flags_in(flags))
    finish(remote, SECONDS)
    assert result(tmp_path / "run") == alone(**flags_in(flags))


def test_half_of_the_lanes_are_played_on_a_node(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.fill(1)
    process, memory = begin(cluster, tmp_path / "run", "--head-plays", nodes=1)
    assert memory.board.lane_owner.tolist() == [0, 0, 1, 1]
    finish(process, SECONDS)
    assert result(tmp_path / "run") == alone()


def test_the_actors_of_the_head_play_until_a_node_joins(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.fill(1)
    process, memory = begin(cluster, tmp_path / "run", nodes=2, committed=1, total_steps="9_600")
    while cluster.nodes:
        cluster.kill_node(cluster.nodes[0])
    wait_until(process, lambda: bool((memory.board.lane_owner == 0).all()), SECONDS)
    cluster.fill(1)
    wait_until(process, lambda: bool((memory.board.lane_owner != 0).all()), SECONDS)
    finish(process, SECONDS)
    assert result(tmp_path / "run") == alone(total_steps="9_600")
