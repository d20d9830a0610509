"""Learner rounds and answers of a policy, as small as they can be, to compare their bits between devices."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from learner.engine.engine import Engine
from learner.make_engine import make_engine
from learner.networks.module_model import make_model
from learner.networks.modules import initial_parameters
from learner.networks.policy import Policy
from learner.team.team import ALONE, Team
from shared.config.method_declaration import method_declaration
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.frame_shape import FRAME_SIDE, STACK
from shared.network_parameters import packed_places
from shared.network_spec import Network, network_of
from tests.support.played_ring import ACTIONS, PlayedRing, stored_state

ROUNDS = 5
"""Rounds of learning, after which a window of two rounds has wrapped in the ring and on the device."""
BATCH = 4
"""Stacks that the policy answers."""

Numbers = dict[str, NDArray[np.float32]]
"""Results by name."""


class Work(NamedTuple):
    """A configuration whose work is compared."""

    preset: str
    precision: str = "fp32"
    graph_updates: int = 8
    replay_on: str = "device"
    parts: int | None = None
    recurrent: bool = False
    round_steps: int = 64
    batch: int = 8

    def __str__(self) -> str:
        """A name for a test."""
        return "-".join(map(str, self))

    @property
    def config(self) -> Config:
        """The preset with the smallest network and rounds of a few updates.

        A rounding turns a unit of ReLU on or off now and then. An optimizer that divides gradients by their size
        magnifies that: `ppo-quick` in fp32 would be 0.2 of its way apart after three rounds.
        """
        preset = PRESETS[self.preset]
        small: dict[str, Any] = {"envs": 4, "total_steps": 4_096, "round_steps": self.round_steps}
        small |= dict.fromkeys(("snapshot_every_steps", "learning_starts"), self.round_steps)
        small |= {"initial": "torch", "batch_size": self.batch, "replay_size": 128, "anneal_steps": 4_096}
        if preset.learn.schedule == "alternate":  # whose rounds are shorter than the returns
            small |= {"learning_starts": 128}
        if method_declaration(preset.algorithm.method).on_policy:
            small |= {"optimizer_epsilon": 0.01}
        if self.recurrent:  # minibatches of two envs
            small |= {"recurrent": True, "batch_size": 32}
        network = "small" if preset.learn.network in ("nature", "a3c") else preset.learn.network
        small |= {"game": "pong", "seed": 1, "network": network, "precision": self.precision}
        return preset.with_settings(**small, learner_parts=self.parts)


def played_ring(work: Work, rounds: int = 1) -> PlayedRing:
    """The first rounds of random episodes."""
    played = PlayedRing(work.config)
    if "log_prob" in played.ring.field:  # far from the policy's own, clipping would magnify a rounding
        played.ring.field["log_prob"][:] = -np.log(ACTIONS)
    if "recurrent_state" in played.ring.field:
        state = played.ring.field["recurrent_state"]
        state[:] = np.random.default_rng(1).normal(0, 0.3, state.shape)
    played.play(rounds * played.run_schedule.round_ticks)
    return played


def learn(work: Work, device: torch.device, rounds: int = ROUNDS, team: Team = ALONE) -> Numbers:
    """Learn some rounds as the learner process does; return what it publishes, snapshots and metrics.

    The ring is played while the learner works. The last round but one is done twice, as for a report of numbers that
    are not finite.
    """
    played = played_ring(work)
    schedule, network = played.run_schedule, network_of(work.config, ACTIONS)
    engine = make_test_engine(work, device, played, team)
    numbers: Numbers = {"first": _published(engine, network)}
    learns = max(1, schedule.first_learning_round)
    for number, round_ in enumerate(range(learns, learns + rounds), start=1):
        state = stored_state(engine)
        numbers |= {f"snapshot before {number}, {name}": vector for name, vector in state.items()}
        _play_until(played, schedule.window_end(round_))
        count = engine.begin_round(round_, schedule.window_end(round_))
        assert count, "updates are compared"
        if plays_meanwhile := work.config.learn.schedule != "alternate":
            _play_until(played, schedule.window_end(round_ + 1))
        if number == 1:
            engine.run(5)  # no whole graph: the rest is launched kernel by kernel
            numbers["published within 1"] = _published(engine, network)  # as with `--schedule free`
        # Whole graphs, while the next chunk is prefetched; each member stops at another update.
        for part in (count,) if not team.rank else (team.rank, count):
            engine.run(part)
        while engine.unfinished_slices() > 1:
            pass
        if plays_meanwhile and number < rounds:
            engine.prefetch(round_ + 1, schedule.window_end(round_ + 1))
        if number == max(1, rounds - 1):
            numbers["published before the repetition"] = _published(engine, network)
            _repeat(engine, state, round_, schedule.window_end(round_))
        means = engine.end_round().means
        engine.update_target()
        numbers[f"published {number}"] = _published(engine, network)
        numbers[f"metrics {number}"] = np.array(list(means.values()), np.float32)
    engine.settle()
    report = engine.last_update()  # as after a number that is not finite
    return numbers | {f"last, {name}": array.astype(np.float32) for name, array in report.items()}


def _play_until(played: PlayedRing, tick: int) -> None:
    played.play(max(0, tick - played.ticks))


def _repeat(engine: Engine[Any], state: Numbers, round_: int, window_end: int) -> None:
    """Repeat the updates of a round one by one (`learner.engine.nan_report.repeat_updates`)."""
    engine.load(state)
    for _ in range(engine.begin_round(round_, window_end)):
        engine.run(1)
        engine.check()


def make_test_engine(work: Work, device: torch.device, played: PlayedRing, team: Team = ALONE) -> Engine[Any]:
    """An engine with fresh parameters."""
    replay_on = work.replay_on if device.type != "cpu" else "auto"
    settings = {"device": str(device), "graph_updates": work.graph_updates, "replay_on": replay_on}
    config, network = work.config.with_settings(**settings), network_of(work.config, ACTIONS)
    engine = make_engine(config, network, played.ring, team=team)
    engine.load(None)
    return engine


def answer(work: Work, device: torch.device, played: PlayedRing) -> Numbers:
    """Answer some batches, with new parameters between them, as the inference server does."""
    network = network_of(work.config, ACTIONS)
    policy = Policy(network, device, work.precision, BATCH, explore_seed=1, captured=work.graph_updates > 0)
    policy.rehearse()
    frames, envs = played.ring.flat["frame"], np.arange(BATCH)
    learner, numbers = make_model(network, torch.device("cpu"), work.precision), Numbers()
    exported = np.zeros(len(learner.params), np.float32)
    for version in range(2):
        policy.load(_parameters(network, version))
        stacks = np.random.default_rng(version).integers(0, 256, (BATCH, STACK, FRAME_SIDE, FRAME_SIDE), np.uint8)
        if policy._explore_seed is None:
            numbers[f"of stacks {version}"] = policy.values(stacks)
        learner.pack(_parameters(network, version + 2), learner.params)
        learner.export_into(exported)
        policy.take(exported)
        for tick in range(5, 8):
            ticks = np.full(BATCH, tick)
            rows, mask = played.ring.stack_rows(envs, ticks)
            some = slice(None) if tick == 5 else slice(0, BATCH // 2)
            acting = envs[some], ticks[some]
            state = played.ring.recurrent_state(*acting) if work.recurrent else None
            values = policy.values_from_rows(frames, rows[some], mask[some], envs[some], acting, state)
            numbers[f"of tick {tick}, {version}"] = values
            if work.recurrent:
                numbers[f"of tick {tick}, {version}, states"] = policy.next_state
    return numbers


def distance(numbers: Numbers, others: Numbers, name: str) -> float:
    """Distance of two results, as a share of their size; of parameters, as a share of their way so far."""
    here, there = numbers[name].astype(np.float64), others[name]
    base = numbers["first"] if name.startswith("published") else 0.0
    return float(np.linalg.norm(here - there) / max(np.linalg.norm(here - base), 1e-30))


def differences(numbers: Numbers, others: Numbers) -> list[str]:
    """Names of results that differ in a bit."""
    return [name for name in numbers if numbers[name].tobytes() != others[name].tobytes()]


@cache
def _parameters(network: Network, seed: int) -> NDArray[np.float32]:
    return initial_parameters(network, seed, "torch")


def _published(engine: Engine, network: Network) -> NDArray[np.float32]:
    out = np.zeros(packed_places(network)[1], np.float32)
    engine.export_into(out)
    return out
