"""The program of a group: a supervisor of inference server and actors over the region that its parent made.

python -m ringside.cluster.groups.node_program MEMORY_FD DOORBELL_FD...     # the plan comes through standard input
"""

from __future__ import annotations

import pickle
import sys

from ringside.supervisor.supervisor import Supervisor
from shared.errors import RingsideError
from shared.files.disk_trouble import log_line
from shared.files.run_file_names import LOGS
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell
from shared.process.library_env import choose_workspace
from shared.process.signals import enable_stack_dumps


def main() -> int:
    """Supervise until a signal comes. Return 1 if a fault ended the group; the last line of the output says which."""
    enable_stack_dumps()
    memory_fd, *doorbells = map(int, sys.argv[1:])
    plan: Plan = pickle.load(sys.stdin.buffer)
    (plan.config.run.run_dir / LOGS).mkdir(mode=0o700, exist_ok=True)
    choose_workspace()
    region = Memory.attach(memory_fd, plan), [Doorbell(fd) for fd in doorbells]
    try:
        Supervisor(plan, lambda memory: None, log_line, region=region, roles=(Role.INFERENCE,)).run()
    except RingsideError as error:
        log_line(" ".join(str(error).split()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
