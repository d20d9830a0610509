"""The trust rule: a file never chooses code. docs/trust.md states it for users.

An env `module:factory` or `module:Id-v0` imports its module, so the user alone names it, on the command line or in a
call. A file's word about its env is only compared with the user's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shared.config.settings import Config, Play
from shared.errors import ConfigError
from shared.text import words_of

_SAFE_TO_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]{0,199}")
"""Names that a sentence may offer for a command line: no shell and no terminal takes them for anything else."""


def require_env(play: Play, given: str | None, *, what: str, is_registered: Callable[[str], bool]) -> None:
    """Refuse an env that a file names, unless the user names the same or Gymnasium has registered it.

    A game of ale-py needs no --env.

    Args:
        play: as the file says it.
        given: the user's --env; None: not given.
        what: the subject of the sentence: "This run".
        is_registered: `actors.env.is_registered`, which this room may not import.

    Raises:
        ConfigError: the user has named no env or another one.
    """
    if given is not None or play.env is None:
        compare_env(play, given, what=what)
    elif not is_registered(play.env):
        if not _SAFE_TO_TYPE.fullmatch(play.env):
            raise ConfigError(f"{what} was trained on {play.env!r:.120}: pass that odd name to --env if you trust it.")
        raise ConfigError(f"{what} was trained on {play.env}; pass --env {play.env} if you trust it.")


def compare_env(play: Play, given: str | None, *, what: str) -> None:
    """Refuse an env that the user names where a file names another, or a game. Else as `require_env`."""
    if given is None or given == play.env:
        return
    if play.env is None:
        raise ConfigError(f"{what} was trained on the game {_quoted(play.game)}, not on an env: omit --env {given}.")
    raise ConfigError(f"{what} was trained on {_quoted(play.env)}, not on --env {given}: name the same one.")


def resume_words(config: Config) -> list[str]:
    """Words of a command that continues a run; they repeat what --resume takes from no file."""
    run = config.run
    track = None if run.track == "off" else run.track
    return ["--resume", str(run.run_dir), *words_of(env=config.play.env, track=track)]


def _quoted(name: str) -> str:
    return name if _SAFE_TO_TYPE.fullmatch(name) else f"{name!r:.120}"
