"""NVIDIA's Multi-Process Service (MPS) for one run: learner and inference use the GPU at once, not in turns.

Without MPS the driver gives the GPU to one process for milliseconds at a time, and inference waits for the learner.
Each run has a separate control daemon. Its pipes and logs lie in a private directory, and only processes with
`environment` are its clients. A *guardian*, a small process, ends the daemon when the run ends, however it ends. It
notices the end by a pipe that the run holds open.

    run ──pipe──▶ guardian ──▶ nvidia-cuda-mps-control -f ──▶ nvidia-cuda-mps-server

A fault of one client may end all clients of a server, and the server accepts no new clients until the faulty ones are
gone. So a restart of one client restarts all (ringside/supervisor/supervisor.py).
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from shared.machine.proc_files import stat_fields
from shared.machine.subprocesses import die_with, kill_and_reap, read_output
from shared.process.signals import STOP_SIGNALS, enable_stack_dumps, ignore_requests, stack_dumps_held_back
from shared.root import ROOT

CONTROL = "nvidia-cuda-mps-control"
DRIVER_FOLDER = "/usr/local/nvidia/bin"
START_SECONDS = 15.0
CLIENT_SECONDS = 60.0
QUIT_SECONDS = 5.0
_READY = "ready"
_PR_SET_CHILD_SUBREAPER = 36

_NOT_READY = ("CUDA error 807",)
"""CUDA_ERROR_MPS_SERVER_NOT_READY: the error of clients while their server starts."""
_ENDING = ("CUDA error 805", "CUDA error 806")
"""CUDA_ERROR_MPS_CONNECTION_FAILED and CUDA_ERROR_MPS_RPC_FAILURE: possible errors while the former one ends."""
_CLIENT = """
import ctypes, sys
def do(result):
    if result:
        sys.exit(f"CUDA error {result}")
cuda = ctypes.CDLL("libcuda.so.1")
device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
do(cuda.cuInit(0))
do(cuda.cuDeviceGet(ctypes.byref(device), int(sys.argv[1])))
do(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
do(cuda.cuCtxSetCurrent(context))
do(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)))
do(cuda.cuMemsetD8_v2(address, ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20)))
do(cuda.cuCtxSynchronize())
"""


class MpsError(RuntimeError):
    """There is no working daemon. The message is a sentence saying why."""


def client_environment(directory: Path) -> dict[str, str]:
    """Variables that make a process a client of the daemon in a directory."""
    return {"CUDA_MPS_PIPE_DIRECTORY": str(directory / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(directory / "log")}


def control() -> str | None:
    """Path of the program; containers have it in the driver's folder. None: there is none."""
    return shutil.which(CONTROL) or shutil.which(CONTROL, path=DRIVER_FOLDER)


def client(device: int) -> list[str]:
    """A command that uses a GPU as a client. If it fails, the daemon cannot be used."""
    return [sys.executable, "-c", _CLIENT, str(device)]


