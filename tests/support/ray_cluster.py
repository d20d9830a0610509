"""A Ray cluster on this machine: a head, and nodes of one CPU each, on loopback, with a token."""

import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from ringside.cluster.group_host import GROUP_PROGRAM

NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="there is no Ray here: the extra ray of setup.cfg")
"""Mark of tests that use it; they load it when they run, since that takes seconds."""
HOST = "127.0.0.2"
"""Ray takes 127.0.0.1 for the machine's main address, where this cluster does not listen."""
_STORE_BYTES = 80 << 20
_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_prestart_worker_first_driver": "0",  # a worker costs a second of CPU time
}


class RayCluster:
    """The head and the nodes; programs that are to reach it get `environment`."""

    def __init__(self, directory: Path, head_cpus: int) -> None:
        from ray.cluster_utils import Cluster

        self._store: dict[str, Any] = {"object_store_memory": _STORE_BYTES, "node_ip_address": HOST}
        own = {"num_cpus": head_cpus, "no_monitor": True}
        own |= dict.fromkeys(("include_dashboard", "include_log_monitor"), False)  # nothing needs them
        self._directory = directory
        self._programs = set[psutil.Process]()
        self._cluster = Cluster(initialize_head=True, head_node_args=own | self._store)
        signal.signal(signal.SIGTERM, _exit)
        self.nodes: list[Any] = []

    def programs(self) -> list[psutil.Process]:
        """Living programs of groups on the nodes of this cluster, also those whose node was killed since they began."""
        children = psutil.Process().children(recursive=True)
        self._programs |= {each for each in children if GROUP_PROGRAM in words_of(each)}
        return [each for each in self._programs if GROUP_PROGRAM in words_of(each)]

    def workers(self) -> list[psutil.Process]:
        """Ray's processes that have a group; their titles change with what they do."""
        return [parent for program in self.programs() if (parent := program.parent()) is not None]

    def group_children(self, role: str) -> list[psutil.Process]:
        """Processes of that role in all groups, which may have ended."""
        found: list[psutil.Process] = []
        for program in self.programs():
            with suppress(psutil.NoSuchProcess):
                found += program.children(recursive=True)
        return [each for each in found if words_of(each)[:1] == [f"ringside {role}"]]

    @property
    def token(self) -> str:
        """The secret of the cluster."""
        return (self._directory.parent / "token").read_text()

    def logs(self) -> list[Path]:
        """Files that Ray has written."""
        return [path for path in self._directory.rglob("*") if path.is_file() and not path.is_symlink()]

    @property
    def address(self) -> str:
        """HOST:PORT of the head."""
        return self._cluster.address

    def add_nodes(self, count: int, cpus: int = 1, **environment: str) -> None:
        """Start nodes with these variables, and wait until they are there."""
        words = self._store | {"num_cpus": cpus, "env_vars": environment}
        self.nodes += [self._cluster.add_node(wait=False, **words) for _ in range(count)]
        signal.signal(signal.SIGTERM, _exit)
        self._cluster.wait_for_nodes(timeout=100)

    def fill(self, count: int) -> None:
        """Start as many nodes as are missing."""
        if count > len(self.nodes):
            self.add_nodes(count - len(self.nodes))

    def playing_nodes(self) -> list[Any]:
        """Nodes with a program of a group; one whose node was killed may go on for a while."""
        above = {process.pid for program in self.programs() for process in program.parents()}
        return [node for node in self.nodes if node.all_processes["raylet"][0].process.pid in above]

    def kill_node(self, node: Any) -> None:
        """SIGKILL a raylet: the node is lost."""
        node.all_processes["raylet"][0].process.kill()
        self._cluster.worker_nodes.remove(node)
        self.nodes.remove(node)
        node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)

    def close(self) -> None:
        """End everything."""
        self._cluster.shutdown()


def words_of(process: psutil.Process) -> list[str]:
    """Command of a process; empty if it has ended."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


@contextmanager
def silenced(worker: psutil.Process) -> Iterator[None]:
    """Stop a worker of Ray with its raylet and its group during the block, as if the network had lost them."""
    raylet = worker.parent()
    assert raylet is not None, "a worker lives under a raylet"
    stopped = [raylet, worker, *worker.children(recursive=True)]
    for each in stopped:
        each.suspend()
    try:
        yield
    finally:
        for each in stopped:
            with suppress(psutil.NoSuchProcess):
                each.resume()


@contextmanager
def ray_cluster(nodes: int, head_cpus: int = 0) -> Iterator[RayCluster]:
    """A cluster during the block, which this process and its children have the token of."""
    former, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    directory = Path(tempfile.mkdtemp(prefix="rs-"))  # short, since paths of sockets are limited
    token = directory / "token"
    token.write_text(secrets.token_hex(32))
    # The files of the cluster are in RAY_TMPDIR/ray, and so is the address of "auto", which belongs to this cluster.
    os.environ.update(_SETTINGS, RAY_AUTH_TOKEN_PATH=str(token), RAY_TMPDIR=str(directory))
    _read_environment()
    try:
        with closing(RayCluster(directory / "ray", head_cpus)) as cluster:
            if nodes:
                cluster.add_nodes(nodes)
            yield cluster
    finally:
        signal.signal(signal.SIGTERM, handler)
        os.environ.clear()
        os.environ.update(former)
        _read_environment()
        shutil.rmtree(directory)


def _exit(_signal: int, _frame: object) -> NoReturn:
    """End the program at SIGTERM. Each start of a node sets Ray's handler, which waits half a minute for nodes."""
    sys.exit(128 + signal.SIGTERM)


def _read_environment() -> None:
    """Have Ray, which reads its settings when it is imported, read them again."""
    from ray._raylet import AuthenticationTokenLoader, Config

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
