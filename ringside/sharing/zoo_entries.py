"""Entries of the zoo: made of a run, pushed to the Hugging Face Hub, and pulled from it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ringside import evaluating
from ringside.agents.stored_weights import weights_at
from ringside.planning import training_words
from ringside.sharing import hub
from ringside.sharing.model_card import pulled_name
from ringside.zoo import catalogue
from ringside.zoo.catalogue import (
    CURVE,
    EVALUATION,
    MOST_BYTES,
    MOST_SHOWN_BYTES,
    README,
    SHOWN,
    SUMMARY,
    VIDEO,
    WEIGHTS,
)
from shared.checkpoint.weights_file import StoredWeights, weights_file
from shared.config.protocols import acting_in_words
from shared.config.sections import FRAME_SKIP
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.files.run_file_names import CONFIG_FILE
from shared.files.strict_json import read_object
from shared.text import count, words_of


def add_to_zoo(
    load: str | Path,
    *,
    name: str | None = None,
    env: str | None = None,
    plugin: str | None = None,
    device: str = "auto",
) -> Path:
    """Make an entry of the zoo of a run, with an evaluation by its rules, and return its directory.

    It has a picture of the run's returns and a video of the evaluation's first episode, unless one is larger than
    4 MB, or the run has no records.

    Args:
        load: a run directory, or a checkpoint or file of weights in one.
        name: of the entry; default: the game.
        env, plugin: as for `ringside.evaluate`.
        device: of the evaluation.

    Raises:
        ConfigError: there is no such run, its files are damaged, or the zoo has an entry of this name.
    """
    try:
        with tempfile.TemporaryDirectory(dir=catalogue.ZOO, prefix=".") as scratch:
            entry = _make_entry(Path(scratch), Path(load), env, plugin, name, device, flag="--add")
            return entry.rename(catalogue.ZOO / entry.name)
    except OSError as error:
        raise ConfigError(f"No entry can be written into {catalogue.ZOO}: {error.strerror}.") from error


def push_to_hub(
    load: str | Path,
    repo: str,
    *,
    private: bool = False,
    env: str | None = None,
    plugin: str | None = None,
    device: str = "auto",
) -> str:
    """Upload an agent to the Hugging Face Hub with a model card, and return the address of the commit.

    Args:
        load: the name of an agent of the zoo, or a run as for `add_to_zoo`, which is evaluated first.
        repo: USER/NAME; it is created if there is none.
        private: create it for its owner only.
        env, plugin: as for `ringside.evaluate`.
        device: of the evaluation of a run.

    Raises:
        ConfigError: huggingface_hub is not installed, there is no such agent, or the Hub refuses.
    """
    hub.require_hub(repo)
    found = catalogue.find_weights(load, "--push").parent
    with tempfile.TemporaryDirectory() as scratch:
        if found.parent != catalogue.ZOO:
            found = _make_entry(Path(scratch), Path(load), env, plugin, None, device, flag="--push")
        return hub.push(found, repo, private=private)


def pull_from_hub(repo: str, *, name: str | None = None, revision: str | None = None) -> Path:
    """Download an agent from the Hugging Face Hub into the zoo, and return the directory of its entry.

    Args:
        repo: USER/NAME.
        name: of the entry, for `load_agent`; default: that of the repository.
        revision: branch, tag or commit; default: the newest.

    Raises:
        ConfigError: huggingface_hub is not installed, the Hub refuses, or the repository holds no agent.
    """
    hub.require_hub(repo)
    name = name or pulled_name(repo)
    _require_new(name)
    hub.pull(repo, catalogue.ZOO / name, revision)
    return catalogue.ZOO / name


def _require_new(name: str) -> None:
    """Raise `ConfigError` unless an entry may have this name."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ConfigError(f"--name {name} must be of small letters, digits and underscores.")
    if (catalogue.ZOO / name).exists():
        raise ConfigError(f"The zoo has a {name} already; remove {catalogue.ZOO / name}, or choose another --name.")


