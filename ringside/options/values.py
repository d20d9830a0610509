"""Values of options from the words of a command line. Each mistake is a `ConfigError` of one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

from ringside.options.option import Option
from shared.config.method_declaration import method_declaration, method_names
from shared.config.other_libraries import name_here
from shared.errors import ConfigError
from shared.text import PROGRAM, UNSET, flag_in, flag_of, nearest, require_name, whole_number

_Options = TypeVar("_Options")


def values_in(words: Sequence[str], options: Sequence[Option], tasks: Sequence[str] = ()) -> dict[str, Any]:
    """Values that the words give, by the names of the options. A flag given twice has its last value, or both where it
    takes many.

    Args:
        words: as typed, without the program and the task; behind `--` every word is a value by its place.
        options: those that the task has.
        tasks: first words of the command, for a better sentence about a word that follows no flag.

    Raises:
        ConfigError: there is no such option, or its value is missing or wrong.
    """
    flags = {option.flag: option for option in options if not option.positional}
    switches = {flag_of(f"no_{option.name}"): option for option in flags.values() if option.kind is bool}
    places = [option for option in options if option.positional]
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            for each in left:
                _place(each, places, found, flags, tasks)
            break
        if not _is_flag(word):
            _place(word, places, found, flags, tasks)
            continue
        flag, given = flag_in(word), word.partition("=")
        option = flags.get(flag) or switches.get(flag)
        if option is None:
            raise ConfigError(_unknown(flag, [*flags, *switches]))
        if option.kind is bool:
            if given[1]:
                raise ConfigError(f"{flag} takes no value: pass {option.flag} or {flag_of(f'no_{option.name}')}.")
            found[option.name] = flag == option.flag
            continue
        if not given[1] and (not left or _is_flag(left[0])):
            raise ConfigError(f"{flag} needs a value: {_expected(option)}.")
        value = value_of(option, given[2] if given[1] else left.pop(0))
        found[option.name] = (*found.get(option.name, ()), value) if option.many else value
    _require_all(options, found)
    return found


def value_of(option: Option, word: str) -> Any:
    """The value that a word gives an option. Raises `ConfigError` for a word that cannot be one."""
    if not word:
        name = option.name.upper() if option.positional else option.flag
        raise ConfigError(f"The value of {name} is empty: give {_expected(option)}, or omit it.")
    if option.may_be_unset and word == UNSET:
        return None
    if option.choices:
        require_name(option.flag, word, option.choices)
    if option.kind is int:
        number = whole_number(word)
        if number is None:
            raise ConfigError(f"{option.flag} {word:.40} is not a whole number: write it as 20_000, 20k or 2e4.")
        return number
    try:
        return option.kind(word)
    except ValueError:
        raise ConfigError(f"{option.flag} {word:.40} is not a number.") from None


def filled(start: _Options, options: Sequence[Option], values: Mapping[str, Any]) -> _Options:
    """A copy of a dataclass, sections included, with values by the names of the options."""
    copy = start
    for path in {option.path for option in options}:
        given = {
            option.name: values[option.name] for option in options if option.path == path and option.name in values
        }
        if given:
            copy = _replaced(copy, path, given)
    return copy


def _replaced(start: Any, path: tuple[str, ...], given: Mapping[str, Any]) -> Any:
    if not path:
        return replace(start, **given)
    return replace(start, **{path[0]: _replaced(getattr(start, path[0]), path[1:], given)})


def _is_flag(word: str) -> bool:
    """True if a word names an option: -5 and a single - are values."""
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit() and not word.startswith("-.")


def _place(
    word: str, places: Sequence[Option], found: dict[str, Any], flags: Mapping[str, Option], tasks: Sequence[str]
) -> None:
    """Give a word without a flag to the first option that takes one by its place."""
    for option in places:
        if option.many:
            found[option.name] = (*found.get(option.name, ()), value_of(option, word))
            return
        if option.name not in found:
            found[option.name] = value_of(option, word)
            return
    if word in tasks:
        raise ConfigError(f"{word} is a task, the first word of the command: {PROGRAM} {word} ...")
    choosing = [flag for flag, option in flags.items() if word in option.choices]
    if len(choosing) == 1:
        advice = f"pass {choosing[0]} {word}"
    elif "--load" in flags:
        advice = f"pass --load {word:.60}"
    else:
        advice = "every value has one, as in --game pong" if "--game" in flags else "--help lists the options"
    raise ConfigError(f"{word!r:.60} follows no option: {advice}.")


def _unknown(flag: str, known: Sequence[str]) -> str:
    """Sentence about a flag that there is not; `known`: those that there are."""
    names = [each.removeprefix("--") for each in known]
    settings = {name.replace("-", "_") for name in names}
    if "method" in settings:  # another method may have the setting
        settings |= {item.name for method in method_names() for item in fields(method_declaration(method).settings)}
    here = name_here(flag.removeprefix("--"), settings, flag_of)
    advice = nearest(flag.removeprefix("--"), names).replace("mean ", "mean --") if here is None else f": pass {here}."
    return f"There is no option {flag:.60}{advice}"


def _expected(option: Option) -> str:
    """Values of an option in a sentence."""
    if option.choices:
        return f"one of {', '.join(option.choices)}"
    words = {"INT": "a whole number", "FLOAT": "a number", "TEXT": "a text", "PATH": "a path"}
    return words[option.placeholder]


def _require_all(options: Sequence[Option], found: Mapping[str, Any]) -> None:
    for option in options:
        if option.default is MISSING and option.name not in found:
            text = option.text.partition(";")[0].rstrip(".")
            name = option.name.upper() if option.positional else option.flag
            raise ConfigError(f"{name} is missing: {text[:1].lower()}{text[1:]}.")
