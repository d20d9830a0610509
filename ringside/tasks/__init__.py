"""The tasks of the command, a file each, with their options. `launch.py` chooses one.

Read train and arguments first, then eval, play, record, watch, report and suite. The rest are bench, doctor, zoo,
completion and game_lists.
"""

TASKS = ("train", "watch", "eval", "play", "record", "zoo", "report", "suite", "bench", "doctor", "completion")
"""Possible first words of the command line; without one, `train`. Each is a module of this package with a `main`."""
