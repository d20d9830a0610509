"""A launcher whose workers are killed within shards: `python -m tests.support.dying_run OPTIONS`.

It loads no torch, so neither do the children that import it as their main module.
"""

from __future__ import annotations

import sys

import launch
from ringside.run import children
from shared.memory.process_table import Role

if __name__ == "__main__":
    children.MODULES[Role.WORKER] = "tests.support.dying_worker"
    sys.exit(launch.main(sys.argv[1:]))
