"""One family of errors. Each message is a sentence for the user, and each kind has the exit code of a command.

`FatalError` and its kinds end a run, because a restarted process would meet them again. `DeviceFault` and others do
not end it: the supervisor starts the process again.
"""

from __future__ import annotations


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


class MissingPackage(ConfigError):
    """A package of an extra is not installed."""

    def __init__(self, subject: str, package: str, extra: str) -> None:
        """Make the sentence: `subject` needs the package, which `extra` of setup.cfg installs."""
        super().__init__(
            f"{subject} needs the package {package}, which is not installed: run `pip install --editable '.[{extra}]'` "
            "in the directory of Ringside, with the pip of its environment (.venv/bin/pip)."
        )


class RunFailed(RingsideError, RuntimeError):
    """The run ended early through a fault."""


class StopTraining(Exception):
    """Raised by a callback to stop the run. The run saves its last boundary, as after Ctrl-C, and can be resumed."""


class DeviceFault(RingsideError):
    """The GPU is out of memory, faulty or lost. A new process may find it working again."""
