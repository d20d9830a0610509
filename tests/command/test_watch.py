"""`launch.py watch`: its refusals, and a stuck viewer, which disturbs no process."""

import json
import os
import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from shared.config.settings import Config
from shared.root import ROOT
from tests.conftest import Refused
from tests.support.runs import finish, start, start_words, summary, wait_until


def run_of(path: Path) -> Path:
    """The files of a run that has ended."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(Config().to_json()))
    return path


def of_another_version(path: Path) -> None:
    (run_of(path) / "config.json").write_text(json.dumps({"play": Config().to_json()["play"]}))


NO_RUNS = [
    (None, lambda path: None, "There is no run under {tmp_path}/runs: name the directory of one."),
    ("nowhere", lambda path: None, "There is no run nowhere: name its directory."),
    ("runs/pnog", lambda path: run_of(path.parent / "pong"), "There is no run runs/pnog; did you mean pong?"),
    ("empty", Path.mkdir, "empty is not a run: it has no config.json. Name the directory of a run."),
    ("file", Path.touch, "There is no run file: name its directory."),
    ("old", of_another_version, "old cannot be watched. The configuration was written by another version"),
]


@pytest.mark.parametrize(("name", "make", "said"), NO_RUNS)
def test_no_run_is_refused(refused: Refused, tmp_path: Path, name: str | None, make: Any, said: str) -> None:
    make(tmp_path / (name or ""))
    assert said.format(tmp_path=tmp_path) in refused("watch", *([name] if name else []))


def test_a_directory_of_runs_is_shown_as_all_of_them(tmp_path: Path) -> None:
    run_of(tmp_path / "suites" / "atari5" / "pong-1")
    run_of(tmp_path / "suites" / "one")
    process = start_words("watch", str(tmp_path / "suites"))
    assert process.stdout.readline() == f"2 runs under {tmp_path / 'suites'}\n"
    process.send_signal(signal.SIGINT)
    finish(process)


def test_a_port_in_use_and_none_at_all(refused: Refused, tmp_path: Path) -> None:
    run_of(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"--port {port} is in use: pass another" in refused("watch", "run", "--port", port)
    for port in ("-1", "70000"):
        assert f"--port {port} is not a port" in refused("watch", "run", "--port", port)


def test_a_run_that_has_ended_is_shown_from_its_files(tmp_path: Path) -> None:
    process = start_words("watch", str(run_of(tmp_path / "run")))
    assert "which has ended: what its files tell" in process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)/\S+/", process.stdout.readline())
    # A few connections that send nothing, half a request, or read nothing keep nobody out.
    keyed = f"GET {found[0].partition(found[1])[2]}state HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as stack:
        for sent in [b"", b"G", b"GET /x/ HTTP/1.1\r\n\r\n", keyed] * 10:
            stack.enter_context(socket.create_connection(("127.0.0.1", int(found[1])))).sendall(sent)
        assert not json.load(stack.enter_context(urlopen(f"{found[0]}state", timeout=30)))["living"]
    process.send_signal(signal.SIGINT)
    finish(process)


def test_a_browser_opens_the_page_without_its_key_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may read the words of a process; the browser has the priority of any program."""
    browser, told = tmp_path / "browser", tmp_path / "told"
    tells = f'{{ cat "${{1#file://}}"; stat -c %a "${{1#file://}}"; nice; }} > {told}.part'
    browser.write_text(f"#!/bin/sh\n{tells}\nmv {told}.part {told}\n")
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    run_of(tmp_path / "run")
    process = start_words("watch", "run", "--open", program=(str(ROOT / "launch.py"),), cwd=tmp_path)
    address = [process.stdout.readline() for _ in range(2)][1].strip()
    wait_until(process, told.exists)
    process.send_signal(signal.SIGTERM)
    finish(process)
    assert not list(tmp_path.glob("ringside-watch-*"))
    page, mode, niceness = told.read_text().splitlines()
    assert address in page
    assert (mode, int(niceness)) == ("600", os.nice(0))


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_a_viewer_and_a_server_that_are_stuck_do_not_disturb_a_run(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run = start(run_dir, total_steps="1_920")
    wait_until(run, (run_dir / "live.json").exists)
    server = start_words("watch", str(run_dir))
    server.stdout.readline()
    found = re.search(r"127\.0\.0\.1:(\d+)(/\S+/)", server.stdout.readline())
    with socket.create_connection(("127.0.0.1", int(found[1]))) as stuck:
        stuck.settimeout(30)
        stuck.sendall(f"GET {found[2]}pictures HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 50)
        assert stuck.recv(12) == b"HTTP/1.1 200"  # and never reads the rest
        server.send_signal(signal.SIGSTOP)
        finish(run, seconds=200)
    assert (summary(run_dir)["finished"], summary(run_dir)["restarts"]) == (True, 0)
    assert not (run_dir / "live.json").exists()
    server.kill()
    server.wait(10)
