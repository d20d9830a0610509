"""Layout of a status in the live display.

Colors are redundant: every state is also a word, and color-blind readers can tell blue, yellow and bold apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ringside.records.role_status import RoleStatus
from ringside.watch.line import UNKNOWN, clock, figures, kind, left, number, share, starting_sentence, stopping_words
from ringside.watch.status import Status
from shared.text import short

FEW_ACTORS = 4
"""Most actors with a line each."""
_WIDEST = 100
_TWO_COLUMNS = 80
_LOW = 26
"""Terminal width for two columns of numbers, and height below which all actors share a line."""


def render(status: Status, width: int, height: int = 100) -> RenderableType:
    """Layout of a status, at most `width` columns wide; one line for all actors if `height` is small."""
    width = min(width, _WIDEST)
    title = Text.assemble(("Ringside  ", "bold"), (status.game, "bold blue"), f"  {kind(status)}")
    fold = sum(role.is_player for role in status.roles) > FEW_ACTORS or height < _LOW
    picture = Table.grid(padding=(0, 1), pad_edge=True)
    picture.add_column(width=width - 2)
    picture.add_row(Rule(title, align="left", style="blue", characters="─"))
    if status.changes:
        picture.add_row(Text(f"Changed: {', '.join(status.changes)}", style="dim"))
    if starting_sentence(status) is None:
        picture.add_row(ProgressBar(1.0, share(status), style="dim", complete_style="blue", finished_style="blue"))
        picture.add_row(_progress(status))
        picture.add_row()
        picture.add_row(_figures(status, width))
    picture.add_row()
    picture.add_row(_roles(status.roles, width, fold=fold))
    picture.add_row()
    if status.bottleneck:
        picture.add_row(Text(status.bottleneck.sentence, style="bold"))
    for warning in status.warnings:
        picture.add_row(Text(f"Warning: {warning}", style="bold yellow"))
    picture.add_row(Text(f"{status.run_dir}", style="dim", overflow="fold"))
    if status.roles and all(role.state == "done" for role in status.roles):
        return picture
    # Not in the table, which fills lines: a terminal would show ^C on a line of its own, and the next picture a line
    # too low.
    return Group(picture, Text(f" {_ends(status)}", style="dim"))


def _ends(status: Status) -> str:
    """Effect of Ctrl-C; after a request to stop, the step that the run waits for."""
    if (stopping := stopping_words(status)) is not None:
        return f"{stopping}. Ctrl-C once more stops at the newest snapshot."
    return "Ctrl-C finishes the round, saves and ends" if status.can_be_saved else "Ctrl-C ends; nothing is saved yet"


def _progress(status: Status) -> Text:
    """Share, steps, rounds, elapsed time and time left."""
    known = status.time_left is not None or status.only_evaluates
    time_left = f"{left(status)} left" if known else "time left unknown"
    return Text.assemble(
        (f"{share(status):.1%}", "bold"),
        f"  {short(status.steps)} of {short(status.total_steps)} steps",
        f"  round {number(status.committed, 0)} of {number(status.rounds, 0)}",
        f"  {clock(status.elapsed)} gone, ",
        (time_left, "bold"),
        "" if status.stop_at is None else f"  --stop-at {status.stop_at:g}",
    )


def _figures(status: Status, width: int) -> Table:
    """Table of numbers, in two columns if there is room."""
    cells, pairs = figures(status), 2 if width >= _TWO_COLUMNS else 1
    table = Table.grid(padding=(0, 1))
    for least in (26, 0)[:pairs]:
        table.add_column(style="dim", no_wrap=True, min_width=9)
        table.add_column(min_width=least if pairs == 2 else 0)
    for start in range(0, len(cells), pairs):
        table.add_row(*(word for cell in cells[start : start + pairs] for word in cell))
    return table


def _roles(roles: Sequence[RoleStatus], width: int, *, fold: bool) -> Table:
    """Table with a line for each role; with `fold`, one for all actors."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    bar = max(0, min(20, width - 52))
    for name, least in (("role", 9), ("state", 8), ("busy", None), ("restarts", None)):
        table.add_column(name, no_wrap=True, min_width=least)
    actors = [role for role in roles if role.is_player]
    for role in roles:
        if not (role.is_player and fold):
            table.add_row(_name(role), *_work(role.state, role.busy, role.restarts, bar))
    if fold and actors:
        known = [role.busy for role in actors if role.busy is not None]
        spread = f" ({min(known):.0%}-{max(known):.0%})" if known else ""
        state, _ = Counter(role.state for role in actors).most_common(1)[0]
        busy = sum(known) / len(known) if known else None
        cells = _work(state, busy, sum(role.restarts for role in actors), bar, spread)
        table.add_row(f"{actors[0].group} {len(actors)}", *cells)
    return table


def _name(role: RoleStatus) -> str:
    """Name of a process, and of the node that plays for it."""
    if role.node is None:
        return role.name
    return f"{role.name} on {role.node.name}" if role.node.name else f"{role.name} without a node"


def _work(state: str, busy: float | None, restarts: int, bar: int, more: str = "") -> tuple[Text, Text, Text]:
    """State, busy share with a bar of `bar` characters, and restarts."""
    filled = round(min(1.0, max(0.0, busy or 0.0)) * bar)
    empty = bar - filled if busy is not None else 0
    return (
        Text(state, style="yellow" if state in ("replaying", "ended", "starting") else ""),
        Text.assemble(
            ("█" * filled, "blue"),
            ("░" * empty, "dim"),
            f" {busy:4.0%}" if busy is not None else f"{UNKNOWN:>{bar + 5}}",
            more,
        ),
        Text(str(restarts), style="bold yellow" if restarts else "dim"),
    )
