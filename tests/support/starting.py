"""A program whose children never come to their first line of ours: what spawns them again as its main module waits.

Started in place of `launch.py` (`tests.support.runs.start(..., program=STARTING)`).
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from launch import main
    from shared.process.signals import enable_stack_dumps

    enable_stack_dumps()
    sys.exit(main(sys.argv[1:]))
if __name__ == "__mp_main__":
    while True:
        signal.pause()
