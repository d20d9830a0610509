"""The start of a run: `--cgroup` through systemd or without it, and main modules of users."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ringside
from ringside.run import scope
from ringside.run.scope import Limits, make_limits
from shared.errors import ConfigError
from shared.machine.control_groups import InForce
from shared.root import ROOT
from tests.support.waiting import until

GIB = 1 << 30

FAKE = """#!/usr/bin/env python3
# Stands for systemd-run: notes what it was asked for and becomes the command, as --scope does.
import os, sys
if sys.argv[1:] == ["--version"]:
    print("systemd 255 (255.4-1)")
    sys.exit()
with open(os.environ["ASKED"], "w") as file:
    file.write("\\n".join([str(os.getpid()), *sys.argv[1:]]))
command = sys.argv[sys.argv.index("--") + 1 :]
os.execvp(command[0], command)
"""

LAUNCH = """
import os
import sys
from pathlib import Path
import launch
from ringside.run import scope
if not scope.inside():
    print(os.getpid(), flush=True)
ask = scope.enter
scope.enter = lambda limits, command: ask(limits, command, Path(sys.argv[1]))
sys.exit(launch.main(list(sys.argv[2:])))
"""
"""The launcher, for which systemd runs on the machine whose root is the first argument."""


AMOUNTS = {"16G": 16 * GIB, "800m": 800 << 20, "1.5g": 3 * GIB // 2, "16GB": 16 * GIB, "2GiB": 2 * GIB}
AMOUNTS[9 * "9"] = 10**9 - 1


@pytest.mark.parametrize(("words", "memory"), [*AMOUNTS.items(), (None, None)])
def test_amounts_of_memory(words: str | None, memory: int | None) -> None:
    assert make_limits(None, words) == Limits(None, memory)


INVALID = [
    *((cpus, None) for cpus in (0.0, -1.0, float("nan"))),
    *((None, memory) for memory in ("16 GB", "0", "much", "-1G", "16")),
]


@pytest.mark.parametrize(("cpus", "memory"), INVALID)
def test_an_invalid_limit_is_refused(cpus: float | None, memory: str | None) -> None:
    with pytest.raises(ConfigError, match=r"^--(cpus|memory) "):
        make_limits(cpus, memory)


def test_the_properties_of_the_scope() -> None:
    words = scope.systemd_run(Limits(8 / 3, 16 * GIB), ["python", "launch.py", "--cgroup"], "--user", 255)
    unit = f"--unit=ringside-{os.getpid()}.scope"
    assert words[:6] == ["systemd-run", "--scope", "--user", "--quiet", "--collect", unit]
    assert words[words.index("--") + 1 :] == ["python", "launch.py", "--cgroup"]
    properties = {word.removeprefix("--property=") for word in words if word.startswith("--property=")}
    assert properties >= {"CPUQuota=266.7%", f"MemoryMax={16 * GIB}", "OOMPolicy=continue", "KillMode=control-group"}
    assert any(each.startswith("TasksMax=") for each in properties)
    old = scope.systemd_run(Limits(None, None), ["true"], "--system", 252)
    assert not [word for word in old if "OOMPolicy" in word or "MemoryMax" in word or "CPUQuota" in word]


def test_limits_that_are_not_in_force_are_named() -> None:
    asked = Limits(2.0, 4 * GIB)
    for cpus, memory in ((2.0, 4 * GIB), (1.0, GIB)):  # a group above may be tighter
        assert asked.missing(InForce("/a", cpus, memory, 100)) == []
    cores, memory = asked.missing(InForce("/a", None, 8 * GIB, None))
    assert cores.startswith("--cpus 2 is not in force")
    assert memory.startswith("--memory of 4.3 GB is not in force")
    assert Limits(None, None).missing(InForce("/a", None, None, None)) == []


def test_without_systemd_a_sentence_says_how_to_do_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"systemd, which does not run here\. Omit --cgroup"):
        scope.enter(Limits(None, None), ["true"], tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    _fake(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    with pytest.raises(ConfigError, match="manager of this user"):
        scope.enter(Limits(None, None), ["true"], tmp_path)


def test_a_run_finds_itself_inside_and_keeps_output_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _systemd(tmp_path, monkeypatch)
    monkeypatch.setenv(scope._INSIDE, "ringside-1.scope")  # of a run that this one was started from
    words = ["--cgroup", "--cpus", "3", "--memory", "64T", "--game", "nosuchgame"]
    done = python("-c", LAUNCH, str(tmp_path), *words, cwd=ROOT)
    pid, *asked = (tmp_path / "asked").read_text().split("\n")
    scoped = ["--scope", "--system" if os.getuid() == 0 else "--user"]
    assert (asked[:2], asked[-len(words) :]) == (scoped, words)
    assert {f"--unit=ringside-{pid}.scope", "--property=CPUQuota=300%"} <= {*asked}
    assert (done.stdout.startswith(f"{pid}\nIn force: "), done.returncode) == (True, 2)
    for says in ("--memory of 70368.7 GB is not in force", "There is no game 'nosuchgame'"):
        assert says in done.stderr


def test_processes_left_in_the_scope_die_after_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _systemd(tmp_path, monkeypatch)
    told = tmp_path / "told"
    os.mkfifo(told)
    # Says what it was told, and the state that the launcher is in: Z, since it was not waited for yet.
    state = "$(grep -s State: /proc/$(echo $4 | tr -dc 0-9)/status)"
    _program(tmp_path / "systemctl", f'#!/bin/sh\n[ $2 = is-active ] || echo "$@" "{state}" > {told}\n')
    enter = "import sys, pathlib; from ringside.run import scope; scope.LEAVE_SECONDS = 0.2; "
    enter += "scope.enter(scope.Limits(None, None), ['cat'], pathlib.Path(sys.argv[1]))"
    process = subprocess.Popen([sys.executable, "-c", enter, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE)
    with subprocess.Popen(["cat", str(told)], stdout=subprocess.PIPE, text=True) as reader:
        until((tmp_path / "asked").exists)
        process.kill()
        said, _ = reader.communicate(timeout=30)
    assert process.wait() == -signal.SIGKILL
    assert said.split()[1:6] == ["kill", "--signal=SIGKILL", f"ringside-{process.pid}.scope", "State:", "Z"]


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _fake(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a systemd-run before all others on the path."""
    _program(directory / "systemd-run", FAKE)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def _systemd(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with systemd and a session of this user; what is asked of systemd-run goes to `root / "asked"`."""
    (root / "run/systemd/system").mkdir(parents=True)
    (root / "run/user" / str(os.getuid()) / "systemd/private").mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    _fake(root, monkeypatch)
    monkeypatch.setenv("ASKED", str(root / "asked"))


CHECK = "from ringside.run.children import require_main_guard\n"


def python(*words: str, cwd: Path, script: str | None = None) -> subprocess.CompletedProcess[str]:
    environment, command = os.environ | {"PYTHONPATH": str(ROOT)}, [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, env=environment, input=script, capture_output=True, text=True, timeout=60)


def test_training_without_the_guard_is_one_sentence_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import ringside\n\nringside.train(\n    game='pong',\n)\n")
    done = python("mine.py", cwd=tmp_path)
    assert (done.returncode, os.listdir(tmp_path)) == (1, ["mine.py"])
    says = f"{tmp_path / 'mine.py'}, line 3, starts a run whenever the file is imported, and each process of the run"
    assert f'ConfigError: {says} imports it: put the call under if __name__ == "__main__":.' in done.stderr


SCRIPTS = [
    ("require_main_guard()", True),
    ("def main():\n    require_main_guard()\nmain()", True),
    ("import experiment", True),
    ("if __name__ == '__main__':\n    require_main_guard()", False),
    ("def main():\n    require_main_guard()\nif '__main__' == __name__ and True:\n    main()", False),
    ("exec('require_main_guard()')", True),
    ("if True:\n    require_main_guard()", True),
    ("try:\n    if __name__ == '__main__':\n        require_main_guard()\nfinally:\n    pass", False),
]


@pytest.mark.parametrize(("script", "refused"), SCRIPTS)
def test_the_guard_is_seen(tmp_path: Path, script: str, refused: bool) -> None:
    (tmp_path / "experiment.py").write_text(f"{CHECK}require_main_guard()\n")
    (tmp_path / "mine.py").write_text(f"{CHECK}{script}\n")
    done = python("mine.py", cwd=tmp_path)
    assert ("put the call under" in done.stderr, done.returncode) == (refused, int(refused)), done.stderr


def test_a_main_module_without_a_file_needs_no_guard(tmp_path: Path) -> None:
    script = f"{CHECK}require_main_guard()\nprint('fine')"
    for done in (python("-c", script, cwd=tmp_path), python("-", cwd=tmp_path, script=script)):
        assert (done.stdout, done.stderr) == ("fine\n", "")


def test_a_script_from_standard_input_starts_children(tmp_path: Path) -> None:
    script = """
import os, sys
from ringside.run.children import ChildProcess
child = ChildProcess(target=os.putenv, args=("A", "B"))
child.start()
child.join()
sys.exit(child.exitcode)
"""
    done = python("-", cwd=tmp_path, script=script)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_call_from_another_thread_is_one_sentence() -> None:
    """Neither memory nor doorbells are made then."""
    before = set(os.listdir("/proc/self/fd"))
    says = r"^Training was called from another thread: call it from the main thread\.$"
    with ThreadPoolExecutor() as threads, pytest.raises(ConfigError, match=says):
        threads.submit(ringside.train, game="pong", preset="quick").result()
    assert set(os.listdir("/proc/self/fd")) == before
