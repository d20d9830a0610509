"""TensorBoard events where TensorBoard is there, and can be imported."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from shared.errors import is_installed
from shared.files import disk_trouble

if TYPE_CHECKING:
    from ringside.records.events import EventLog


@cache
def event_log_class() -> type[EventLog] | None:
    """Class of TensorBoard events; None where the extra `track` is missing or broken. Raises `OSError`."""
    if not is_installed("tensorboard"):
        return None
    try:
        from ringside.records.events import EventLog
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  (a broken installation raises anything)
        fault = f"{type(error).__name__}: {error}".partition("\n")[0]
        disk_trouble.log_line(f"There are no events for TensorBoard, which cannot be imported ({fault}).")
        return None
    return EventLog
