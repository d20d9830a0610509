"""The tasks of the command, a file each: options and what is done with them. `launch.py` chooses one."""

TASKS = ("train", "watch", "eval", "play", "record", "zoo", "report", "suite", "bench", "doctor", "completion")
"""What the first word of the command line can be; without one, `train`. Each is a module of `tasks` with a `main`."""
