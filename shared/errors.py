"""One family of errors. Each message is a sentence for the user, and each kind has the exit code of a command.

`FatalError` and its kinds end a run, because a restarted process would meet them again. `EnvFault`, `DeviceFault` and
others do not end it: the supervisor starts the process again.
"""

from __future__ import annotations

import importlib.util


class RingsideError(Exception):
    """An error that Ringside raises itself. The message is a sentence for the user."""

    exit_code = 1
    """Exit code of a command that ends with it: 1, a fault at run time; 2, a mistake of the user."""


class FatalError(RingsideError):
    """A fault that a restarted process would meet again.

    In a child the sentence goes into its log and the run ends with it. In the launcher it ends the command.
    """


class FileError(FatalError, ValueError):
    """A file is of another kind, too large or damaged."""


class CheckpointError(FatalError):
    """A checkpoint, or a piece of one, cannot be used."""


class ConfigError(FatalError, ValueError):
    """A setting that cannot work; nothing has started yet."""

    exit_code = 2


class RunFailed(RingsideError, RuntimeError):
    """The run ended early through a fault."""


class StopTraining(Exception):
    """Raised by a callback to stop the run. The run saves its last boundary, as after Ctrl-C, and can be resumed."""


class EnvFault(RingsideError):
    """The code of a user's environment failed. A restarted process that meets the same one again ends the run."""


class DeviceFault(RingsideError):
    """The GPU is out of memory, faulty or lost. A new process may find it working again."""


def is_installed(package: str) -> bool:
    """True if a package is installed; a mere folder of its name, as wandb makes one, has no origin."""
    try:
        return getattr(importlib.util.find_spec(package), "origin", None) is not None
    except ValueError:  # somebody's stand-in
        return True


def require(subject: str, extra: str, *packages: str) -> None:
    """Raise `ConfigError` unless the packages that `subject` needs, of an extra of setup.cfg, are installed."""
    for package in packages:
        if not is_installed(package):
            raise ConfigError(
                f"{subject} needs the package {package}, which is not installed: run `.venv/bin/pip install --editable "
                f"'.[{extra}]'` in the directory of Ringside, or install the extra {extra} of the wheel."
            )
