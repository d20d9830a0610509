"""The task `zoo`: list the trained agents of the repository, add one, and exchange them with the Hugging Face Hub."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside import evaluating
from ringside.agents.agent import weights_at
from ringside.planning import training_words
from ringside.sharing import hub
from ringside.tasks.arguments import parse
from ringside.zoo import catalogue
from ringside.zoo.catalogue import EVALUATION, MOST_BYTES, README, SUMMARY, WEIGHTS
from shared.checkpoint.weights_file import StoredWeights, weights_file
from shared.config.protocols import acting_in_words
from shared.config.settings import CONFIG_FILE, FRAME_SKIP, Config
from shared.errors import ConfigError
from shared.files.atomic import read_json, read_object
from shared.text import PROGRAM, command, count, flag_of, words_of


@dataclass(frozen=True)
class Zoo:
    """The options of `zoo`."""

    add: Path | None = None
    """A run directory, or a checkpoint or file of weights in one, to make an entry of; without it, list the entries."""
    env: str | None = None
    """With --add: the env that the agent was trained on, where that is module:factory or module:Id-v0."""
    plugin: str | None = None
    """With --add: the plug-in that the agent was trained with (docs/extending.md); no file chooses code."""
    name: str | None = None
    """With --add and --pull: what to call it; default: its game, or the name of the repository."""
    device: str | None = None
    """With --add, and --push of a run: where to evaluate it: auto, cpu, cuda or cuda:N; default: auto."""
    push: Path | None = None
    """An agent of the zoo, or a run as for --add, to upload to --repo with a model card."""
    repo: str | None = None
    """With --push: repository of the Hugging Face Hub, USER/NAME."""
    private: bool = False
    """With --push: create the repository for its owner only."""
    pull: str | None = None
    """Repository of the Hugging Face Hub, USER/NAME, to make an entry of."""
    revision: str | None = None
    """With --pull: branch, tag or commit; default: the newest."""


OPTIONS = Zoo
VERBS = ("add", "push", "pull")
NEEDS = {
    "env": ("add", "push"),
    "plugin": ("add", "push"),
    "name": ("add", "pull"),
    "device": ("add", "push"),
    "repo": ("push",),
    "private": ("push",),
    "revision": ("pull",),
}
"""Options by name, with those without which they have no effect."""


def main(arguments: Sequence[str]) -> int:
    """List the entries, add one, or push or pull one."""
    words = list(arguments)
    if words and words[0] in VERBS:  # `zoo push pong` as `zoo --push pong`
        words[0] = flag_of(words[0])
    options = parse(
        Zoo,
        words,
        f"{PROGRAM} zoo",
        "Agents that come with the repository: list them, add one, or exchange them with the Hugging Face Hub: "
        "zoo push pong --repo USER/pong, zoo pull USER/pong.",
    )
    chosen = [verb for verb in VERBS if getattr(options, verb) is not None]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(map(flag_of, chosen))} are two things: do one after the other.")
    for name, verbs in NEEDS.items():
        if getattr(options, name) not in (None, False) and not set(verbs) & set(chosen):
            raise ConfigError(f"{flag_of(name)} is for {' and '.join(map(flag_of, verbs))}: say one of them, too.")
    device = options.device or "auto"
    if options.add is not None:
        return _add(options.add, options.env, options.plugin, options.name, device)
    if options.push is not None:
        return _push(options.push, options.repo, options.env, options.plugin, device, private=options.private)
    if options.pull is not None:
        return _pull(options.pull, options.name, options.revision)
    for name in catalogue.names():
        print(_line(name))
    print(
        f"Watch one with: {command('play', '--load', catalogue.names()[0])}"
        if catalogue.names()
        else "The zoo is empty."
    )
    return 0


def _line(name: str) -> str:
    """One line of text for an entry."""
    found = read_json(catalogue.ZOO / name / EVALUATION)
    steps = _steps(found["version"], read_json(catalogue.ZOO / name / SUMMARY))
    return (
        f"{name}: {found['game']}, protocol {found['protocol']}, mean {found['mean']:.2f} +- {found['sd']:.2f} of "
        f"{count(found['episodes'], 'episode')}, trained for {steps:,} steps"
    )


def _add(source: Path, env: str | None, plugin: str | None, name: str | None, device: str) -> int:
    """Make an entry."""
    with tempfile.TemporaryDirectory(dir=catalogue.ZOO, prefix=".") as scratch:
        entry = _make_entry(Path(scratch), source, env, plugin, name, device, is_new=True)
        entry.rename(catalogue.ZOO / entry.name)
    print(_line(entry.name))
    print(f"It is in {catalogue.ZOO / entry.name}.")
    return 0


def _push(source: Path, repo: str | None, env: str | None, plugin: str | None, device: str, *, private: bool) -> int:
    """Upload an entry, or one that is made of a run."""
    if repo is None:
        raise ConfigError("Say where to: --repo USER/NAME.")
    found = catalogue.find(source, "--push").parent
    with tempfile.TemporaryDirectory() as scratch:
        if found.parent != catalogue.ZOO:
            found = _make_entry(Path(scratch), source, env, plugin, None, device, is_new=False)
        print(f"{found.name} is at {hub.push(found, repo, private=private)}.")
    return 0


def _pull(repo: str, name: str | None, revision: str | None) -> int:
    """Download an entry."""
    name = name or re.sub(r"[^a-z0-9]+", "_", repo.rpartition("/")[2].lower()).strip("_")
    _require_new(name)
    hub.pull(repo, catalogue.ZOO / name, revision)
    print(_line(name))
    print(f"Watch it with: {command('play', '--load', name)}")
    return 0


def _require_new(name: str) -> None:
    """Raise `ConfigError` unless an entry may have this name."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ConfigError(f"--name {name} must be of small letters, digits and underscores.")
    if (catalogue.ZOO / name).exists():
        raise ConfigError(f"The zoo has a {name} already; remove {catalogue.ZOO / name}, or choose another --name.")


