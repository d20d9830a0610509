"""Starting real runs from tests: the command line in a process of its own, its files, its processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from multiprocess import spawn

from ringside.run import fork_server
from shared.config.method_declaration import method_declaration, method_names
from shared.config.settings import Config
from shared.memory.layout import LayoutError
from shared.memory.plan import Elsewhere, Plan
from shared.memory.run_memory import Memory
from shared.process.live import Live
from shared.root import ROOT
from shared.text import flag_of
from tests.support.waiting import until

LAUNCH = ("launch.py",)

Process = subprocess.Popen[str]
"""A command in a process of its own."""
STARTED: list[Process] = []
"""Runs of the present test; none outlives it (conftest.py)."""

SMALL = {
    **{"--game": "breakout", "--envs": "8", "--lane-envs": "2", "--actors": "2", "--round-steps": "480"},
    **{"--batch-size": "8", "--learning-starts": "960", "--total-steps": "4_800", "--replay-size": "2_400"},
    **{"--epsilon-steps": "2_000", "--network": "small", "--learner-members": "1", "--inference-batch": "4"},
}
"""Ten rounds of 60 ticks, eight of which learn; the window wraps; random Breakout ends an episode in some 200 ticks."""
OF_REPLAY = {"learning_starts", "replay_size", "epsilon_steps"}
"""Settings of `SMALL` that on-policy methods refuse."""
OF_LEARNER = {"envs", "round_steps", "batch_size", "inference_batch", "replay_size"}
"""Settings of `SMALL` that workers refuse."""


Flags = dict[str, str | bool]
"""Settings of a run by name. True: the flag has no value."""


def flags_in(text: str) -> Flags:
    """Settings that are written as `name=value`, or as `name`."""
    return {name: value or True for name, _, value in (word.partition("=") for word in text.split())}


def start(run_dir: Path, *words: str, program: Sequence[str] = LAUNCH, **changes: Any) -> Process:
    """Start `launch.py --plain` in a session of its own; `changes` replace flags of `SMALL` (`total_steps="960"`).

    `program`: words for Python that launch something else than `launch.py` does.
    """
    refused = set(OF_REPLAY) if _is_on_policy(changes.get("method", "dqn")) else set()
    refused |= (OF_LEARNER if "workers" in changes else set()) | ({"game"} if "env" in changes else set())
    left_out = set(map(flag_of, refused))
    usual = {flag: value for flag, value in SMALL.items() if "--resume" not in words and flag not in left_out}
    flags = usual | {flag_of(name): value for name, value in changes.items()}
    flat = (word for flag, value in flags.items() for word in ([flag] if value is True else [flag, value]))
    return start_words("--plain", *flat, "--run-dir", str(run_dir), *words, program=program)


def _is_on_policy(method: str) -> bool:
    """True unless a registered method has a replay buffer; the only plug-in of these tests is on-policy."""
    return method not in method_names() or method_declaration(method).on_policy


def start_words(*words: str, program: Sequence[str] = LAUNCH, cwd: Path = ROOT) -> Process:
    """Start the command, or another `program`, with just these words in a directory."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    environment = {**os.environ, "COLUMNS": "160", "PYTHONUNBUFFERED": ""}
    process = subprocess.Popen([sys.executable, *program, *words], cwd=cwd, env=environment, **pipes)
    STARTED.append(process)
    return process


def finish(process: Process, seconds: float = 100.0, code: int = 0) -> str:
    """Wait for the end of a run and of all its processes, check the exit code, return what was printed."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"The run did not end within {seconds} s. It printed:\n{output}") from None
    assert process.returncode == code, f"exit code {process.returncode}, expected {code}:\n{output}"
    assert gone(process), f"a process outlives the run:\n{output}"
    return output


def summary(run_dir: Path) -> dict[str, Any]:
    """`summary.json` of a run."""
    return json.loads((run_dir / "summary.json").read_text())


def records(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """Whole records of one kind in `metrics.jsonl`, which may be being written."""
    path = run_dir / "metrics.jsonl"
    if not path.exists():
        return []
    return [each for each in map(json.loads, path.read_text().split("\n")[:-1]) if each["kind"] == kind]


def evaluations(run_dir: Path) -> list[dict[str, Any]]:
    """Evaluations in `metrics.jsonl`, without their time."""
    found = records(run_dir, "evaluation")
    return [{name: value for name, value in each.items() if name != "seconds"} for each in found]


def memory_of(process: Process, run_dir: Path, actions: int = 4, gateways: int = 0) -> Memory:
    """The shared memory of a living run, through the launcher's descriptor; waits until it is there."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and process.poll() is None:
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(FileNotFoundError, LayoutError):  # closed since it was listed, or not written to yet
                if os.readlink(link).startswith("/memfd:ringside") and link.stat().st_size:
                    config = Config.from_json(json.loads((run_dir / "config.json").read_text()))
                    live = Live.read(run_dir)  # of which only a network of the user needs something
                    plan = Plan(config, actions, Elsewhere(gateways), own_torso=live and live.own_torso)
                    return Memory.attach(os.open(link, os.O_RDWR), plan)
        time.sleep(0.01)
    raise AssertionError("There is no shared memory after a minute, or the run has ended.")


