"""A learner of several ranks in a real Ray cluster: one placement group holds its place, and the weights stay."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ringside.cluster.connection import disconnect, join
from ringside.cluster.learner_place import HeldPlace
from shared.errors import ConfigError
from tests.support.ray_cluster import RayCluster, ray_cluster
from tests.support.remote_world import make_plan
from tests.support.runs import finish, gone, kill, memory_of, start, summary, wait_until
from tests.support.waiting import until

pytest.importorskip("ray")
pytestmark = [pytest.mark.stress, pytest.mark.timeout(400)]
SECONDS = 200.0
SHARDS = {"learner_shards": "4"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A head with two CPUs and two GPUs that are only counted, and a node of one CPU."""
    with ray_cluster(nodes=1, head_cpus=2, head_gpus=2) as made:
        yield made


@pytest.fixture
def joined(cluster: RayCluster) -> Iterator[None]:
    """This process is connected to the cluster."""
    join(cluster.address)
    yield
    disconnect()


def free(resource: str) -> float:
    """Amount of a resource that no program of the cluster has."""
    import ray

    return float(ray.available_resources().get(resource, 0.0))


def test_the_place_is_held_and_given_back(cluster: RayCluster, joined: None) -> None:
    threads, gpus = (make_plan(0).config.with_settings(learner_ranks=2, device=device) for device in ("cpu", "cuda:0"))
    with closing(HeldPlace(threads.machine, cluster.address)) as held:
        assert (held.place.cpus, held.place.gpus) == (2, ())
        assert free("CPU") == 1
    until(lambda: free("CPU") == 3, 30)
    with closing(HeldPlace(gpus.machine, cluster.address)) as held:
        assert (held.place.cpus, sorted(held.place.gpus)) == (0, ["0", "1"])
        assert free("GPU") == 0
    until(lambda: free("GPU") == 2, 30)
    more = make_plan(0).config.with_settings(learner_ranks=4)
    with pytest.raises(ConfigError, match="need 4 CPUs of this machine, and its node of the cluster has 2: pass fewer"):
        HeldPlace(more.machine, cluster.address)


def test_a_killed_rank_and_a_resume_without_the_cluster_change_nothing(
    cluster: RayCluster, joined: None, tmp_path: Path
) -> None:
    alone, run_dir = tmp_path / "alone", tmp_path / "run"
    finish(start(alone, actors="1", **SHARDS), SECONDS)
    process = start(run_dir, "--ray", cluster.address, actors="1", learner_ranks="2", **SHARDS)
    memory = memory_of(process, run_dir, gateways=1)
    wait_until(process, lambda: memory.board.updates[0] >= 300 and bool(cluster.programs()), SECONDS)
    assert free("CPU") == 0, "two for the ranks, one for the group"
    kill(process, "rank 1")
    wait_until(process, lambda: memory.board.restarts[1] == 1 and memory.board.committed >= 7, SECONDS)
    process.send_signal(signal.SIGTERM)
    finish(process, SECONDS)
    assert gone(process)
    assert summary(run_dir)["rounds"] < 10
    until(lambda: free("CPU") == 3, 30)
    finish(start(run_dir, "--resume", str(run_dir), learner_ranks="1"), SECONDS)
    for name in ("weights_sha256", "steps", "updates", "episodes", "exact"):
        assert summary(run_dir)[name] == summary(alone)[name], name
