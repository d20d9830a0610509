"""The look at a network of the user, in a program of its own: it loads torch, and its code may hang or crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import msgspec

from ringside.run.children import exit_in_words
from shared.config.settings import ResolvedConfig
from shared.errors import ConfigError
from shared.files.strict_json import json_object
from shared.frame_shape import FrameShape
from shared.machine.subprocesses import read_output
from shared.network_spec import OwnTorso
from shared.process.library_env import pinned_thread_env

LIMIT_SECONDS = 60.0


def torso_of_run(config: ResolvedConfig) -> OwnTorso:
    """The user's torso of a run. Raises `ConfigError` if it cannot be used."""
    machine = config.machine
    frames, deterministic = config.play.frames, machine.is_deterministic
    return look_at_torso(config.learn.network, frames, machine.device, machine.precision, deterministic=deterministic)


@cache
def look_at_torso(
    name: str, frames: FrameShape, device: str = "cpu", precision: str = "fp32", *, deterministic: bool = True
) -> OwnTorso:
    """Look at a torso by the name that the user gave, once in the life of this process.

    Raises:
        ConfigError: it cannot be used.
    """
    question = {"name": name, "frames": frames, "device": device, "precision": precision}
    words = [sys.executable, "-P", "-m", "learner.networks.own_torso"]
    path = os.pathsep.join(each or os.getcwd() for each in sys.path if isinstance(each, str))  # as the run has it
    process, code, last = f"The process that tries --network {name}", 0, ""
    found = None
    try:
        with pinned_thread_env():
            asked = json.dumps(question | {"deterministic": deterministic})
            answer = read_output(words, LIMIT_SECONDS, stdin=asked, env=os.environ | {"PYTHONPATH": path})
        found = json_object(answer.encode())
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{process} did not end within {LIMIT_SECONDS:.0f} s: make its code faster.") from error
    except subprocess.CalledProcessError as error:
        code, last = error.returncode, error.stderr.strip().rpartition("\n")[2]
    if found is None:
        raise ConfigError(f"{process} {exit_in_words(code)}: its code must not end the program. {last:.200}".rstrip())
    if "error" in found:
        raise ConfigError(found["error"])
    return msgspec.convert(found, OwnTorso)
