"""The task `zoo`: list the trained agents of the repository, add one, and exchange them with the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside.agents.stored_weights import with_protocol
from ringside.agents.zoo_entries import add_to_zoo, pull_from_hub, push_to_hub, steps_at_version
from ringside.command.arguments import parse
from ringside.zoo import catalogue
from shared.errors import ConfigError
from shared.files.run_file_names import SUMMARY_FILE
from shared.files.strict_json import read_json
from shared.text import command, count, flag_of, nearest, printable, words_of


@dataclass(frozen=True)
class Options:
    """Agents that come with the repository: list them (zoo), make one of a run (zoo add RUN), or exchange them with the
    Hugging Face Hub (zoo push pong --repo USER/pong, zoo pull USER/pong)."""

    add: Path | None = None
    """A run directory, or a checkpoint or file of weights in one, to make an entry of; without it, list the entries."""
    env: str | None = None
    """With --add or --push: the env that the agent was trained on, where that is module:factory or module:Id-v0."""
    plugin: str | None = None
    """With --add or --push: the plug-in that the agent was trained with (docs/extending.md); no file chooses code."""
    network: str | None = None
    """With --add or --push: the network that the agent was trained with, where that is module:Class."""
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


VERBS = {
    "add": ("a run behind it: zoo add runs/pong", ("env", "plugin", "network", "name", "device")),
    "push": (
        "an agent of the zoo or a run behind it: zoo push pong --repo USER/pong",
        ("env", "plugin", "network", "device", "repo", "private"),
    ),
    "pull": ("a repository behind it: zoo pull USER/pong", ("name", "revision")),
}
"""Verbs, with the word behind each and an example, and the options that have an effect with it."""


def main(arguments: Sequence[str]) -> int:
    """List the entries, add one, or push or pull one."""
    options = parse(Options, _with_flags(arguments), "zoo")
    chosen = [verb for verb in VERBS if getattr(options, verb) is not None]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(map(flag_of, chosen))} are two things: do one after the other.")
    given = {name: value for name, value in vars(options).items() if name not in VERBS and value not in (None, False)}
    for name in given:
        verbs = [verb for verb, (_, effective) in VERBS.items() if name in effective]
        if not set(verbs) & set(chosen):
            raise ConfigError(f"{flag_of(name)} is for {' and '.join(map(flag_of, verbs))}: pass one of them, too.")
    if options.push is not None:
        if options.repo is None:
            raise ConfigError(f"--push {options.push} needs the repository of the Hub to upload to: --repo USER/NAME.")
        print(printable(f"{options.push.name} is at {push_to_hub(options.push, **given)}."))
    elif chosen:
        code = {name: getattr(options, name) for name in ("env", "plugin", "network")}
        entry = pull_from_hub(str(options.pull), **given) if options.add is None else add_to_zoo(options.add, **given)
        print(_line(entry.name))
        print(printable(f"It is in {entry}. Watch it with: {command('play', '--load', entry.name, *words_of(**code))}"))
    else:
        print("\n".join(map(_line, catalogue.names())))
    return 0


def _with_flags(words: Sequence[str]) -> list[str]:
    """The words with a verb as its option: `zoo push pong` as `zoo --push pong`.

    Raises:
        ConfigError: the first word is no verb, or no agent or repository follows it.
    """
    if not words or words[0].startswith("-"):
        return list(words)
    verb, *rest = words
    if verb in catalogue.names():
        raise ConfigError(f"{verb} is an agent of the zoo, not a task: {command('play', '--load', verb)} shows it.")
    if verb not in VERBS:
        raise ConfigError(f"The zoo has no task {verb!r:.60}: pass none, or {', '.join(VERBS)}{nearest(verb, VERBS)}")
    if not rest:
        raise ConfigError(f"zoo {verb} needs {VERBS[verb][0]}")
    if verb == "push" and len(rest) > 1 and not rest[1].startswith("-"):
        raise ConfigError(f"{rest[1]:.120} follows no option: pass --repo {rest[1]:.120}.")
    return [flag_of(verb), *rest]


def _line(name: str) -> str:
    """One line of text for an entry."""
    if not (catalogue.ZOO / name / catalogue.EVALUATION).is_file():
        return f"{name}: no evaluation"
    found = read_json(catalogue.ZOO / name / catalogue.EVALUATION)
    steps = steps_at_version(found["version"], read_json(catalogue.ZOO / name / SUMMARY_FILE))
    return (
        f"{name}: {with_protocol(found['game'], found['protocol'])}, mean {found['mean']:.2f} +- {found['sd']:.2f} of "
        f"{count(found['episodes'], 'episode')}, trained for {steps:,} steps"
    )