def _make_entry(
    directory: Path, source: Path, env: str | None, plugin: str | None, name: str | None, device: str, *, flag: str
) -> Path:
    """Copy the weights and the summary of a run, evaluate, and write the README; returns the entry.

    Args:
        flag: the option that named the run. With --add the zoo may not have an entry of this name.
    """
    weights = weights_at(source, env, plugin, flag)
    run, config, summary = _run_of(source)
    played = config.play.played
    if played != weights.game:
        raise ConfigError(
            f"{source} cannot be shared: the weights are of {weights.game}, but their run is of {played!r:.120}."
        )
    name = name or catalogue.name_of_entry(weights.game)
    if flag == "--add":
        _require_new(name)
    training = command_of(config, steps_at_version(weights.version, summary))
    entry = directory / name
    entry.mkdir()
    shutil.copyfile(weights_file(source), entry / WEIGHTS)
    if (entry / WEIGHTS).stat().st_size > MOST_BYTES:
        raise ConfigError(f"The weights are larger than the {MOST_BYTES / 1e6:.0f} MB that they may have.")
    evaluation = evaluating.evaluate(entry / WEIGHTS, env=env, plugin=plugin, device=device, video=entry / VIDEO)
    _draw(run, weights.game, entry / CURVE)
    for file in SHOWN:
        if (entry / file).exists() and (entry / file).stat().st_size > MOST_SHOWN_BYTES:
            (entry / file).unlink()
    for file, content in ((SUMMARY, summary), (EVALUATION, evaluation)):
        (entry / file).write_text(json.dumps(content, indent=1) + "\n")
    text = _readme(name, weights, config, words_of(env=env, plugin=plugin), training, summary, evaluation)
    shown = [line for file, line in SHOWN.items() if (entry / file).exists()]
    (entry / README).write_text("\n\n".join([text.strip(), *shown]) + "\n")
    return entry


def _draw(run: Path, game: str, out: Path) -> None:
    """Draw the returns of a run beside published ones; nothing, unless it has records of an episode."""
    # Matplotlib takes half a second, which the list of the zoo does not need.
    from ringside.report.comparison import compare
    from ringside.report.plots import has_curve, learning_curve, style
    from ringside.report.published import published_curves
    from ringside.report.records import load as load_records

    with suppress(ValueError), style():
        comparison = compare([load_records(run)])
        if has_curve(comparison, game, "steps"):
            curves = [curve for curve in published_curves()[0] if curve.game == game]
            learning_curve(comparison, game, "steps", curves).savefig(out, dpi=160)


def steps_at_version(version: int, summary: dict[str, Any]) -> int:
    """Steps of the run at this version; the run may have continued after it."""
    return int(version * summary["steps"] // max(1, summary["rounds"]))


def _run_of(source: Path) -> tuple[Path, Config, dict[str, Any]]:
    """Directory, configuration and summary of the run `source`, or of the run that contains it."""
    for run in (source, *source.absolute().parents[:2]):
        if not os.path.isfile(run / CONFIG_FILE) or not os.path.isfile(run / SUMMARY):
            continue
        sections, summary = read_object(run / CONFIG_FILE), read_object(run / SUMMARY)
        if not sections or not summary:
            raise ConfigError(f"{source} cannot be shared: the {CONFIG_FILE} or {SUMMARY} of the run is damaged.")
        if not all(type(summary.get(name)) in (int, float) for name in ("steps", "rounds", "seconds")):
            raise ConfigError(
                f"{source} cannot be shared: the {SUMMARY} of the run lacks its steps, rounds or seconds."
            )
        try:
            return run, Config.from_json(sections), summary
        except ConfigError as error:
            raise ConfigError(f"{source} cannot be shared. {error}") from error
    raise ConfigError(
        f"{source} is in no run directory with the {CONFIG_FILE} and the {SUMMARY} of a run that ended: name a run, or "
        "a file of weights in its directory."
    )


def command_of(config: Config, total_steps: int) -> str:
    """Command that trains as configured for `total_steps`: the closest preset and the differences from it.

    Raises `ConfigError` if the run began with weights of another run.
    """
    if config.run.init_from is not None:
        raise ConfigError("The run began with the weights of another (--init-from); one command does not train it.")
    words = training_words(config.with_settings(total_steps=total_steps))
    return shlex.join(["python", "launch.py", *words])


def _readme(
    name: str,
    weights: StoredWeights,
    config: Config,
    loading: Sequence[str],
    command: str,
    summary: dict[str, Any],
    evaluation: dict[str, Any],
) -> str:
    """Text of the README of an entry."""
    named = "".join(f" {word}" for word in loading)
    steps = steps_at_version(weights.version, summary)
    ran = f"The run played {summary['steps']:,} steps in {summary['seconds'] / 3600:.1f} hours (`summary.json`)"
    if steps < summary["steps"]:
        ran += f"; these are its weights\nat step {steps:,}"
    mean, sd, episodes = (evaluation[key] for key in ("mean", "sd", "episodes"))
    acting = acting_in_words(evaluation["eval_actions"], evaluation["eval_epsilon"])
    trained = f"{steps:,} steps"  # an env has neither a protocol nor an emulator's frames
    if config.play.env is None:
        trained += f" ({FRAME_SKIP * steps:,} frames) by the rules of the protocol `{weights.protocol}`"
    return f"""# {name}

An agent of the method `{config.algorithm.method}` with the network `{weights.network.name}`, trained on {weights.game}
for {trained}:

    {command}

{ran}. By the rules of the run, with
{acting}, the agent returns {mean:.2f} +- {sd:.2f} in {count(episodes, "episode")} (`evaluation.json`):

    python launch.py eval --load zoo/{name}{named} --seed {evaluation["seed"]}

Watch it with

    python launch.py play --load zoo/{name}{named}
"""
