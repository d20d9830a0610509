"""A stand-in for nvidia-cuda-mps-control, run as `python fake_mps.py [-f]`: files in the pipe directory are its pipes.

RECORD names a directory for what tests want to know. BROKEN: it ends at once. With a first client (a file "client") it
has a server, which has a session of its own and outlives it, unless it is told to quit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

pipe, record = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]), Path(os.environ["RECORD"])
quit_, server = pipe / "quit", pipe / "server"


def daemon() -> None:
    """Serve until told to quit."""
    (record / "daemon").write_text(json.dumps({"pid": os.getpid(), "environment": dict(os.environ)}))
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    (record / "server").write_text(str(child.pid))
    server.write_text(str(child.pid))
    (pipe / "control").touch()
    while not quit_.exists():
        time.sleep(0.01)
    child.kill()
    child.wait()
    (record / "quit").touch()


if "-f" in sys.argv:
    if "BROKEN" in os.environ:
        sys.exit(7)
    daemon()
elif not (pipe / "control").exists():
    sys.exit("Cannot find MPS control daemon process")
elif "shutdown_server" in (command := sys.stdin.read()):
    with (record / "shut").open("a") as file:
        file.write(command)
elif "get_server_list" in command:
    used = (record / "client").exists() or "IDLE" not in os.environ
    print(server.read_text() if used else "")
elif "quit" in command:
    quit_.touch()
