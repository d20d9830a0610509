"""Real Ray: an unsafe cluster is refused; a suite survives the loss of a node; trials of a study run on nodes.

Processes share data, and survive the one that put them.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ringside.cluster.connection import disconnect, join
from ringside.cluster.hosts import DataLost
from shared.root import ROOT
from tests.support.ray_cluster import NEEDS_RAY, RayCluster, ray_cluster
from tests.support.runs import SMALL
from tests.support.waiting import until

pytestmark = [NEEDS_RAY, pytest.mark.timeout(300), pytest.mark.stress]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(nodes=2) as made:
        yield made


def suite_words(out: Path, *words: str) -> list[str]:
    """The words of a suite of one short run for each of two games."""
    left_out = ("--game", "--actors")
    flags = [word for flag in SMALL.items() if flag[0] not in left_out for word in flag]
    flags += ["--games", "breakout,pong", "--seeds", "1", "--final-episodes", "1", "--eval-max-frames", "400"]
    return [sys.executable, str(ROOT / "launch.py"), "suite", *flags, "--actors", "1", "--out", str(out), *words]


def run(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    changed = os.environ | environment
    return subprocess.run(words, cwd=ROOT, env=changed, capture_output=True, text=True, timeout=200, check=False)


def weights(out: Path) -> dict[str, str]:
    """Hash of the weights of each run."""
    return {path.parent.name: json.loads(path.read_text())["weights_sha256"] for path in out.glob("*-*/summary.json")}


def test_a_suite_on_two_nodes_of_which_one_is_lost_has_the_weights_of_one_machine(
    cluster: RayCluster, tmp_path: Path
) -> None:
    out = tmp_path / "remote"
    with open(tmp_path / "printed", "w+") as printed:
        process = subprocess.Popen(
            suite_words(out, "--ray", cluster.address), cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT
        )
        try:
            until(lambda: all((out / name / "metrics.jsonl").exists() for name in ("breakout-1", "pong-1")), 120)
            cluster.kill_node(cluster.nodes[0])
            code = process.wait(200)
        finally:
            process.kill()
        printed.seek(0)
        said = printed.read()
    assert code == 0, said
    assert "its node died; it continues elsewhere." in said
    assert said.count("begins in") == 2
    local = run(suite_words(tmp_path / "local"))
    assert local.returncode == 0, local.stdout + local.stderr
    assert weights(out) == weights(tmp_path / "local")
    assert len(weights(out)) == 2
    assert (out / "report" / "report.html").exists()


def test_a_cluster_with_another_token_is_refused(cluster: RayCluster, tmp_path: Path) -> None:
    stranger = tmp_path / "token"
    stranger.write_text(secrets.token_hex(32))
    words = suite_words(tmp_path / "out", "--ray", cluster.address)
    refused = run(words, RAY_AUTH_TOKEN_PATH=str(stranger))
    assert refused.returncode == 2
    assert "refuses the token of this machine" in refused.stderr


def test_a_study_runs_its_trials_on_nodes_as_on_one_machine(cluster: RayCluster, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    cluster.fill(2)
    space = tmp_path / "space.toml"
    space.write_text("[learning_rate]\nlow = 1e-5\nhigh = 1e-3\nlog = true\n")
    flags = [word for flag in SMALL.items() if flag[0] != "--actors" for word in flag]
    flags += ["--actors", "1", "--eval-every-steps", "2_400", "--eval-episodes", "1", "--eval-max-frames", "400"]

    def study(out: Path, *words: str) -> str:
        more = ("--trials", "2", "--space", str(space), "--out", str(out))
        done = run([sys.executable, str(ROOT / "launch.py"), "tune", *flags, *more, *words])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    told = study(tmp_path / "remote", "--ray", cluster.address)
    assert told.count("on node") == 2
    study(tmp_path / "local")
    assert weights(tmp_path / "remote") == weights(tmp_path / "local")
    assert len(weights(tmp_path / "remote")) == 2
    assert (tmp_path / "remote" / "report" / "report.html").exists()
    assert (tmp_path / "remote" / "best.toml").exists()


@pytest.fixture
def joined(cluster: RayCluster) -> Iterator[None]:
    """This process is connected to the cluster, which has a node."""
    cluster.fill(1)
    join(cluster.address)
    yield
    disconnect()


class Receiver:
    """An object on a node that takes data."""

    def total(self, data: NDArray[np.float32]) -> float:
        """Sum of the data."""
        return float(data.sum())


MILLION = 1 << 20
OFFERER = f"""
import sys
import numpy as np
from ringside.cluster.connection import join
join(sys.argv[1])
import ray
from ringside.cluster.ray_hosts import RayHosts
hosts = RayHosts(1, 0, exchange=sys.argv[2])
ray.get(hosts._exchange._ready)
kept = hosts.share(7, lambda: np.full({MILLION}, 2, np.float32))
print("offered", flush=True)
sys.stdin.read()
"""
"""A process that puts data and keeps them until its input ends."""


@contextmanager
def offerer(cluster: RayCluster, exchange: str) -> Iterator[subprocess.Popen[str]]:
    """A process that shares data under the number 7."""
    words = [sys.executable, "-c", OFFERER, cluster.address, exchange]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "offered\n"
            yield process
        finally:
            process.kill()


def test_processes_share_one_object(cluster: RayCluster, joined: None) -> None:
    from ringside.cluster.ray_hosts import RayHosts

    def threes() -> NDArray[np.float32]:
        made.append(1)
        return np.full(MILLION, 3, np.float32)

    made: list[int] = []
    with offerer(cluster, "shared") as process:
        hosts = RayHosts(1, 0, exchange="shared")
        host = hosts.place(Receiver)
        until(lambda: host.ready(1.0) and hosts.exchange_is_there, 60)
        assert host.call("total", hosts.share(7, threes), seconds=60.0) == 2 * MILLION
        assert not made
        process.kill()
        process.wait()
    # The exchange has ended with the process that made it; this one makes another.
    for number in (8, 9):
        assert host.call("total", hosts.share(number, threes), seconds=60.0) == 3 * MILLION
    until(lambda: hosts.exchange_is_there, 60)
    assert len(made) == 2
    host.release()


def test_data_whose_process_died_are_lost_and_the_node_is_not(cluster: RayCluster, joined: None) -> None:
    from ringside.cluster.ray_hosts import RayHosts

    hosts = RayHosts(1, 0, exchange="lost")
    until(lambda: hosts.exchange_is_there, 60)
    with offerer(cluster, "lost") as process:
        shared = hosts.share(7, lambda: np.zeros(0, np.float32))
        process.kill()
        process.wait()
    host = hosts.place(Receiver)
    until(lambda: host.ready(1.0), 60)
    with pytest.raises(DataLost):
        host.call("total", shared, seconds=60.0)
    assert host.call("total", np.ones(5, np.float32), seconds=60.0) == 5
    host.release()