class Service:
    """The daemon of a run, as long as it lives."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._guardian: subprocess.Popen[str] | None = None
        self._trial: Sequence[str] = ()

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the clients; empty when there is no daemon."""
        if self._guardian is None or self._guardian.poll() is not None or self._directory is None:
            return {}
        return client_environment(self._directory)

    def start(self, trial: Sequence[str]) -> None:
        """Start the daemon, and run `trial` as its first client.

        Raises:
            MpsError: the daemon does not start, or does not serve.
        """
        if control() is None:
            raise MpsError(f"There is no {CONTROL} on the PATH or in {DRIVER_FOLDER}.")
        self._trial = trial
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="ringside-mps-"))  # for this user alone, mode 0700
            with stack_dumps_held_back():
                self._guardian = subprocess.Popen(
                    [sys.executable, "-m", "shared.process.mps", str(self._directory)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,  # a Ctrl-C is for the run to answer
                )
        except OSError as error:
            raise MpsError(f"A guardian of {CONTROL} could not be started: {error.strerror}.") from error
        assert self._guardian.stdout is not None, "it was asked for"
        # The guardian bounds its own wait; it may be stopped before it comes to that.
        hearing = select.poll()  # select() knows no descriptors beyond 1,023
        hearing.register(self._guardian.stdout, select.POLLIN)
        answer = self._guardian.stdout.readline().strip() if hearing.poll(2_000 * START_SECONDS) else ""
        if answer != _READY:
            raise MpsError((answer or f"{CONTROL} could not be started.") + self._log_tail())
        self._have_server()
        if not _servers(self._directory):
            raise MpsError("A first process used the GPU, but not through MPS." + self._log_tail())

    def renew(self) -> bool:
        """End the servers, whose clients are gone, and start another. False: the daemon did not do so.

        What a client leaves that was killed at work is undefined (NVIDIA's MPS documentation).
        """
        assert self._directory is not None, "it was started"
        servers = _servers(self._directory)
        if servers is None or None in [_command(self._directory, f"shutdown_server {server} -f") for server in servers]:
            return False
        try:
            self._have_server(_NOT_READY + _ENDING)
        except MpsError:
            return False
        return True

    def _have_server(self, passing: tuple[str, ...] = _NOT_READY) -> None:
        """Have the trial use the GPU: the daemon starts a server with the first client, and may refuse it till then.

        Args:
            passing: errors after which it is tried again.

        Raises:
            MpsError: it cannot.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                read_output(self._trial, CLIENT_SECONDS, environment={**os.environ, **self.environment})
                return
            except (subprocess.SubprocessError, OSError) as error:
                said = (str(getattr(error, "stderr", None) or "").strip() or type(error).__name__).splitlines()[-1]
                if said.endswith(passing) and time.monotonic() < deadline:
                    continue
                raise MpsError(
                    f"A first process could not use the GPU through MPS ({said}).{self._log_tail()}"
                ) from error

    def _log_tail(self) -> str:
        """A sentence with the last line of the daemon's log, if there is one; its directory is not kept."""
        assert self._directory is not None, "it was started"
        try:
            lines = (self._directory / "log" / "control.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f" Its log ends with: {lines[-1].strip()}" if lines else ""

    def quit(self) -> None:
        """End the daemon, if there is one, and leave nothing behind. Its clients should be gone."""
        if self._guardian is not None:
            assert self._guardian.stdin is not None, "it was asked for"
            self._guardian.stdin.close()
            try:
                self._guardian.wait(4 * QUIT_SECONDS)
            except subprocess.TimeoutExpired:
                kill_and_reap(self._guardian)
            assert self._guardian.stdout is not None, "it was asked for"
            self._guardian.stdout.close()
            self._guardian = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


@contextmanager
def service(asked: str, device: str, note: Callable[[str], None]) -> Iterator[Service]:
    """The daemon around the life of a run's processes; its `environment` stays empty where there is to be none.

    Args:
        asked: auto: where it can be started; on; off.
        device: as resolved; only with "cuda:N" there is something to share.
        note: called when "auto" continues without.

    Raises:
        MpsError: it was asked for and cannot be started.
    """
    daemon = Service()
    try:
        index = device.partition(":")[2]
        if asked != "off" and index:
            try:
                daemon.start(client(int(index)))
            except MpsError as error:
                if asked == "on":
                    raise
                daemon.quit()
                note(f"The GPU is shared in turns, without MPS: {error}")
        yield daemon
    finally:
        daemon.quit()


def _command(directory: Path, command: str) -> str | None:
    """Answer of the daemon to a command; None when there is none."""
    try:
        return read_output(
            [control() or CONTROL],
            QUIT_SECONDS,
            stdin=command + "\n",
            environment={**os.environ, **client_environment(directory)},
        )
    except (subprocess.SubprocessError, OSError):
        return None


def _servers(directory: Path) -> list[str] | None:
    """Process numbers of the daemon's servers; None: it does not answer."""
    answer = _command(directory, "get_server_list")
    return None if answer is None else [word for word in answer.split() if word.isdecimal()]


def _guard(directory: Path) -> None:
    """The guardian: start the daemon, say so, wait for the end of the input or of the daemon, leave nothing behind."""
    ignore_requests()  # signals may reach every process of a job; the pipe tells when the run has ended
    enable_stack_dumps()
    # What the daemon leaves when it dies, its servers, becomes a child of this process, which can then end it.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = {**os.environ, **client_environment(directory)}
    # The daemon starts its servers by name, and they lie beside it, on the PATH or not.
    folders = [environment.get("PATH", os.defpath), DRIVER_FOLDER]
    environment["PATH"] = os.pathsep.join(folders)
    # A daemon that sees fewer devices numbers them anew, and its clients would select among these once more.
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    for name in ("pipe", "log"):
        (directory / name).mkdir(mode=0o700)
    daemon = None
    try:
        daemon = subprocess.Popen(
            [control() or CONTROL, "-f"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=partial(_become_daemon, os.getpid()),
        )
        if _answers(daemon, directory):
            print(_READY, flush=True)
            while daemon.poll() is None and not select.select([sys.stdin], [], [], 0.5)[0]:
                pass
            _command(directory, "quit")
        elif daemon.poll() is not None:
            print(f"{CONTROL} ended with code {daemon.returncode}.", flush=True)
        else:
            print(f"{CONTROL} did not answer within {START_SECONDS:.0f} s.", flush=True)
    except OSError as error:
        print(f"{CONTROL} could not be started: {error.strerror}.", flush=True)
    finally:
        if daemon is not None:
            _end(daemon)
        shutil.rmtree(directory, ignore_errors=True)


def _become_daemon(guardian: int) -> None:
    """In the process that becomes the daemon: it ends with the guardian, and has the default handlers of signals."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    die_with(guardian)


def _answers(daemon: subprocess.Popen[bytes], directory: Path) -> bool:
    """True if a fresh daemon answers before it ends and in time."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if _command(directory, "get_server_list") is not None:
            return True
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(0.1)
            return False
    return False


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """Wait for a daemon that was told to quit; kill it and its servers when it does not end."""
    with suppress(subprocess.TimeoutExpired):
        daemon.wait(QUIT_SECONDS)
    kill_and_reap(daemon)
    for path in Path("/proc").glob("[0-9]*/stat"):
        if stat_fields(path)[1:2] == [str(os.getpid())]:
            with suppress(ProcessLookupError):
                os.kill(int(path.parent.name), signal.SIGKILL)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
