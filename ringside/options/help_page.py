"""Pages of --help: all options of a task by section, or those that most people need."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING

from ringside.options.option import Option
from shared.text import UNSET, flag_of, shown

_WIDEST, _INDENT = 100, 26
_PLACEHOLDER = 26
"""Longest list of choices that stands behind a flag; a longer one stands in the text."""


def full_page(program: str, description: str, options: Sequence[Option]) -> str:
    """Page of all options: those of the task, then section by section."""
    groups: dict[str, list[Option]] = {}
    for option in options:
        if not option.hidden:
            groups.setdefault(option.title.rstrip(".") or "Options", []).append(option)
    return _page(
        program, description, {title: [(each, each.text) for each in group] for title, group in groups.items()}
    )


def short_page(program: str, description: str, options: Sequence[Option], common: Mapping[str, Sequence[str]]) -> str:
    """Page of the options of the task itself and of those in `common`, by group, with shortened texts."""
    known = {option.name: option for option in options if not option.hidden}
    elsewhere = {name for names in common.values() for name in names}
    groups = {"Options": [name for name in known if not known[name].path and name not in elsewhere], **common}
    texts = {
        title: [(known[name], _shortened(known[name].text)) for name in names if name in known]
        for title, names in groups.items()
    }
    return _page(program, description, texts, ranges=False)


def _page(
    program: str, description: str, groups: Mapping[str, Sequence[tuple[Option, str]]], *, ranges: bool = True
) -> str:
    width = min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)
    entries = [entry for group in groups.values() for entry in group]
    arguments = [(option, text) for option, text in entries if option.positional]
    usage = " ".join([program, "[options]", *(_usage(option) for option, _ in arguments)])
    lines = [f"usage: {usage}", "", *_paragraphs(description, width)]
    flags = {title: [each for each in group if not each[0].positional] for title, group in groups.items()}
    for title, group in {"Arguments": arguments, **flags}.items():
        if not group:
            continue
        lines += ["", _bold(title)]
        for option, text in group:
            lines += _entry(option, text, width, ranges=ranges)
    return "\n".join(lines)


def _entry(option: Option, text: str, width: int, *, ranges: bool) -> list[str]:
    """Flag, placeholder, text and default, as lines."""
    placeholder = option.placeholder
    if len(placeholder) > _PLACEHOLDER:
        placeholder = "NAME"
        if not set(option.choices) <= set(re.findall(r"[\w-]+", text)):
            text = f"{text} One of {', '.join(option.choices)}."
    if option.positional:
        head = _argument(option)
    elif option.kind is bool and option.default is True:
        head = f"{option.flag}, {flag_of(f'no_{option.name}')}"
    else:
        head = f"{option.flag} {placeholder}".rstrip()
    if ranges and option.range:
        head += f" {option.range}"
    default = _default(option)
    if default:
        text = re.sub(r"; default: [^;.]*(?=[;.])", "", text)
    body = textwrap.wrap(
        f"{text} [{default}]".strip() if default else text, width - _INDENT, break_on_hyphens=False
    ) or [""]
    if len(head) + 4 > _INDENT:
        return [f"  {head}", *(" " * _INDENT + line for line in body)]
    return [f"  {head}".ljust(_INDENT) + body[0], *(" " * _INDENT + line for line in body[1:])]


def _argument(option: Option) -> str:
    return option.name.upper() + (" ..." if option.many else "")


def _usage(option: Option) -> str:
    """An argument in the line of usage, in brackets if it may be missing."""
    return _argument(option) if option.default is MISSING else f"[{_argument(option)}]"


def _default(option: Option) -> str:
    """Default of an option as it is typed; empty where there is none."""
    value = option.default
    if value is MISSING:
        return "required"
    if isinstance(value, bool):
        return "on" if value else ""
    if value is None or value == ():
        return "" if "default:" in option.text.lower() or option.positional else UNSET if option.range else ""
    return shown(value)


def _shortened(text: str) -> str:
    """A text up to the end of its first clause, with the clauses that say its default and the meaning of 0."""
    first, *others = re.split(r"(?<=\w\w)[.;](?: |$)", text)
    kept = [clause for clause in others if clause.startswith(("default: ", "0: "))]
    return "; ".join([first, *kept]).rstrip(".") + "."


def _paragraphs(text: str, width: int) -> list[str]:
    """Lines of a text: paragraphs are wrapped, indented lines stay as they are."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        indented = any(line.startswith(" ") for line in paragraph.splitlines())
        lines += [*(paragraph.splitlines() if indented else textwrap.wrap(paragraph, width)), ""]
    return lines[:-1]


def _bold(title: str) -> str:
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        return f"\x1b[1m{title}\x1b[0m"
    return title
