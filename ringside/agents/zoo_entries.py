"""Entries of the zoo: made of a run, pushed to the Hugging Face Hub, and pulled from it.

What is pulled is data: its sizes and values are checked before it is kept, and nothing in it is executed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ringside.agents import evaluating
from ringside.agents.stored_weights import weights_at, with_protocol
from ringside.run.planning import training_words
from ringside.zoo import catalogue
from ringside.zoo.catalogue import CURVE, EVALUATION, MOST_BYTES, README, SHOWN, VIDEO, WEIGHTS
from shared.checkpoint.weights_file import StoredWeights, load_weights, weights_file
from shared.config.protocols import acting_in_words
from shared.config.settings import Config
from shared.errors import CheckpointError, ConfigError, FileError, require
from shared.files.run_file_names import CONFIG_FILE, SUMMARY_FILE
from shared.files.strict_json import read_json
from shared.text import class_name, count, refused, words_of

_MOST_BYTES = {WEIGHTS: MOST_BYTES, SUMMARY_FILE: 1 << 20, EVALUATION: 1 << 20, README: 1 << 20}
"""Files that are pulled, with their largest sizes."""
_NUMBERS = {EVALUATION: ("mean", "sd", "episodes", "version"), SUMMARY_FILE: ("steps", "rounds")}
"""Numbers that the list of the zoo and a README show, by file."""


def add_to_zoo(
    load: str | Path,
    *,
    name: str | None = None,
    env: str | None = None,
    plugin: str | None = None,
    network: str | type | None = None,
    device: str = "auto",
) -> Path:
    """Make an entry of the zoo of a run, with an evaluation by its rules, and return its directory.

    It has a picture of the run's returns and a video of the evaluation's first episode, unless one is larger than
    4 MB, or the run has no records.

    Args:
        load: a run directory, or a checkpoint or file of weights in one.
        name: of the entry; default: the game.
        env, plugin, network: as for `ringside.evaluate`.
        device: of the evaluation.

    Raises:
        ConfigError: there is no such run, its files are damaged, or the zoo has an entry of this name.
    """
    code = {"env": env, "plugin": plugin, "network": class_name(network)}
    with (
        refused(f"No entry can be written into {catalogue.ZOO}"),
        TemporaryDirectory(dir=catalogue.ZOO, prefix=".") as scratch,
    ):
        entry = _make_entry(Path(scratch), Path(load), code, name, device, flag="--add")
        return entry.rename(catalogue.ZOO / entry.name)


def push_to_hub(
    load: str | Path,
    repo: str,
    *,
    private: bool = False,
    env: str | None = None,
    plugin: str | None = None,
    network: str | type | None = None,
    device: str = "auto",
) -> str:
    """Upload an agent to the Hugging Face Hub with a model card, and return the address of the commit.

    Args:
        load: the name of an agent of the zoo, or a run as for `add_to_zoo`, which is evaluated first.
        repo: USER/NAME; it is created if there is none.
        private: create it for its owner only.
        env, plugin, network: as for `ringside.evaluate`.
        device: of the evaluation of a run.

    Raises:
        ConfigError: huggingface_hub is not installed, there is no such agent, or the Hub refuses.
    """
    with _hub(repo, "pushed") as api, TemporaryDirectory() as scratch:
        found = catalogue.find_weights(load, "--push").parent.absolute()
        code = {"env": env, "plugin": plugin, "network": class_name(network)}
        if found.parent == catalogue.ZOO:
            entry = Path(shutil.copytree(found, Path(scratch) / found.name))
        else:
            entry = _make_entry(Path(scratch), Path(load), code, None, device, flag="--push")
        (entry / README).write_text(_model_card(entry, repo, words_of(**code)))
        api.create_repo(repo_id=repo, private=private, exist_ok=True)
        done = api.upload_folder(repo_id=repo, folder_path=entry, commit_message=f"Agent {entry.name}")
    return str(done.commit_url)


def pull_from_hub(repo: str, *, name: str | None = None, revision: str | None = None) -> Path:
    """Download an agent from the Hugging Face Hub into the zoo, and return the directory of its entry.

    Args:
        repo: USER/NAME.
        name: of the entry, for `load_agent`; default: that of the repository.
        revision: branch, tag or commit; default: the newest.

    Raises:
        ConfigError: huggingface_hub is not installed, the Hub refuses, or the repository holds no agent.
    """
    with _hub(repo, "pulled") as api:
        name = name or catalogue.name_of_entry(repo)
        _require_new(name)
        with TemporaryDirectory(dir=catalogue.ZOO, prefix=".") as scratch:
            entry = Path(scratch) / name
            found = api.model_info(repo, revision=revision, files_metadata=True)
            sizes = {each.rfilename: each.size for each in found.siblings}
            with refused(f"{repo} is not an agent of Ringside:", (CheckpointError, FileError, UnicodeDecodeError)):
                for file, most in _MOST_BYTES.items():
                    if not 0 < sizes.get(file, 0) <= most:
                        raise FileError(f"{file} has {sizes.get(file, 0):,} bytes; it needs 1 to {most:,}.")
                api.snapshot_download(repo, revision=found.sha, local_dir=entry, allow_patterns=list(_MOST_BYTES))
                weights, text = load_weights(entry / WEIGHTS), (entry / README).read_text("utf-8")
                evaluation, _ = (_read_numbers(entry / file) for file in _NUMBERS)
                of, expected = (evaluation.get("game"), evaluation.get("protocol")), (weights.game, weights.protocol)
                if of != expected:
                    raise FileError(f"its evaluation is of game and protocol {of!r:.160}, not of {expected}.")
            shutil.rmtree(entry / ".cache")
            for line in SHOWN.values():  # their files stay on the Hub
                text = text.replace(f"\n\n{line}", "")
            (entry / README).write_text(text)
            return entry.rename(catalogue.ZOO / name)


@contextmanager
def _hub(repo: str, done: str) -> Iterator[Any]:
    """Client of the Hub; errors of the Hub, of the network and of files become a sentence: REPO cannot be `done`."""
    require("An exchange with the Hub", "hub", "huggingface_hub")
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repo):
        raise ConfigError(f"{repo!r:.120} is no repository of the Hub: write USER/NAME.")
    from huggingface_hub import HfApi, errors
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    client_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]  # of its HTTP client, whichever that is
    try:
        yield HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="ringside")
    except ConfigError:
        raise
    except (OSError, ValueError, client_error) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise ConfigError(f"{repo} cannot be {done}: {reason}.") from error


def _read_numbers(path: Path) -> dict[str, Any]:
    """Content of a summary or an evaluation. Raises `FileError` unless it has its numbers."""
    found = read_json(path)
    for name in _NUMBERS[path.name]:
        value: Any = found.get(name)
        if type(value) not in (int, float) or abs(value) >= 1 << 53:
            raise FileError(f"{path.name} has {name} {value!r:.80}, which is no number that a run can have.")
    return found


def _model_card(entry: Path, repo: str, code: list[str]) -> str:
    """README of a repository: that of the entry, with metadata for the Hub and how to pull and play it, with `code`."""
    from huggingface_hub import EvalResult, ModelCardData

    found, is_atari = read_json(entry / EVALUATION), read_json(entry / SUMMARY_FILE).get("frames") is not None
    game, task = found["game"], "reinforcement-learning"
    score, rules = f"{found['mean']:.2f} +/- {found['sd']:.2f}", f"{found['episodes']} episodes, {found['protocol']}"
    result = EvalResult(task, game, game, "mean_reward", score, metric_name=f"mean_reward, {rules}")
    tags = [task, "ringside", game, *(["atari"] if is_atari else [])]
    data = ModelCardData(library_name="ringside", tags=tags, model_name=entry.name, eval_results=[result])
    load = shlex.join(["--load", catalogue.name_of_entry(repo), *code])
    use = f"    python launch.py zoo pull {repo}\n    python launch.py play {load}\n"
    return f"---\n{data.to_yaml()}\n---\n\n{(entry / README).read_text().strip()}\n\n## Use it\n\n{use}"


def _require_new(name: str) -> None:
    """Raise `ConfigError` unless an entry may have this name."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ConfigError(f"--name {name} must be of small letters, digits and underscores.")
    if (catalogue.ZOO / name).exists():
        raise ConfigError(f"The zoo has a {name} already; remove {catalogue.ZOO / name}, or choose another --name.")


