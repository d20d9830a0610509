"""Settings of measured runs: they learn early, and as many rounds as are needed fit into a measurement."""

from __future__ import annotations

from collections.abc import Sequence

from ringside import planning
from ringside.bench.harness.tables import CannotRun, Report
from ringside.tasks.train import configuration
from shared.config.checks import validate
from shared.config.method_declaration import method_declaration
from shared.config.resolve import device_of
from shared.config.settings import unused_settings
from shared.errors import ConfigError
from shared.memory.plan import Plan
from shared.text import flag_in, words_of

LEARNING_STARTS = 5_000
"""Default steps before the first update; the 50,000 of Nature DQN would only cost waiting time."""
NEVER_LEARNS = ("--learning-starts", "40_000_000", "--total-steps", "50_000_000")
"""Arguments of a run that stays before its first update for the whole measurement."""
OURS = ("--game", "--run-dir", "--resume")
"""Flags that the benchmark sets itself."""
ROUNDS = 5
"""Rounds that should fit into one measurement."""
LEAST_ROUND_TICKS = 10
"""Shorter rounds would be mostly barrier."""
PROBE_SHARE = 0.1
"""Share of the measuring time spent on choosing the round length."""
WORKER_PACE = 300.0
"""Steps/s of a core with workers, by which their spans are made to fit into a measurement."""
BARE_SHARE = 0.25
"""Share of the measuring time for the bare emulator, which is at steady state from its start."""


def make_plan(game: str, words: Sequence[str]) -> Plan:
    """Return the plan of a measured run with these arguments.

    Raises:
        ConfigError: a setting is invalid.
        CannotRun: its device is not available.
    """
    for flag in OURS:
        if has_flag(words, flag):
            raise ConfigError(f"{flag} after -- is given by the benchmark itself: omit it.")
    config = configuration([*game_unless_env(game, words), *early_learning(words), *words])
    validate.settings(config)
    try:
        device_of(config.machine.device)
    except ConfigError as error:
        raise CannotRun(str(error)) from error
    return planning.check(config)


def game_unless_env(game: str, words: Sequence[str]) -> list[str]:
    """Arguments that name the game of a run of these `words`; none if they name an env, which excludes a game."""
    return [] if has_flag(words, "--env") else ["--game", game]


def early_learning(words: Sequence[str]) -> list[str]:
    """Arguments with which a run of these `words` learns early; none if its method learns from the first round on."""
    unused = unused_settings(method_declaration(configuration(words).algorithm.method))
    return [] if "learning_starts" in unused else ["--learning-starts", str(LEARNING_STARTS)]


def rounds_that_fit(plan: Plan, words: Sequence[str], seconds: float, pace: float) -> list[str]:
    """The arguments, with shorter rounds if fewer than `ROUNDS` rounds fit into `seconds` at `pace` steps/s.

    Rounds are never lengthened, and a length in `words` is kept. Shorter rounds have more barriers and commits and the
    same work per step, so they make no run faster. Rounds of the schedule `alternate` are short already. Those of an
    on-policy method or of workers are a part of what is learned; these get more frequent snapshots, which come with
    records.
    """
    run_schedule = plan.run_schedule
    if run_schedule.method.on_policy or run_schedule.workers:
        span = int(pace * seconds / ROUNDS)
        given = has_flag(words, "--snapshot-every-steps")
        shorter = not given and span < run_schedule.snapshot_rounds * run_schedule.round_steps
        least = run_schedule.round_steps
        return [*words, "--snapshot-every-steps", str(max(span, least))] if shorter else list(words)
    fixed = has_flag(words, "--round-steps") or plan.config.learn.schedule == "alternate"
    if fixed or pace * seconds / ROUNDS >= run_schedule.round_steps:
        return list(words)
    steps = max(LEAST_ROUND_TICKS * run_schedule.envs, int(pace * seconds / ROUNDS) // 100 * 100)
    return [*words, "--round-steps", str(min(steps, run_schedule.round_steps))]


def acting_words(plan: Plan) -> list[str]:
    """Arguments of a run that acts as an on-policy method does and never learns: DQN before its first update."""
    config, machine = plan.config, plan.config.machine
    play = {name: getattr(config.play, name) for name in ("protocol", "envs", "lane_envs")}
    network = {"network": config.learn.network, "normalize": config.algorithm.normalize}
    roles = ("actors", "device", "precision", "inference_threads", "inference_batch")
    given = {**play, **network, **{name: getattr(machine, name) for name in roles}}
    return [
        *words_of(**given),
        "--round-steps",
        str(config.learn.round_steps),
        "--replay-size",
        "100_000",
        *NEVER_LEARNS,
    ]


def has_flag(words: Sequence[str], flag: str) -> bool:
    """True if the arguments set an option."""
    return any(flag_in(word) == flag for word in words)


def require_no_actors(words: Sequence[str]) -> None:
    """Raise `ConfigError` if the arguments set the number of actors, for a benchmark that varies it."""
    if has_flag(words, "--actors"):
        raise ConfigError("--actors is what this benchmark varies: omit it.")


def require_game(plan: Plan) -> None:
    """Raise `CannotRun` for an env, beside which no bare emulator can be measured."""
    if plan.config.play.env is not None:
        raise CannotRun("Only games of ale-py have a bare emulator to compare with.")


def note_rounds(
    report: Report, own: Plan, measured: Plan, seconds: float, others: str = "", theirs: Plan | None = None
) -> None:
    """Note the round length of a measurement and the reason; also that of `others` if `theirs` differs."""
    steps, usual = measured.run_schedule.round_steps, own.run_schedule.round_steps
    shorter = f" instead of {usual:,}, so that {ROUNDS} fit into {seconds:g} s. Shorter rounds save no work."
    report.note(f"Rounds have {steps:,} steps" + (shorter if steps < usual else "."))
    if theirs is not None and theirs.run_schedule.round_steps != steps:
        report.note(f"Those of {others} have {theirs.run_schedule.round_steps:,}.")
