"""The tasks of the command, a file each: options and what is done with them. `launch.py` chooses one."""

TASKS = ("train", "watch", "eval", "play", "record", "zoo", "report", "suite", "bench", "doctor", "completion")
"""Possible first words of the command line; without one, `train`. Each is a module of this package with a `main`."""