def _make_entry(
    directory: Path, source: Path, code: dict[str, Any], name: str | None, device: str, *, flag: str
) -> Path:
    """Copy the weights and the summary of a run, evaluate, and write the README; returns the entry.

    Args:
        code: the env, the plug-in and the network that the user names.
        flag: the option that named the run. With --add the zoo may not have an entry of this name.
    """
    weights = weights_at(source, **code, flag=flag)
    require(flag, "video", "av")
    require(flag, "report", "matplotlib")
    run, config, summary = _run_of(source)
    if config.play.played != weights.game:
        raise ConfigError(
            f"{source} cannot be shared: the weights are of {weights.game}, but their run is of "
            f"{config.play.played!r:.120}."
        )
    name = name or catalogue.name_of_entry(weights.game)
    if flag == "--add":
        _require_new(name)
    steps = steps_at_version(weights.version, summary)
    training = command_of(config, steps)
    entry = directory / name
    entry.mkdir()
    shutil.copyfile(weights_file(source), entry / WEIGHTS)
    if (entry / WEIGHTS).stat().st_size > MOST_BYTES:
        raise ConfigError(f"The weights are larger than the {MOST_BYTES / 1e6:.0f} MB that they may have.")
    evaluation = evaluating.evaluate(entry / WEIGHTS, **code, device=device, video=entry / VIDEO)
    _draw(run, weights.game, entry / CURVE)
    for file, content in ((SUMMARY_FILE, summary), (EVALUATION, evaluation)):
        (entry / file).write_text(json.dumps(content, indent=1) + "\n")
    loading = shlex.join(["--load", f"zoo/{name}", *words_of(**code)])
    parts = [_readme(weights, training, steps, loading, evaluation)]
    for file, line in SHOWN.items():
        if (entry / file).exists() and (entry / file).stat().st_size <= catalogue.MOST_SHOWN_BYTES:
            parts.append(line)
        else:
            (entry / file).unlink(missing_ok=True)
    (entry / README).write_text("\n\n".join([f"# {name}", *parts]) + "\n")
    return entry


