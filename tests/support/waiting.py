"""The one way in which tests wait for what others do."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 60.0, *, every: float = 0.01) -> None:
    """Look at a condition every so many seconds until it is true; fail when that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"this did not come true within {seconds} s"
        time.sleep(every)
