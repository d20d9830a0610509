"""Real Ray: an unsafe cluster is refused; a suite survives the loss of a node."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ray_cluster import NEEDS_RAY, RayCluster, ray_cluster
from tests.support.runs import SMALL, Process, finish, start_words
from tests.support.waiting import until

pytestmark = [NEEDS_RAY, pytest.mark.timeout(300), pytest.mark.stress]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(nodes=2) as made:
        yield made


def start_suite(out: Path, *words: str) -> Process:
    """Start a suite of one short run for each of two games."""
    left_out = ("--game", "--actors")
    flags = [word for flag in SMALL.items() if flag[0] not in left_out for word in flag]
    flags += ["--games", "breakout,pong", "--seeds", "1", "--final-episodes", "1", "--eval-max-frames", "400"]
    return start_words("suite", *flags, "--actors", "1", "--out", str(out), *words)


def weights(out: Path) -> dict[str, str]:
    """Hash of the weights of each run."""
    return {path.parent.name: json.loads(path.read_text())["weights_sha256"] for path in out.glob("*-*/summary.json")}


def test_a_suite_that_loses_a_node_has_the_weights_of_one_machine(cluster: RayCluster, tmp_path: Path) -> None:
    out = tmp_path / "remote"
    process = start_suite(out, "--ray", cluster.address)
    until(lambda: all((out / name / "metrics.jsonl").exists() for name in ("breakout-1", "pong-1")), 120)
    cluster.kill_node(cluster.nodes[0])
    said = finish(process, 200)
    assert ("its node died; it continues elsewhere." in said, said.count("begins in")) == (True, 2), said
    finish(start_suite(tmp_path / "local"), 200)
    assert weights(out) == weights(tmp_path / "local")
    assert len(weights(out)) == 2
    assert (out / "report" / "report.html").exists()


def test_another_token_is_refused(cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    process = start_suite(tmp_path / "out", "--ray", cluster.address)
    assert "refuses the token of this machine" in finish(process, 200, code=2)
