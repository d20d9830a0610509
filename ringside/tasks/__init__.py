"""The tasks of the command, a file each, with their options. `launch.py` chooses one.

Read train and arguments first, then eval, play, record, watch, report and suite. The rest are bench, doctor, zoo
and completion.
"""

TASKS = ("train", "watch", "eval", "play", "record", "zoo", "report", "suite", "bench", "doctor", "completion")
"""Task names, the optional first argument (default: `train`). Each is a module of this package with a `main`."""