def begun(run_dir: Path, *words: str, actions: int = 4, committed: int = -1, **as_start: Any) -> tuple[Process, Memory]:
    """Start a run; return its process and its memory, when that is there and so many rounds are committed."""
    process = start(run_dir, *words, **as_start)
    memory = memory_of(process, run_dir, actions)
    wait_until(process, lambda: memory.board.committed >= committed)
    return process, memory


def wait_until(process: Process, condition: Callable[[], bool], seconds: float = 60.0, every: float = 0.002) -> None:
    """Poll a condition of a living run, every so many seconds: more where the condition reads files or processes."""

    def there() -> bool:
        if condition():
            return True
        assert process.poll() is None, f"the run ended early:\n{process.communicate()[0]}"
        return False

    until(there, seconds, every=every)


def awaited(process: Process, role: str) -> psutil.Process:
    """The child of that title, when it is there."""
    found: list[psutil.Process] = []
    wait_until(process, lambda: bool(found.extend(filter(None, [child(process, role)])) or found), every=0.02)
    return found[0]


def kill(process: Process, role: str) -> None:
    """SIGKILL the child of that title, when it is there."""
    awaited(process, role).kill()


def child(process: Process, role: str) -> psutil.Process | None:
    """The living child whose title is `ringside ROLE`."""
    candidates = psutil.Process(process.pid).children(recursive=True)
    return living(candidates, lambda candidate: candidate.cmdline()[:1] == [f"ringside {role}"])


def living(found: Iterable[psutil.Process], is_it: Callable = psutil.Process.is_running) -> psutil.Process | None:
    """The first of these processes that lives, by default any, and is the one."""
    for candidate in found:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if is_it(candidate) and candidate.status() != psutil.STATUS_ZOMBIE:
                return candidate
    return None


SPAWN_FLAG = spawn.get_command_line()[-1]
"""Last word of the command by which multiprocess starts a child."""


def spawning(process: psutil.Process) -> bool:
    """True if a child of a run is still starting, so that it has no title of its own yet. A fork server is none."""
    if is_fork_server(process):
        return is_fork_server(process.parent())
    return process.cmdline()[-1:] == [SPAWN_FLAG]


def is_fork_server(process: psutil.Process) -> bool:
    """True if a process is a fork server, or was forked by one and has no title of its own yet."""
    return any(name in word for word in process.cmdline() for name in (fork_server.TITLE, fork_server.__name__))


def fork_server_of(process: Process) -> psutil.Process | None:
    """The living fork server of a run."""
    return living(psutil.Process(process.pid).children(), is_fork_server)


def gone(process: Process, seconds: float = 20.0) -> bool:
    """True if no process of the run's session is left after a moment; to reap zombies is for PID 1."""
    deadline = time.monotonic() + seconds
    while left := living(psutil.process_iter(), lambda each: os.getsid(each.pid) == process.pid):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return left is None


def shared_names() -> set[str]:
    """Names in /dev/shm that Python or Ringside may have left."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("sem.mp-", "psm_", "ringside"))}


def same_summary(run_dir: Path, undisturbed: Path) -> dict[str, Any]:
    """The summary of a run, whose weights and totals are those of an undisturbed one."""
    last, expected = summary(run_dir), summary(undisturbed)
    for name in ("weights_sha256", "rounds", "steps", "updates", "episodes", "mean_return_100", "exact"):
        assert last[name] == expected[name], name
    return last
