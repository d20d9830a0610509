"""The task `train`, the default of the command. What a run needs is loaded once its options are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from ringside.command.arguments import Choices, config_of, parse_choices
from shared.config.method_declaration import method_declaration
from shared.config.settings import ARITHMETIC, Config, ResolvedConfig
from shared.config.trust import code_named, resume_words
from shared.errors import CheckpointError, ConfigError, RunFailed
from shared.files.lock import is_locked
from shared.process.signals import handle_stop_signals, ignore_requests
from shared.text import PROGRAM, UNSET, command, printable, words_of

if TYPE_CHECKING:
    from ringside.watch.status import Status
    from shared.memory.plan import Plan


@dataclass(frozen=True)
class Limits:
    """A control group for the run."""

    cgroup: bool = False
    """Start the run as one systemd scope: everything in it ends with it."""
    cpus: float | None = None
    """With --cgroup: processor time that the run may use, in cores."""
    memory: str | None = None
    """With --cgroup: memory that the run may use, like 16G; too much has one of its processes killed."""


@dataclass(frozen=True)
class Nodes:
    """Other machines that play."""

    ray: str | None = None
    """auto or HOST:PORT: have the lanes played on the nodes of this Ray cluster, with the same weights
    (docs/clusters.md)."""
    nodes: int | None = None
    """With --ray: groups of lanes, each on a node; default: as many as the cluster has nodes with CPUs."""
    head_plays: bool = False
    """With --ray: the --actors of this machine play, too. They take a share of the inference batches in proportion to
    their number."""
    mixed_numerics: bool = False
    """With --ray: accept nodes that compute other last bits than this machine; the run is recorded as inexact."""
    ray_insecure: bool = False
    """With --ray: accept a cluster without a token, on which any program that reaches it can run code."""


@dataclass(frozen=True)
class Options(Limits, Nodes, Choices):
    """Train an Atari agent. A step is one action of the agent, four emulator frames. For a first run: --game pong
    --preset ppo-quick."""

    rare: ClassVar[Sequence[str]] = [item.name for kind in (Limits, Nodes) for item in fields(kind)]


def configuration(arguments: Sequence[str]) -> Config:
    """Configuration from the options, unchecked. Raises `ConfigError`; exits with 0 after --help."""
    return config_of(parse_choices(Options, arguments, "train"))


def main(arguments: Sequence[str]) -> int:
    """Train an agent. Return 1 if a fault ended the run."""
    options = parse_choices(Options, arguments, "train")
    from ringside.run import planning, training
    from ringside.watch.display import open_display

    _confine(options)
    plan = _placed(planning.plan(config_of(options)), options)
    newest: list[Status] = []
    display = open_display(plain=plan.config.run.plain)

    def look(status: Status) -> None:
        newest[:] = [status]  # from here on the run handles signals; those after its end are ignored

    def interrupt_start(number: int) -> None:
        if not newest:
            raise KeyboardInterrupt

    try:
        with handle_stop_signals(interrupt_start):
            summary = training.run_shown(plan, display, look)
    except RunFailed as error:
        print(printable(f"{PROGRAM}: {error}"), file=sys.stderr)
        print(printable(how_to_continue(plan.config)), file=sys.stderr)
        return 1
    finally:
        if newest:
            ignore_requests()
    at_score = any(training.score_reached(plan.config, status) for status in newest)
    for line in next_steps(plan.config, finished=summary["finished"], at_score=at_score):
        print(printable(line))
    return 0


def next_steps(config: ResolvedConfig, *, finished: bool, at_score: bool = False) -> list[str]:
    """Lines with the commands that come after a run; none within a suite that is going on.

    Args:
        finished: False: it was stopped.
        at_score: True if the score of --stop-at is reached, which would end a resumed run at once.
    """
    from shared.checkpoint.finding import newest_checkpoint
    from shared.process.ownership import SUITE_LOCK_FILE

    if is_locked(config.run.run_dir.parent / SUITE_LOCK_FILE):
        return []
    last = [] if finished else [how_to_continue(config, words_of(stop_at=UNSET) if at_score else ())]
    if last and newest_checkpoint(config.run.run_dir) is None:
        return last
    run_dir, named = str(config.run.run_dir), words_of(**code_named(config))
    commands = {
        "Evaluate it": ["eval", "--load", run_dir, *named],
        "Watch it play": ["play", "--load", run_dir, *named],
        "See its curves": ["report", run_dir],
    }
    return [*(f"  {what + ':':15} {command(*words)}" for what, words in commands.items()), *last]


def _placed(plan: Plan, cluster: Nodes) -> Plan:
    """The plan with gateways to the nodes of a cluster, where one was named. Raises `ConfigError` if it is refused."""
    if cluster.ray is None:
        if cluster.nodes is not None or cluster.head_plays or cluster.mixed_numerics or cluster.ray_insecure:
            raise ConfigError("--nodes, --head-plays, --mixed-numerics and --ray-insecure need --ray.")
        return plan
    from ringside.cluster.gateway import with_gateways

    return with_gateways(
        plan,
        cluster.ray,
        cluster.nodes,
        head_plays=cluster.head_plays,
        insecure=cluster.ray_insecure,
        mixed=cluster.mixed_numerics,
    )


def how_to_continue(config: ResolvedConfig, onward: Sequence[str] = ()) -> str:
    """Sentence with the command that continues an unfinished run, by the contents of its directory.

    `onward`: further words of it.
    """
    from ringside.run import planning
    from shared.checkpoint.finding import newest_checkpoint, newest_usable

    run_dir = config.run.run_dir
    if newest_checkpoint(run_dir) is None:
        return "Nothing was saved: the run ended before its first checkpoint. The same command starts it again."
    try:
        checkpoint = newest_usable(run_dir, lambda manifest: manifest)
    except CheckpointError as error:
        return f"It cannot be resumed: {error}"
    if checkpoint.has_replay or method_declaration(config.algorithm.method).on_policy:
        return f"Continue it with: {command(*resume_words(config), *onward)}"
    begin = command("--init-from", str(run_dir), *planning.training_words(config, without=ARITHMETIC))
    return f"It was saved without its replay and cannot be resumed. Start a new run from its weights with: {begin}"


def _confine(limits: Limits) -> None:
    """With --cgroup: re-execute the command in a scope; inside it, print the limits in force and the missing ones."""
    if not limits.cgroup:
        if limits.cpus is not None or limits.memory is not None:
            raise ConfigError("--cpus and --memory limit the run's control group: pass --cgroup, too.")
        return

    from ringside.run import scope
    from shared.machine.control_groups import in_force

    asked = scope.make_limits(limits.cpus, limits.memory)
    if not scope.inside():
        scope.enter(asked, [sys.executable, *sys.orig_argv[1:]])
    found = in_force()
    print(f"In force: {found}.", flush=True)
    for sentence in asked.missing(found):
        print(f"{PROGRAM}: {sentence}", file=sys.stderr)
