"""The trust rule: a file never chooses code. docs/trust.md states it for users.

An env `module:factory` or `module:Id-v0` imports its module, so the user alone names it, on the command line or in a
call. The env that a file names is only compared with the user's. The same holds for networks `module:Class`, and for
plug-ins: modules that register methods and presets.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from types import ModuleType

from shared.config.sections import Play
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.network_spec import is_own, network_names
from shared.text import flag_of, words_of

WANDB_SETTINGS = ("wandb_entity", "wandb_group", "wandb_tags")
NEVER_FROM_A_FILE = frozenset({"resume", "run_dir", "init_from", "plain", "track", *WANDB_SETTINGS})
"""Settings that only the user gives: where a run begins, is written, shown and sent."""
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
CLASS = re.compile(rf"{_MODULE.pattern}:{_MODULE.pattern}")
"""Networks of the user: a class of a module."""
_SAFE_TO_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@=,-]{0,199}")
"""Names that a sentence may offer for a command line: no shell and no terminal takes them for anything else."""


def require_env(play: Play, given: str | None, *, what: str, registered: Callable[[str], object]) -> None:
    """Refuse an env that a file names, unless the user names the same or Gymnasium has registered it.

    A game of ale-py needs no --env.

    Args:
        play: as the file says it.
        given: the user's --env; None: not given.
        what: the subject of the sentence: "This run".
        registered: `actors.make_env.registered`; shared/ may not import actors/.

    Raises:
        ConfigError: the user has named no env or another one.
    """
    if given is not None or play.env is None:
        compare_env(play, given, what=what)
    elif not registered(play.env):
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
    sent = {name: getattr(run, name) for name in WANDB_SETTINGS} if track else {}
    return ["--resume", str(run.run_dir), *words_of(**code_named(config), track=track, **sent)]


def code_named(config: Config) -> dict[str, str | None]:
    """Settings that name code of the user, and that are taken from no file."""
    network = config.learn.network
    return {"env": config.play.env, "plugin": config.run.plugin, "network": network if is_own(network) else None}


def _quoted(name: str) -> str:
    return name if _SAFE_TO_TYPE.fullmatch(name) else f"{name!r:.120}"


_loaded_plugins: list[str] = []
"""Names of the plug-ins that the user named in this process."""


def load_plugin(name: str | None) -> None:
    """Import a plug-in by the name that the user gave; None: there is none.

    Raises:
        ConfigError: there is no such module, or it loads torch, which no actor may load.
    """
    if name is None:
        return
    if not _MODULE.fullmatch(name):
        raise ConfigError(f"--plugin {name!r:.120} is not the dotted name of a module: write it as in an import.")
    had_torch = "torch" in sys.modules
    import_named(f"--plugin {name}", name)
    if "torch" in sys.modules and not had_torch:
        advice = "keep the class of the method in a module of its own, which the declaration names"
        raise ConfigError(f"--plugin {name} loads torch, which actors must not: {advice}.")
    _loaded_plugins.append(name)


def import_named(option: str, module: str) -> ModuleType:
    """Import a module that the user named by an option, which begins each sentence. Raises `ConfigError`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name or module}."):
            raise ConfigError(f"{option} cannot be imported: {error}; install what it needs.") from error
        raise ConfigError(f"{option} is not found: put its directory into PYTHONPATH.") from error
    except (ImportError, SyntaxError, SystemExit) as error:
        why = "it ends the program, as a script does" if isinstance(error, SystemExit) else error
        raise ConfigError(f"{option} cannot be imported: {why}.") from error
    except ConfigError as error:
        raise ConfigError(f"{option} cannot be used. {error}") from error


def require_loaded_plugin(recorded: object, *, what: str) -> None:
    """Refuse a plug-in that a file names, unless the user has named it in this process; arguments as `require_plugin`.

    Raises:
        ConfigError: the user has not named it.
    """
    if recorded is not None and recorded not in _loaded_plugins:
        require_plugin(recorded, None, what=what)


def require_plugin(recorded: object, given: str | None, *, what: str) -> None:
    """Refuse a plug-in that a file names, unless the user names the same one; nothing is imported.

    Args:
        recorded: what the file says; None: no plug-in, and the user may name any.
        given: the user's --plugin; None: not given.
        what: the subject of the sentence: "This run".

    Raises:
        ConfigError: the user names none or another one.
    """
    if recorded is not None:  # else a program may have imported it
        _require_same("plug-in", _MODULE, recorded, given, what)


def require_network(recorded: object, given: str | None, *, what: str) -> None:
    """Refuse a network `module:Class` that a file names, unless the user names the same one; arguments as above."""
    if given is not None or (isinstance(recorded, str) and is_own(recorded)):
        _require_same("network", CLASS, recorded, given, what)


def _require_same(noun: str, pattern: re.Pattern[str], recorded: object, given: str | None, what: str) -> None:
    """Refuse a name in a file that differs from the user's."""
    if recorded == given:
        return
    if not isinstance(recorded, str) or not (pattern.fullmatch(recorded) or recorded in network_names()):
        raise ConfigError(f"{what} names the {noun} {recorded!r:.80}, which is no module: it is damaged.")
    flag = flag_of(noun.replace("-", ""))
    if given is None:
        raise ConfigError(f"{what} was trained with the {noun} {recorded}; pass {flag} {recorded} if you trust it.")
    raise ConfigError(f"{what} was trained with the {noun} {recorded}, not with {flag} {given}: name the same one.")
