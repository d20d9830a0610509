"""Numbers and settings as text for reports."""

from __future__ import annotations

import math

from ringside.report.records import number
from shared.text import shown


def score(value: object, digits: int = 1) -> str:
    """A score with grouped digits; a dash for no number."""
    found = number(value)
    if not math.isfinite(found):
        return "–"
    return f"{found:,.{0 if abs(found) >= 10_000 else digits}f}".replace("-", "−")


def amount(value: object) -> str:
    """A count: 950, 12,300, 4.2 million."""
    found = number(value)
    if not math.isfinite(found):
        return "–"
    return f"{found / 1e6:,.4g} million" if abs(found) >= 1e6 else f"{found:,.0f}"


def duration(seconds: object) -> str:
    """A duration: 58 s, 12 min, 3.4 h."""
    found = number(seconds)
    if not math.isfinite(found):
        return "–"
    if found < 120:
        return f"{found:.0f} s"
    return f"{found / 60:.0f} min" if found < 7200 else f"{found / 3600:.1f} h"


def setting(value: object) -> str:
    """A setting as typed on the command line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return shown(value)


def file_name(name: str) -> str:
    """A name as part of a file name."""
    return "".join(letter if letter.isalnum() or letter == "_" else "-" for letter in name)[:80]
