"""Limits of this machine, part by part, each against the limit above it.

Parts, for --only:

  emulator   four act calls a step and nothing else: in one process, and in one process on every core at once
  actors     env (frame, reward, end) and actor loop (lane, ring, mailbox, immediate answers) against the bare emulator
  memory     ring write, gathers of learner and inference, publication of weights, against memcpy of as many bytes
  inference  inference by batch size and precision
  update     the learner's updates with their commits by precision

A share is the part of the limit that is reached; the two are measured in interleaved slices. Results are verified; a
part with a wrong result shows no speed. --game may name several games, separated by commas, or `ten`: ten games of all
kinds. Words after -- are flags of launch.py, such as --batch-size 128 or --replay-size (for memory 100,000 steps unless
given).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import geometric_mean
from typing import Any

from actors.envs.atari import game_name
from benchmarks.emulator import actor_side, bare_speed
from benchmarks.harness import Case, Figure, Job, Options, Report, speed_case, workers
from benchmarks.measured_run import has_flag, measured_words, plan_of
from benchmarks.memory_paths import memory_paths
from benchmarks.network_parts import inference, learner_alone
from shared.machine.facts import usable_cores
from shared.memory.plan import Plan

TEN_GAMES = "breakout,pong,space_invaders,seaquest,beam_rider,enduro,qbert,ms_pacman,montezuma_revenge,asteroids"
NAMES = ("emulator", "actors", "memory", "inference", "update")
DEFAULTS = {"only": "all", "game": "breakout", "seconds": 1.0}


def run(options: Options, report: Report) -> None:
    """Measure the requested parts. Raises `ConfigError` before anything runs if an option is invalid."""
    games = [game_name(word) for word in (TEN_GAMES if options.game == "ten" else options.game).split(",")]
    words = measured_words(games[0], options.words)
    memory = ["--device", "cpu", *([] if has_flag(options.words, "--replay-size") else ["--replay-size", "100_000"])]
    plans = {part: plan_of([*words, *(memory if part == "memory" else ())]) for part in options.names}
    for part, plan in plans.items():
        with report.noting(part), ExitStack() as stack:
            report.run(list(_cases(part, options, games, plan, stack)), options.repeats)
    for name in ("env", "env, steps alone", "actor loop"):
        shares = [row.ratio for row in report.rows.values() if row.name.endswith(f": {name}") and row.ratio]
        if len(shares) > 1:
            report.notes[name] = (
                f"{name}: {geometric_mean(shares):.3f} of the bare emulator (geometric mean of {len(shares)} games), "
                f"{min(shares):.3f} at least."
            )


def _cases(part: str, options: Options, games: Sequence[str], plan: Plan, stack: ExitStack) -> Iterator[Case]:
    """The cases of a part; their workers live as long as `stack`."""

    def start(job: Job) -> Callable[[], Any]:
        measure = stack.enter_context(workers([job]))
        return lambda: measure(options.seconds)[0]

    def case(name: str, measure: Callable[[], list[Figure]]) -> Case:
        return Case(name, lambda found: measure(), name)

    if part == "emulator":
        for game in games:
            one, cores = f"{game}: one bare emulator", usable_cores()
            yield speed_case(one, partial(bare_speed, game, options.seconds, 1), part=game)
            together = partial(bare_speed, game, options.seconds, cores)
            yield speed_case(f"{game}: {cores} at once", together, limit=one, part=game)
    elif part == "actors":
        for game in games:
            yield case(f"actors, {game}", start((actor_side, game)))
    elif part == "memory":
        yield case(part, start((memory_paths, plan)))
    else:
        for precision in dict.fromkeys((plan.config.machine.precision, "fp32")):
            own, name = Plan(plan.config.with_settings(precision=precision), plan.actions), f"{part}, {precision}"
            if part == "inference":
                yield case(name, start((inference, own)))
            else:
                yield speed_case(name, start((learner_alone, own)), unit="updates/s", part=name)