def _make_entry(
    directory: Path, source: Path, env: str | None, plugin: str | None, name: str | None, device: str, *, is_new: bool
) -> Path:
    """Copy the weights and the summary of a run, evaluate, and write the README; returns the entry.

    Args:
        is_new: True if the zoo may not have an entry of this name.
    """
    weights = weights_at(source, env, plugin)
    config, summary = _run_of(source)
    played = config.play.env or config.play.game
    if played != weights.game:
        raise ConfigError(f"--add {source}: the weights are of {weights.game}, but their run is of {played!r:.120}.")
    name = name or weights.game
    if is_new:
        _require_new(name)
    training = command_of(config, _steps(weights.version, summary))
    entry = directory / name
    entry.mkdir()
    shutil.copyfile(weights_file(source), entry / WEIGHTS)
    if (entry / WEIGHTS).stat().st_size > MOST_BYTES:
        raise ConfigError(f"The weights are larger than the {MOST_BYTES / 1e6:.0f} MB that they may have.")
    evaluation = evaluating.evaluate(entry / WEIGHTS, env=env, plugin=plugin, device=device)
    for file, content in ((SUMMARY, summary), (EVALUATION, evaluation)):
        (entry / file).write_text(json.dumps(content, indent=1) + "\n")
    (entry / README).write_text(_readme(name, weights, words_of(env=env, plugin=plugin), training, summary, evaluation))
    return entry


def _steps(version: int, summary: dict[str, Any]) -> int:
    """Steps of the run at this version; the run may have continued after it."""
    return int(version * summary["steps"] // max(1, summary["rounds"]))


def _run_of(source: Path) -> tuple[Config, dict[str, Any]]:
    """Configuration and summary of the run directory `source`, or of the run that contains it."""
    for run in (source, *source.absolute().parents[:2]):
        if not os.path.isfile(run / CONFIG_FILE) or not os.path.isfile(run / SUMMARY):
            continue
        sections, summary = read_object(run / CONFIG_FILE), read_object(run / SUMMARY)
        if not sections or not summary:
            raise ConfigError(f"--add {source}: the {CONFIG_FILE} or {SUMMARY} of the run is damaged.")
        if not all(type(summary.get(name)) in (int, float) for name in ("steps", "rounds", "seconds")):
            raise ConfigError(f"--add {source}: the {SUMMARY} of the run lacks its steps, rounds or seconds.")
        try:
            return Config.from_json(sections), summary
        except ConfigError as error:
            raise ConfigError(f"--add {source}: {error}") from error
    raise ConfigError(
        f"--add {source} is in no run directory with a {CONFIG_FILE} and a {SUMMARY} of a run that ended."
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
    loading: Sequence[str],
    command: str,
    summary: dict[str, Any],
    evaluation: dict[str, Any],
) -> str:
    """Text of the README of an entry."""
    named = "".join(f" {word}" for word in loading)
    steps = _steps(weights.version, summary)
    hours = summary["seconds"] / 3600
    mean, sd, episodes = (evaluation[key] for key in ("mean", "sd", "episodes"))
    acting = acting_in_words(evaluation["eval_actions"], evaluation["eval_epsilon"])
    return f"""# {name}

The network `{weights.network.name}`, trained on {weights.game} under the protocol `{weights.protocol}`
for {steps:,} steps ({FRAME_SKIP * steps:,} frames) with

    {command}

The run played {summary["steps"]:,} steps in {hours:.1f} hours (`summary.json`). By the rules of the run, with
{acting}, the agent returns {mean:.2f} +- {sd:.2f} in {count(episodes, "episode")} (`evaluation.json`):

    python launch.py eval --load zoo/{name}{named} --seed {evaluation["seed"]}

Watch it with

    python launch.py play --load zoo/{name}{named}
"""