def _draw(run: Path, game: str, out: Path) -> None:
    """Draw the returns of a run beside published ones; nothing, unless it has records of an episode."""
    # Matplotlib takes half a second, which the list of the zoo does not need.
    from ringside.report.comparison import compare, published_curves
    from ringside.report.plots import has_curve, learning_curve, style
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
        if os.path.isfile(run / CONFIG_FILE) and os.path.isfile(run / SUMMARY_FILE):
            with refused(f"{source} cannot be shared.", (ConfigError, FileError, OSError)):
                return run, Config.from_json(read_json(run / CONFIG_FILE)), _read_numbers(run / SUMMARY_FILE)
    raise ConfigError(
        f"{source} is in no run directory with the {CONFIG_FILE} and the {SUMMARY_FILE} of a run that ended: name a "
        "run, or a file of weights in its directory."
    )


def command_of(config: Config, total_steps: int) -> str:
    """Command that trains as configured for `total_steps`: the closest preset and the differences from it.

    Raises `ConfigError` if the run began with weights of another run.
    """
    if config.run.init_from is not None:
        raise ConfigError("The run began with the weights of another (--init-from); one command does not train it.")
    return shlex.join(["python", "launch.py", *training_words(config.with_settings(total_steps=total_steps))])


def _readme(weights: StoredWeights, training: str, steps: int, loading: str, evaluation: dict[str, Any]) -> str:
    """Text about an agent: `training` is the command of its run, and `loading` names it to others."""
    acting = acting_in_words(evaluation["eval_actions"], evaluation["eval_epsilon"])
    returned = f"{evaluation['mean']:.2f} +- {evaluation['sd']:.2f} in {count(evaluation['episodes'], 'episode')}"
    return f"""An agent of the method `{weights.network.method}` with the network `{weights.network.name}`, trained on
{with_protocol(weights.game, weights.protocol)}, for {steps:,} steps:

    {training}

By the rules of the run, with {acting}, it returns {returned} (`evaluation.json`):

    python launch.py eval {loading} --seed {evaluation["seed"]}
    python launch.py play {loading}"""
