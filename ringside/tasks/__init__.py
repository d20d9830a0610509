"""The tasks of the command, a file each, with their options. `launch.py` chooses one.

Read train and arguments first, then eval, play, record, watch, report, suite and tune. The rest are export, bench,
doctor, zoo and completion.
"""

TASKS = (
    "train",
    "watch",
    "eval",
    "play",
    "record",
    "zoo",
    "report",
    "suite",
    "tune",
    "export",
    "bench",
    "doctor",
    "completion",
)
"""Task names, the optional first argument (default: `train`). Each is a module of this package with a `main`."""
