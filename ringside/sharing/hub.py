"""Agents on the Hugging Face Hub: an entry of the zoo is pushed with a model card, and pulled as an entry.

What is pulled is data: its sizes and values are checked before it is kept, and nothing in it is executed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ringside.sharing.model_card import model_card
from ringside.zoo.catalogue import EVALUATION, MOST_BYTES, README, SHOWN, SUMMARY, WEIGHTS
from shared.checkpoint.weights_file import load_weights
from shared.errors import CheckpointError, ConfigError, FileError, missing_package
from shared.files.plain_files import read_bytes
from shared.files.strict_json import read_json
from shared.text import PLAIN_NAME

MOST_TEXT_BYTES = 1 << 20
ENDPOINT = "HF_ENDPOINT"
"""Environment variable with another address of the Hub, as huggingface_hub itself reads it."""
_REPO = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_LIMITS = {WEIGHTS: MOST_BYTES, SUMMARY: MOST_TEXT_BYTES, EVALUATION: MOST_TEXT_BYTES, README: MOST_TEXT_BYTES}
_NEEDED: dict[str, dict[str, tuple[type, ...]]] = {
    EVALUATION: {"mean": (int, float), "sd": (int, float), "episodes": (int,), "version": (int,)},
    SUMMARY: {"steps": (int,), "rounds": (int,), "seconds": (int, float)},
}
"""Numbers that the list of the zoo shows, by file."""


def push(entry: Path, repo: str, *, private: bool = False) -> str:
    """Upload an entry with a model card; returns the address of the commit.

    Args:
        entry: directory with the files of an agent of the zoo.
        repo: USER/NAME; it is created if there is none.
        private: for its owner only, where it is created.

    Raises:
        ConfigError: huggingface_hub is missing, the name is none, or the Hub refuses.
    """
    api = _api(repo)
    with tempfile.TemporaryDirectory() as scratch, _told(f"{repo} cannot be pushed"):
        for name in _LIMITS:
            shutil.copyfile(entry / name, Path(scratch) / name)
        for name in SHOWN:
            if (entry / name).exists():
                shutil.copyfile(entry / name, Path(scratch) / name)
        readme, evaluation = (entry / README).read_text(), read_json(entry / EVALUATION)
        atari = read_json(entry / SUMMARY).get("frames") is not None  # steps of an env have no frames of an emulator
        card = model_card(entry.name, repo, readme, evaluation, atari=atari)
        (Path(scratch) / README).write_text(card)
        api.create_repo(repo_id=repo, private=private, exist_ok=True)
        done = api.upload_folder(repo_id=repo, folder_path=scratch, commit_message=f"Agent {entry.name}")
    return str(done.commit_url)


def pull(repo: str, target: Path, revision: str | None = None) -> None:
    """Download an agent into a new directory of the zoo.

    Raises:
        ConfigError: huggingface_hub is missing, there is no such repository, or its files are no agent.
    """
    api = _api(repo)
    with _told(f"{repo} cannot be pulled"), tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as scratch:
        entry = Path(scratch) / target.name
        entry.mkdir()
        for name, most in _LIMITS.items():
            _download(api, repo, name, revision, most, entry)
        text = _check(repo, entry)
        for line in SHOWN.values():  # their files stay on the Hub
            text = text.replace(f"\n\n{line}", "")
        (entry / README).write_text(text)
        entry.rename(target)


def _download(api: Any, repo: str, name: str, revision: str | None, most: int, entry: Path) -> None:
    """Download one file, if it is not larger than `most`."""
    import huggingface_hub

    url = huggingface_hub.hf_hub_url(repo, name, revision=revision, endpoint=api.endpoint)
    size = api.get_hf_file_metadata(url=url).size
    if size is None or size > most:
        raise ConfigError(f"{repo} cannot be pulled: {name} has {size or 0:,} bytes; at most {most:,} are allowed.")
    with tempfile.TemporaryDirectory(dir=entry.parent, prefix=".") as scratch:
        path = api.hf_hub_download(repo_id=repo, filename=name, revision=revision, local_dir=scratch)
        shutil.copyfile(path, entry / name)


def _check(repo: str, entry: Path) -> str:
    """Return the README of the agent. Raises `ConfigError` unless the files are those of one agent."""
    try:
        weights = load_weights(entry / WEIGHTS)
        found = {name: read_json(entry / name, MOST_TEXT_BYTES) for name in _NEEDED}
        readme = read_bytes(entry / README, MOST_TEXT_BYTES).decode()
    except (CheckpointError, FileError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{repo} is not an agent of Ringside: {error}") from error
    for file, needed in _NEEDED.items():
        for name, types in needed.items():
            if type(found[file].get(name)) not in types:
                raise ConfigError(
                    f"{repo} is not an agent of Ringside: {file} has {name} {found[file].get(name)!r:.80}."
                )
    evaluation = found[EVALUATION]
    names = [evaluation.get("game"), evaluation.get("protocol")]
    if not all(isinstance(name, str) and PLAIN_NAME.fullmatch(name) for name in names):
        raise ConfigError(f"{repo} is not an agent of Ringside: {EVALUATION} names no game and protocol.")
    if names != [weights.game, weights.protocol]:
        raise ConfigError(
            f"{repo} is not an agent of Ringside: its evaluation is of {names[0]}, not of {weights.game}."
        )
    return readme


def require_hub(repo: str) -> None:
    """Raise `ConfigError` unless huggingface_hub is installed and the name is that of a repository."""
    if find_spec("huggingface_hub") is None:
        raise missing_package("An exchange with the Hub", "huggingface_hub", "hub")
    if not _REPO.fullmatch(repo):
        raise ConfigError(f"{repo!r:.120} is no repository of the Hub: write USER/NAME.")


def _api(repo: str) -> Any:
    """Client of the Hub."""
    require_hub(repo)
    import huggingface_hub

    return huggingface_hub.HfApi(endpoint=os.environ.get(ENDPOINT), library_name="ringside")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn errors of the Hub, of the network and of files into a sentence."""
    from huggingface_hub.errors import HfHubHTTPError

    # The base of HfHubHTTPError is the error of its HTTP client, whichever that is.
    client_error: type[Exception] = HfHubHTTPError.__bases__[0]
    try:
        yield
    except ConfigError:
        raise
    except (OSError, ValueError, client_error) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ConfigError(f"{what}: {' '.join(lines)[:300].rstrip('.') or type(error).__name__}.") from error
