"""The clock and the sizes of a run: rounds, ticks, windows and capacities, derived from a `Config`.

A round is a whole number of ticks of every lane (docs/design.md). A round is rounded to the nearest tick, the
window down to whole rounds. Learning-starts and the total are rounded up to whole rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shared.config.method_declaration import MethodDeclaration, OnPolicySettings, SlotField, method_declaration
from shared.config.sections import Explore, Learn
from shared.config.settings import Config
from shared.frame_shape import DEFAULT_FRAMES, FrameShape
from shared.network_spec import network_of

MOST_PRIORITIES = 2**24
"""Transitions that prioritized replay can keep."""
ALTERNATE_SNAPSHOT_STEPS = 10_000
"""Default steps between two snapshots of a replay method with `alternate`, whose rounds are a few steps long."""
ON_POLICY_SNAPSHOT_STEPS = 20_000
"""The same of an on-policy method: 1,000 to 2,000 steps a round are too few for a snapshot of everything each."""
RECORD_STEPS = 1_000
"""Steps of a record (ringside/records): whole rounds within them, at least one."""

RECURRENT_STATE = "recurrent_state"
"""Field of a slot with the output and the cell of an LSTM after the tick."""


@dataclass(frozen=True)
class RunSchedule:
    """Clock and sizes that follow from a configuration; all counts are exact integers."""

    envs: int
    """Emulators of the run."""
    lane_envs: int
    """Emulators of a lane."""
    round_ticks: int
    """Ticks of every lane in a round."""
    window_ticks: int
    """Ticks of each lane that the learner may sample."""
    target_steps: int
    """Steps between two changes of the target network."""
    train_every: int
    """Steps for each update, where `updates_per_round` is 0."""
    first_learning_round: int
    """Number of the first round with updates."""
    rounds: int
    """Rounds of the run."""
    snapshot_rounds: int
    """Rounds of a span, from one boundary with snapshots to the next: whole records."""
    record_rounds: int
    """Rounds of a record of the run."""
    segment_rounds: int
    """Rounds of a file with a part of the replay; independent of `snapshot_rounds`, which a resume may change."""
    max_rounds_ahead: int
    """Rounds that a lane may have finished or be playing beyond the last commit."""
    learns_same_round: bool
    """True if the updates of a round may use its own ticks; else they run beside it on the rounds before."""
    takes_turns: bool
    """True if the updates of a round begin after it is played. With `learns_same_round` but without this they begin at
    once, and a draw waits for the ticks that it reads."""
    has_own_target: bool
    """True if the target network may differ from the online one at a boundary."""
    capacity: int
    """Slots of a lane's ring."""
    learning_starts_ticks: int
    """Ticks of each lane before epsilon falls."""
    method: MethodDeclaration
    """Declaration of the method, whose slot fields and metrics the shared memory holds."""
    n_step: int = 1
    priority_ticks: int = 0
    """Ticks with priorities, independent of the total; 0: sampling is uniform."""
    update_samples: int = 32
    """Samples of an update."""
    updates_per_round: int = 0
    """Updates of every round from the first that learns, with an on-policy method or workers; 0: they follow
    `train_every`."""
    workers: int = 0
    """Workers, each of which has a lane and computes gradients from it; 0: a learner does the updates."""
    anneal_steps: int = 0
    """Steps after which annealed settings are at their end, independent of the total; 0: none is annealed."""
    frames: FrameShape = DEFAULT_FRAMES
    """Shape of the frames in the slots, and of their stacks."""
    recurrent_units: int = 0
    """Units of the network's LSTM; 0: there is none."""

    @property
    def reply_fields(self) -> tuple[SlotField, ...]:
        """Fields of a slot that inference sends with the action: those of the method, and the state of an LSTM."""
        state = ((RECURRENT_STATE, "f4", (2, self.recurrent_units)),) if self.recurrent_units else ()
        return self.method.slot_fields + state

    @property
    def priorities(self) -> int:
        """Leaves of the tree of priorities; 0: sampling is uniform."""
        return self.priority_ticks * self.envs

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return self.envs // self.lane_envs

    @property
    def round_steps(self) -> int:
        """Steps of all envs in one round."""
        return self.round_ticks * self.envs

    @property
    def steps_per_update(self) -> float:
        """Steps played for each update of the rounds that learn."""
        return self.round_steps / self.updates_per_round if self.updates_per_round else self.train_every

    @property
    def learning_begins(self) -> int:
        """Steps played when the first update begins, those of the round included where turns are taken."""
        return (self.first_learning_round + self.takes_turns) * self.round_steps

    @property
    def steps_without_learning(self) -> int:
        """Steps of the rounds before learning begins."""
        return self.first_learning_round * self.round_steps

    def updates_before(self, round_: int) -> int:
        """Updates done when `round_` begins: floor(r S / k), less those of rounds that only play.

        With an on-policy method or workers the same number for every round that learns.
        """
        if self.updates_per_round:
            return max(0, round_ - self.first_learning_round) * self.updates_per_round
        return max(0, round_ * self.round_steps // self.train_every - self.steps_without_learning // self.train_every)

    def updates_in(self, round_: int) -> int:
        """Updates of one round: floor((r + 1) S / k) - floor(r S / k), none before learning starts."""
        return self.updates_before(round_ + 1) - self.updates_before(round_)

    def window_end(self, round_: int) -> int:
        """The tick before which a round's updates draw: its first; with `learns_same_round` the one after its last."""
        return (round_ + 1 if self.learns_same_round else round_) * self.round_ticks

    def window_begin(self, boundary: int) -> int:
        """The first tick that the updates of a run which continues from `boundary` may use."""
        window = 0 if self.method.on_policy and self.learns_same_round else self.window_ticks
        return max(0, boundary * self.round_ticks - window)

    @property
    def history_ticks(self) -> int:
        """Ticks before the window that the stacks of its first ticks, or the state of an LSTM, need.

        The first ticks of a replay window are never sampled, since their stacks begin before it. An on-policy method
        uses every tick of a round.
        """
        if not self.method.on_policy:
            return 0
        return max(self.frames.stack - 1, 1 if self.recurrent_units else 0)

    def oldest_needed_tick(self, boundary: int) -> int:
        """The oldest tick that a run which continues from `boundary` needs."""
        return max(0, self.window_begin(boundary) - self.history_ticks)

    def target_changes_after(self, round_: int) -> bool:
        """True if the target network becomes the online one at the end of `round_`."""
        before, after = map(self.target_changes_before, (round_, round_ + 1))
        return self.method.has_target_network and after > before

    def target_changes_before(self, boundary: int) -> int:
        """Changes of the target network at the ends of the rounds before `boundary`, at most one a round."""
        return min(boundary, boundary * self.round_steps // self.target_steps)

    def oldest_readable_tick(self, committed: int) -> int:
        """The oldest tick that no lane can be writing over while so many rounds are committed."""
        return (committed + self.max_rounds_ahead) * self.round_ticks + 1 - self.capacity

    def epsilon(self, tick: int, explore: Explore) -> float:
        """Linear from start to end over `epsilon_steps`, counted from `learning_starts` on, by ticks x envs."""
        steps = (tick - self.learning_starts_ticks) * self.envs
        share = min(1.0, max(0.0, steps / max(1, explore.epsilon_steps)))
        return explore.epsilon_start + share * (explore.epsilon_end - explore.epsilon_start)

    def shown_epsilon(self, tick: int, explore: Explore) -> float | None:
        """Epsilon of displays and records, before --epsilon-ladder; None: there is none, or each worker has its own."""
        return self.epsilon(tick, explore) if self.method.has_epsilon and not explore.epsilon_by_worker else None

    def annealed(self, round_: int, start: float, end: float | None) -> float:
        """The value of an annealed setting in a round, linear in the steps played before it.

        Args:
            start: value at the beginning of the run.
            end: value after `anneal_steps`; None: the setting is constant.
        """
        if end is None:
            return start
        return start + min(1.0, round_ * self.round_steps / max(1, self.anneal_steps)) * (end - start)

    def learning_rate(self, round_: int, learn: Learn) -> float:
        """The learning rate of a round, annealed or constant."""
        return self.annealed(round_, learn.learning_rate, learn.learning_rate_end)

    def ladder(self, env: int, explore: Explore) -> float:
        """The power of epsilon with which an env plays (Horgan et al. 2018, section 4.1)."""
        return 1.0 + explore.epsilon_ladder * env / max(1, self.envs - 1)

    def is_snapshot(self, boundary: int) -> bool:
        """True if every role keeps a snapshot at `boundary` (before round `boundary`), wherever the run ends."""
        return boundary % self.snapshot_rounds == 0

    def record_number(self, boundary: int) -> int:
        """Number of the record that holds the round before `boundary`."""
        return (boundary - 1) // self.record_rounds

    def is_record(self, boundary: int) -> bool:
        """True if a record ends at `boundary`, wherever the run ends."""
        return boundary % self.record_rounds == 0

    def segment_begin(self, boundary: int) -> int:
        """The boundary at which the file begins that holds the round of `boundary`."""
        return boundary - boundary % self.segment_rounds

    @property
    def lane_buffers(self) -> int:
        """Snapshots that a lane keeps: with `free` one more, since it may be two rounds ahead of the last commit."""
        return 2 if self.workers else self.max_rounds_ahead + 1


def make_run_schedule(config: Config, method: MethodDeclaration | None = None) -> RunSchedule:
    """Derive the sizes. Expects a validated configuration.

    The ring holds the window, the rounds that may be in flight behind it, the history of a stack and the frame that
    opens the next round. In flight are the rounds that a learner repeats from its snapshot, and those that lanes play;
    with an on-policy method or workers also as many for a scribe that is late. Learning from a replay begins with the
    second round at the earliest (`learning_starts` is 1 or more): before there is nothing to sample.

    Args:
        method: the declaration of the configured method; default: the registered one.
    """
    method = method or method_declaration(config.algorithm.method)
    play, learn, own = config.play, config.learn, config.algorithm.settings
    workers, updates_by_round = play.workers, play.workers > 0 or method.on_policy
    replays = learn.local_replay > 0 if workers else not method.on_policy
    learns_same_round = workers > 0 or learn.schedule == "alternate"
    round_ticks, window_rounds = _round_and_window(config, method)
    round_steps = round_ticks * play.emulators
    default_steps = ALTERNATE_SNAPSHOT_STEPS if learns_same_round else round_steps
    default_steps = ON_POLICY_SNAPSHOT_STEPS if updates_by_round else default_steps
    intervals = _intervals(learn, round_steps, default_steps, window_rounds)
    held_rounds = window_rounds if updates_by_round else min(window_rounds, intervals["rounds"])
    # A lane plays the round after the last commit; with free one more, with async a record.
    max_rounds_ahead = {"free": 2, "async": intervals["record_rounds"]}.get(learn.schedule, 1)
    in_flight = max(intervals["snapshot_rounds"], intervals["segment_rounds"])
    if updates_by_round:
        in_flight += intervals["snapshot_rounds"] + max_rounds_ahead
    elif learn.schedule != "concurrent":
        in_flight += 1
    # Where a return is longer than a round, no draw begins in the newest one, and few end there. But a GPU copies all
    # frames first, and the members of a learner would have to wait together.
    alone = config.machine.device == "cpu" and config.machine.learner_processes == 1
    overlaps = alone and replays and not workers and config.algorithm.n_step > round_ticks
    units = network_of(config, actions=1).recurrent
    opening = max(play.frame_stack, 2 if units else 1) + 1  # the frame, and what its stack and an LSTM read
    updates = workers
    if method.on_policy and not workers:
        updates = (own.epochs if isinstance(own, OnPolicySettings) else 1) * round_steps // learn.batch_size
    return RunSchedule(
        envs=play.emulators,
        lane_envs=play.lane_envs,
        round_ticks=round_ticks,
        window_ticks=held_rounds * round_ticks,
        target_steps=learn.round_steps if learns_same_round else round_steps,
        train_every=learn.train_every,
        first_learning_round=-(-learn.learning_starts // round_steps) if replays else int(not learns_same_round),
        **intervals,
        max_rounds_ahead=max_rounds_ahead,
        learns_same_round=learns_same_round,
        takes_turns=learns_same_round and not overlaps,
        has_own_target=learns_same_round and method.has_target_network,
        capacity=(held_rounds + in_flight) * round_ticks + opening,
        learning_starts_ticks=-(-learn.learning_starts // play.emulators) if replays else 0,
        method=method,
        n_step=config.algorithm.n_step,
        # Not those of a window that the run's end bounds: with a later end the run may go on.
        priority_ticks=window_rounds * round_ticks if config.algorithm.prioritized else 0,
        update_samples=learn.batch_size if replays or not workers else learn.t_max * play.lane_envs,
        updates_per_round=updates,
        workers=workers,
        anneal_steps=learn.anneal_steps,
        frames=play.frames,
        recurrent_units=units,
    )


def _round_and_window(config: Config, method: MethodDeclaration) -> tuple[int, int]:
    """Ticks of a round, and rounds of the window.

    A worker computes a gradient from every `t_max` ticks that it plays, or from its local replay; these ticks are a
    round. The window of an on-policy method is the newest round.
    """
    play, learn = config.play, config.learn
    if play.workers:
        return learn.t_max, max(1, learn.local_replay // (learn.t_max * play.lane_envs))
    round_ticks = max(1, round(learn.round_steps / play.emulators))
    if method.on_policy:
        return round_ticks, 1
    if learn.schedule == "alternate":
        round_ticks = -(-max(play.emulators, learn.train_every) // play.emulators)
    return round_ticks, learn.replay_size // (round_ticks * play.emulators)


def _intervals(learn: Learn, round_steps: int, default_steps: int, window_rounds: int) -> dict[str, Any]:
    """The total of a run and its intervals, in rounds of `round_steps`.

    There is a snapshot every `default_steps` unless `learn` sets it. A segment is as long as the default, but not
    longer than the window.
    """
    records = max(1, RECORD_STEPS // round_steps)
    wanted = max(1, (learn.snapshot_every_steps or default_steps) // round_steps)
    segment = max(1, min(default_steps // round_steps, window_rounds))
    within = min(records, wanted)
    return {
        "rounds": -(-learn.total_steps // round_steps),
        "snapshot_rounds": wanted - wanted % within,
        "record_rounds": within,
        "segment_rounds": segment - segment % min(records, segment),
    }
