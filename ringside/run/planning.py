"""Plans of runs: a configuration, checked against the machine and the files. Nothing here loads torch."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from actors.make_env import require_no_game
from ringside.records.metrics import evaluations_in, require_readable
from ringside.records.summary import INEXACT_SINCE
from ringside.run import checks
from ringside.run.checks import action_names_of, look_at, require_env_fits
from ringside.run.torso_look import torso_of_run
from ringside.zoo.catalogue import find_weights
from shared.checkpoint.finding import find_checkpoint, newest_usable
from shared.checkpoint.manifest import Manifest
from shared.checkpoint.weights_file import load_weights, require_same_network
from shared.config import validate
from shared.config.method_declaration import method_declaration
from shared.config.presets import PRESETS
from shared.config.protocols import PROTOCOLS, eval_rules
from shared.config.resolve import resolve
from shared.config.sections import Evaluate
from shared.config.settings import MAY_CHANGE_ON_RESUME, Config
from shared.errors import CheckpointError, ConfigError, FileError
from shared.files.run_file_names import METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.memory.plan import Plan
from shared.network_spec import is_own
from shared.text import flags_of, refused, words_of


def settings_beside_preset(config: Config, preset: str) -> dict[str, Any]:
    """Flat settings that differ from those that --preset and --method give."""
    given = config.to_flat()
    start = PRESETS[preset]
    # Another method resets what has no effect on it, and refuses it as a flag.
    defaults = start.with_settings(method=given["method"]).to_flat() | {"method": start.algorithm.method}
    return {name: value for name, value in given.items() if value != defaults.get(name)}


def training_words(config: Config, without: frozenset[str] = frozenset()) -> list[str]:
    """Options that give this configuration: the closest preset, and what differs from it.

    Args:
        without: settings that are left out, beside those that may change on resume.
    """
    method = config.algorithm.method
    rules = asdict(eval_rules(config.play, Evaluate(), method_declaration(method)))
    usual = {f"eval_{name}": value for name, value in rules.items()}
    usual["eval_episodes"] = PROTOCOLS[config.play.protocol].eval_episodes

    def resolved(values: dict[str, Any]) -> dict[str, Any]:
        """The values, with the usual rules of evaluation where they leave these open."""
        return values | {name: value for name, value in usual.items() if values[name] in (None, "auto")}

    left_out = (MAY_CHANGE_ON_RESUME | without) - {"total_steps", "eval_every_steps", "eval_episodes"}
    wanted = {name: value for name, value in resolved(config.to_flat()).items() if name not in left_out}
    choices = []
    same = {name: near for name, near in PRESETS.items() if near.play.protocol == config.play.protocol}
    # --env and --protocol are not given together.
    for preset, near in (same if same and config.play.env is not None else PRESETS).items():
        known = resolved(near.with_settings(method=method).to_flat()) | {"method": near.algorithm.method}
        different = {name: value for name, value in wanted.items() if value != known[name]}
        choices.append((len(different), preset, different))
    _, preset, different = min(choices)
    flags = {"preset": None if preset == "nature" else preset, "plugin": config.run.plugin}
    return [*words_of(**flags), *flags_of(different)]


def check(config: Config) -> Plan:
    """Check the settings of a configuration and resolve the open ones, without a check of memory and files.

    An env and a network of the user are looked at. Raises `ConfigError` if the run cannot work on this machine.
    """
    if config.run.init_from is not None:
        config = config.with_settings(init_from=find_weights(config.run.init_from, "--init-from"))
    validate.settings(config)
    if config.play.env is None:
        from actors.envs.atari import game_name

        config = config.with_settings(game=game_name(config.play.game))
    else:
        require_no_game(config.play.env)
    config = resolve(config)
    validate.resolved(config)
    require_env_fits(config)
    repeats = config.play.env is None or look_at(config.play.env, config.play.frames).repeats
    own_torso = torso_of_run(config) if is_own(config.learn.network) else None
    return Plan(config, len(action_names_of(config.play)), env_repeats=repeats, own_torso=own_torso)


def plan(config: Config) -> Plan:
    """As `check`, and also check the checkpoint to continue from and the resources of the machine.

    Nothing is started or written. Raises `ConfigError` if the run cannot work on this machine.
    """
    ready = check(config)
    require_initial_weights(ready)
    try:
        checkpoint = resumed_checkpoint(ready, verified=False)
    except ConfigError:  # only a whole checkpoint refuses: before a damaged one another is continued
        checkpoint = resumed_checkpoint(ready)
    answers = checks.before_start(ready, continues=continues(ready, checkpoint))
    checks.refuse(answers)
    # In place: a copy would compute the layout of the memory again.
    vars(ready)["warnings"] = tuple(answer.sentence for answer in answers if answer.color == "yellow")
    return ready


def resumed_checkpoint(ready: Plan, *, verified: bool = True) -> Manifest | None:
    """The checkpoint that a plan resumes; None: it begins.

    Args:
        verified: compare its pieces with their checksums, which reads all of them.

    Raises:
        ConfigError: the checkpoint does not fit the plan, or the run is finished.
    """
    config, run = ready.config, ready.config.run
    if run.resume is None:
        return None
    with refused(f"--resume {run.resume} cannot be continued.", (CheckpointError, FileError)):
        checkpoint = find_checkpoint(run.resume) if verified else newest_usable(run.resume, lambda found: found)
        checkpoint.require(config)
        require_same_network(checkpoint.network, ready.network)
        if run.require_exact and (INEXACT_SINCE in checkpoint.counters or checkpoint.arithmetic_differences(config)):
            raise ConfigError(f"--require-exact refuses --resume {run.resume}: it does not continue bit for bit.")
        if not checkpoint.has_replay and (run.require_exact or not ready.method.on_policy):
            raise ConfigError(
                f"{checkpoint.path} keeps no replay (--no-checkpoint-replay, or the end of a suite's run) and cannot "
                f"be resumed exactly; begin a new run from its weights with --init-from {run.resume}."
            )
        require_readable(checkpoint.run_dir / METRICS_FILE)
        _require_more_to_do(checkpoint, ready)
    return checkpoint


def continues(ready: Plan, checkpoint: Manifest | None) -> bool:
    """True if a plan resumes a checkpoint of its own run directory."""
    run_dir = ready.config.run.run_dir
    return checkpoint is not None and os.path.isdir(run_dir) and run_dir.samefile(checkpoint.run_dir)


def require_initial_weights(*plans: Plan) -> None:
    """Raise `ConfigError` if the weights of --init-from, which the plans share, do not fit one of them."""
    path = plans[0].config.run.init_from
    if path is None:
        return
    with refused(f"--init-from {path} cannot be used.", CheckpointError):
        weights = load_weights(path)
        for ready in plans:
            weights.require(ready.network)


def _require_more_to_do(checkpoint: Manifest, ready: Plan) -> None:
    """Raise `ConfigError` if the run of a checkpoint has played and recorded all steps of the plan."""
    resume, run_schedule = ready.config.run.resume, ready.run_schedule
    played = checkpoint.boundary * run_schedule.round_steps
    if checkpoint.boundary > run_schedule.rounds:
        raise ConfigError(
            f"--resume {resume} has already played {played:_} steps, more than "
            f"--total-steps {ready.config.learn.total_steps:_}."
        )
    if checkpoint.boundary < run_schedule.rounds:
        return
    run_dir = checkpoint.run_dir
    summed_up = read_object(run_dir / SUMMARY_FILE).get("rounds") == checkpoint.boundary
    due = checkpoint.evaluations.until(checkpoint.boundary, run_schedule.round_steps)
    if summed_up and len(evaluations_in(run_dir / METRICS_FILE)) >= due:
        raise ConfigError(
            f"--resume {resume} is a finished run, of {played:_} steps; pass --total-steps N, more than that, to "
            "continue it."
        )
