"""A whole run on a real Ray cluster of one node, which has the weights of one machine."""

from pathlib import Path
from tempfile import gettempdir

import psutil

from tests.support.ray_cluster import NEEDS_RAY, ray_cluster
from tests.support.runs import finish, start, summary
from tests.support.waiting import until

pytestmark = NEEDS_RAY


def test_a_run_on_a_node_has_the_weights_of_one_machine(five_rounds: Path, tmp_path: Path) -> None:
    before = {*Path(gettempdir()).glob("ringside-group-*")}
    with ray_cluster(nodes=0, head_cpus=2) as cluster:
        process = start(tmp_path / "run", "--ray", cluster.address, actors="1", total_steps="2_400")
        until(cluster.programs, 60)
        commands = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        printed = finish(process)
        until(lambda: not cluster.programs(), 10)
        assert not {*Path(gettempdir()).glob("ringside-group-*")} - before
        token = cluster.token
        written = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not any(token.encode() in path.read_bytes() for path in [*written, *cluster.logs()])
        assert not any(token in text for text in (*commands, printed))
    log = (tmp_path / "run" / "logs" / "actor-1.log").read_text()
    assert "Lanes of actor 1 are played on node" in log
    for name in ("weights_sha256", "episodes", "restarts"):
        assert summary(tmp_path / "run")[name] == summary(five_rounds)[name]
