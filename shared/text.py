"""Text of a command line: settings as options and back, suggestions for a misspelled name, commands to type."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shared.errors import ConfigError

PLAIN_NAME = re.compile(r"[\w.:/@=,-]{1,200}")
"""Names of envs, games and protocols: letters, digits and the marks of `module:Name-v0@size=5`."""


def class_name(named: Any) -> Any:
    """`module:Class` of a class; any other value as it is."""
    return f"{named.__module__}:{named.__qualname__}" if isinstance(named, type) else named


PROGRAM = "ringside" if Path(sys.argv[0]).name == "ringside" else "launch.py"
"""This program as it was typed: the console script, or the file."""


def flag_of(name: str) -> str:
    """The option of a setting: `round_steps` is `--round-steps`, and `async_`, a word of Python, `--async`."""
    return "--" + name.removesuffix("_").replace("_", "-")


def flag_in(word: str) -> str:
    """The option that a word of a command line begins with, as `--help` spells it: `--round_steps=9` too."""
    return word.partition("=")[0].replace("_", "-")


def as_spelt(words: Sequence[str]) -> list[str]:
    """The same words, options spelt as `--help` spells them."""
    return [flag_in(word) + word[len(flag_in(word)) :] if word.startswith("--") else word for word in words]


def shown(value: object) -> str:
    """A setting's value in a sentence: whole numbers in groups of three digits."""
    return f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


_WHOLE = re.compile(r"([+-]?[0-9][0-9_]{0,99})(?:\.([0-9]{1,99}))?(?:e\+?([0-9]{1,2})|([kmg]))?", re.IGNORECASE)
_THOUSANDS = {"k": 3, "m": 6, "g": 9}


def whole_number(word: str) -> int | None:
    """The number of a word such as 50_000, 1e6, 2.5M or 10k; None: it is no whole number."""
    found = _WHOLE.fullmatch(word)
    if found is None:
        return None
    digits, decimals, exponent, unit = found[1].replace("_", ""), found[2] or "", found[3], found[4]
    zeros = int(exponent or 0) + _THOUSANDS.get((unit or "").lower(), 0) - len(decimals.rstrip("0"))
    return int(digits + decimals.rstrip("0")) * 10**zeros if zeros >= 0 else None


def printable(text: str) -> str:
    """A text for a terminal, with escapes of Python for what it cannot show, new lines aside."""
    return "".join(each if each == "\n" or _is_shown(each) else ascii(each)[1:-1] for each in text)


def _is_shown(text: str) -> bool:
    """True if every character is visible, and one that standard output can encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # in a script it may be any object that writes
    return text.isprintable() and text.encode(encoding, "replace").decode(encoding) == text


def count(number: int, noun: str) -> str:
    """ "1 game", "3 games", "2 processes"."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


UNSET = "unset"
"""Word of a command line for None."""


def words_of(**settings: Any) -> list[str]:
    """Flat settings as words of the command line: noisy=False, n_step=3 as --no-noisy --n-step 3; None is omitted."""
    words = []
    for name, value in settings.items():
        if isinstance(value, bool):
            words.append(flag_of(name if value else f"no_{name}"))
        elif value is not None:
            words += [flag_of(name), shown(value)]
    return words


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """As `words_of`, None too."""
    return words_of(**{name: UNSET if value is None else value for name, value in settings.items()})


_ELSEWHERE = {
    "actors": "num_workers",
    "clip_gradient": "max_grad_norm",
    "clip_ratio": "clip_coef clip_range",
    "discount": "gamma",
    "entropy_weight": "ent_coef entropy_coef",
    "envs": "num_envs n_envs",
    "epsilon_end": "end_e epsilon_train exploration_final_eps",
    "epsilon_start": "start_e exploration_initial_eps",
    "epsilon_steps": "epsilon_decay_period exploration_fraction",
    "eval_every_steps": "eval_freq eval_interval",
    "frame_stack": "n_stack",
    "game": "env_id env_name",
    "learning_rate": "lr",
    "learning_starts": "min_replay_history warmup_steps",
    "method": "algo",
    "n_step": "update_horizon",
    "replay_size": "buffer_size memory_size replay_capacity",
    "round_steps": "n_steps num_steps tau target_network_frequency target_update_interval target_update_period",
    "trace": "gae_lambda",
    "train_every": "train_freq update_period",
    "value_weight": "vf_coef",
}
"""Names in other libraries that resemble no setting, by the setting here; docs/coming-from.md has more."""
_HERE = {there: here for here, names in _ELSEWHERE.items() for there in names.split()}


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that resembles this one, or its name here, most; None: none does."""
    word = _HERE.get(word.lower().replace("-", "_"), word.lower())
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)), None)


def nearest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?", or a full stop when no known word resembles this one."""
    return "." if (close := closest(word, known)) is None else f"; did you mean {close}?"


def nearest_or_all(word: str, known: Sequence[str]) -> str:
    """As `nearest`; the list of all words when none resembles this one."""
    return f": choose one of {', '.join(known)}." if closest(word, known) is None else nearest(word, known)


def require_name(flag: str, name: str, known: Sequence[str]) -> None:
    """Raise `ConfigError` unless a name is one of those known."""
    if name not in known:
        raise ConfigError(f"{flag} {name!s:.40} is not one of {', '.join(known)}{nearest(str(name), known)}")


def command(*words: str) -> str:
    """A command line of this program for a person to type: Python and program as they were typed for this one.

    A script that lies in PATH, such as `ringside`, is its name alone.
    """
    typed, program, name = sys.orig_argv, sys.argv[0], Path(sys.argv[0]).name
    own = typed[: typed.index(program) + 1] if program in typed else ["python", "launch.py"]
    return shell_line([*([name] if shutil.which(name) == program else own), *words])


def shell_line(words: Sequence[str]) -> str:
    """A line of words to paste into a shell, also where standard output cannot say them."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """A word for a shell, by its bytes where it has characters that are invisible or that the locale lacks."""
    if _is_shown(word):
        return shlex.quote(word)
    marks = (
        chr(byte) if 32 <= byte < 127 and chr(byte) not in "'\\" else f"\\x{byte:02x}" for byte in os.fsencode(word)
    )
    return f"$'{''.join(marks)}'"


_SAYS_NOTHING = frozenset({"factory", "make", "make_env", "env"})


def headline(game: str) -> str:
    """A game or an env in a headline: of `package.module:factory` the part that tells something, "module"."""
    module, colon, made = game.partition(":")
    made, at, kwargs = made.partition("@")
    name = module.rpartition(".")[2] if made in _SAYS_NOTHING else made
    return f"{name}{at}{kwargs}" if colon else game


def readable(value: float, digits: int = 3) -> str:
    """A number with three significant digits, or all digits before the point, grouped: 0.0123, 12.3, 1,234."""
    return f"{value:,.0f}" if value == 0 or abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def short(value: float, digits: int = 3) -> str:
    """A large number in few characters: 950, 9.98k, 6.15M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * (1 - 0.5 / 10**digits):  # 999,999 is 1M
            return readable(value / limit, digits) + unit
    return readable(value, digits)


Kinds = type[Exception] | tuple[type[Exception], ...]


@contextmanager
def refused(what: str, kinds: Kinds = OSError, by: type[Exception] = ConfigError) -> Iterator[None]:
    """Within this context raise `by` for an error of these kinds; default: for one of the system.

    `what` says what is refused, "--out report cannot be written", and the error says why.
    """
    try:
        yield
    except kinds as error:
        why = f"{what.rstrip('.:')}: {error.strerror}." if isinstance(error, OSError) else f"{what} {error}"
        raise by(why) from error
