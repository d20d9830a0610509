"""Troubles that processes tell apart, because the answer to each is another."""

from __future__ import annotations


class FatalError(Exception):
    """Trouble that would come again in every life of a process. The message is a sentence for the user.

    A child that meets it leaves the sentence in its log and the run ends with it; in the launcher it ends the command.
    """


class FileError(FatalError, ValueError):
    """A file is not what it should be: of another kind, too large, damaged. The message is a sentence for the user."""


class ConfigError(FatalError, ValueError):
    """A setting that cannot work. The message is a sentence for the user."""


class CheckpointError(FatalError):
    """A checkpoint, or a piece of one, cannot be used. The message is a sentence for the user."""


class RunFailed(RuntimeError):
    """The run ended early through a fault. The message is a sentence for the user."""


class DeviceFault(Exception):
    """The GPU is out of memory, faulty or lost. The message is a sentence. A new process may find it well again."""
