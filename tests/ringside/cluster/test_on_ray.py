"""Real Ray: an unsafe cluster is refused; a suite survives the loss of a node."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_a_suite_that_loses_a_node_has_the_weights_of_one_machine(cluster: RayCluster, tmp_path: Path) -> None:
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
    assert (code, "its node died; it continues elsewhere." in said, said.count("begins in")) == (0, True, 2), said
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
    assert (refused.returncode, "refuses the token of this machine" in refused.stderr) == (2, True)
