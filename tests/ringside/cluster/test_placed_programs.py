"""Programs of runs on other machines, whose part objects of this process play."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ringside.cluster import node_object, placed_programs
from ringside.cluster.node_object import Node, NodeObject, fingerprint
from ringside.cluster.placed_programs import MOST_LOSSES, ClusterPrograms, ProgramHost
from shared.errors import ConfigError, RingsideError
from shared.files.lock import locked, wait_until_free
from shared.process.ownership import LOCK_FILE
from tests.support.cluster_of_objects import Fault, ObjectCluster
from tests.support.waiting import until

PROGRAM = """
import os, signal, sys, time
word = sys.argv[1]
if word == "fail":
    print("first"); sys.exit("it failed")
if word == "environment":
    sys.exit(3 if any(name.startswith("RAY_") for name in os.environ) else 0)
if word == "wait":
    def end(number, frame):
        open(sys.argv[2], "a").write("asked"); sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    open(sys.argv[2], "w").close()
    print("it waits", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def host(launcher: Path) -> Iterator[ProgramHost]:
    made = ProgramHost(1, launcher=launcher)
    yield made
    made.close()


Make = Callable[..., tuple[ClusterPrograms, ObjectCluster]]


@pytest.fixture
def cluster(launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes programs on a cluster of objects with these faults. Hosts end with their test, or their lease ends it."""
    placed: list[ObjectCluster] = []
    monkeypatch.setattr(placed_programs, "_POLL_SECONDS", 0.05)
    shared = tmp_path / "shared"
    shared.touch()

    def make(*faults: Fault) -> tuple[ClusterPrograms, ObjectCluster]:
        placed.append(ObjectCluster(partial(ProgramHost, launcher=launcher), *faults))
        return ClusterPrograms(placed[-1], 1, shared), placed[-1]

    yield make
    for host in (host for each in placed for host in each.hosts if not host.released):
        host.release()


def dies(method: str, call: int) -> str | None:
    """A node that is lost once a program runs there."""
    return "died" if method == "poll" else None


def test_a_failure_tells_code_and_last_lines(cluster: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    programs, hosts = cluster()
    job = programs.open()
    assert job.run(lambda: ["good"], "pong", tmp_path) == 0
    assert job.run(lambda: ["fail"], "pong", tmp_path) == 1
    assert "pong: first\npong: it failed\n" in capsys.readouterr().out
    job.close()
    assert [host.released for host in hosts.hosts] == [True]  # both in one place


def test_a_program_gets_no_variable_of_ray(host: ProgramHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of the cluster is one of them."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    host.start(["environment"], str(tmp_path), __file__)
    assert host.poll(30)[0] == 0


def test_losses_in_a_row_are_counted_from_the_newest_checkpoint(
    cluster: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs, hosts = cluster(*[dies] * 20)
    (tmp_path / "checkpoints").mkdir()

    def words() -> list[str]:
        if len(hosts.hosts) == 3:
            (tmp_path / "checkpoints" / "checkpoint-00000001.json").touch()
        return ["wait", str(tmp_path / "first")]

    assert programs.open().run(words, "pong", tmp_path) is None
    assert [host.released for host in hosts.hosts] == [True] * (2 + MOST_LOSSES)
    again = "pong: its node died; it continues elsewhere.\n"
    assert capsys.readouterr().out.count(again) == 1 + MOST_LOSSES


def test_a_lost_run_that_saves_is_waited_for(cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, _ = cluster(dies, dies)
    await_lock = Mock(wraps=wait_until_free)
    monkeypatch.setattr(placed_programs, "wait_until_free", await_lock)
    with ThreadPoolExecutor() as threads:
        with locked(tmp_path / LOCK_FILE, "--run-dir", "a test"):
            code = threads.submit(programs.open().run, lambda: ["good"], "pong", tmp_path)
            until(lambda: await_lock.called)
            with pytest.raises(TimeoutError):
                code.result(0.3)
            monkeypatch.setattr(placed_programs, "LEASE_SECONDS", -placed_programs.SAVE_SECONDS)
            with pytest.raises(RingsideError, match="is still in use, though its node was lost"):
                programs.open().run(lambda: ["good"], "pong", tmp_path)
        assert code.result(10) == 0


def test_a_stop_or_an_error_asks_the_programs_and_begins_no_other(
    cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placed_programs, "MOST_THREADS", 3)
    programs, _ = cluster()
    files = [tmp_path / "first", tmp_path / "second"]
    begun, codes = list[int](), list[int | None]()

    def work(number: int) -> None:
        begun.append(number)
        if number == 2:
            until(lambda: all(file.exists() for file in files))
            raise ConfigError("No.")
        if number < 2:
            codes.append(programs.open().run(lambda: ["wait", str(files[number])], "pong", tmp_path))
        until(lambda: programs.stops > 0)
        time.sleep(0.05)  # until the others are cancelled

    with pytest.raises(ConfigError, match=r"No\."):
        programs.for_each(range(50), work)
    assert (codes, [file.read_text() for file in files]) == ([0, 0], ["asked", "asked"])
    assert len(begun) <= 6


LEASE = 0.02


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time of a lease, which stands still unless a test moves it; `looks`: those of a thread that watches a lease."""

    def monotonic() -> float:
        made.looks += threading.current_thread() is not threading.main_thread()
        return made.now

    made = SimpleNamespace(now=0.0, looks=0, monotonic=monotonic)
    monkeypatch.setattr(node_object, "time", made)
    return made


def test_a_host_without_calls_stops_its_program_and_ends(launcher: Path, tmp_path: Path, clock: Any) -> None:
    ended: list[int] = []
    host = ProgramHost(1, launcher=launcher, lease_seconds=LEASE, end=ended.append)
    file = tmp_path / "first"
    host.answer("start", ["wait", str(file)], str(tmp_path), __file__)
    until(file.exists)
    clock.now += 1.5 * LEASE
    until(lambda: ended)
    assert (ended, file.read_text()) == ([1], "asked")
    host.close()


def test_calls_renew_the_lease_and_none_is_too_long(clock: Any) -> None:
    ended: list[int] = []

    class Slow(NodeObject):
        def wait(self, share: float) -> None:
            looks = clock.looks
            clock.now += share * LEASE
            until(lambda: clock.looks > looks + 1)

    host = Slow(LEASE, ended.append)
    for _ in range(3):
        host.answer("wait", 5.0)
        host.wait(0.75)
    assert not ended
    host.close()


def test_the_death_of_a_host_stops_its_program(launcher: Path, tmp_path: Path) -> None:
    """A Ray worker that is killed: its program saves and ends."""
    file = tmp_path / "first"
    pid = os.fork()
    if pid == 0:
        try:
            host = ProgramHost(1, launcher=launcher)
            host.start(["wait", str(file)], str(tmp_path), __file__)
            while True:
                host.poll(1)
        finally:
            os._exit(1)
    try:
        until(file.exists)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    until(lambda: file.read_text() == "asked")


def test_a_node_that_does_not_share_the_files_is_refused(host: ProgramHost, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"does not see {tmp_path}: put --out on a file system that all nodes share"):
        host.start(["good"], str(tmp_path), str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="has no directory /missing: start the command from a shared one"):
        host.start(["good"], "/missing", __file__)


def test_a_node_with_other_software_is_refused(cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Node("n7", fingerprint() | {"torch": "2.12.0"}, "CPU 7")
    monkeypatch.setattr(ProgramHost, "describe", lambda self: other)
    programs, _ = cluster()
    with pytest.raises(ConfigError, match=r"^Node n7 has torch 2\.12\.0, this machine .*: weights could differ\."):
        programs.open().run(lambda: ["good"], "pong", tmp_path)


@pytest.mark.parametrize("package", ["actors", "learner", "shared", "ringside", "workers"])
def test_a_fingerprint_sees_every_change_of_a_source(package: str, tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text("1")
    source = tmp_path / package / "a.py"
    source.parent.mkdir()
    source.write_text("x = 1")
    ours = fingerprint(tmp_path)
    assert Node("n", fingerprint(tmp_path), "").difference(ours) is None
    source.write_text("x = 2")
    assert "sources of Ringside" in str(Node("n", fingerprint(tmp_path), "").difference(ours))
    assert "lacks numpy" in str(Node("n", {k: v for k, v in ours.items() if k != "numpy"}, "").difference(ours))
