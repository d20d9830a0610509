"""The plan of a run: its configuration, and the division of its work among processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from shared.config.method_declaration import MethodDeclaration, add_method, method_declaration
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.settings import ResolvedConfig
from shared.memory.board import Board
from shared.memory.evaluation_queue import Evaluations
from shared.memory.gateways import Gateways
from shared.memory.layout import Layout
from shared.memory.mailbox import Mailbox
from shared.memory.process_table import ProcessTable, Role
from shared.memory.publication import PublishedWeights
from shared.memory.ring import ring_fields
from shared.memory.shared_parameters import SharedParameters
from shared.memory.snapshot import LaneSnapshots, LearnerSnapshots, state_fields
from shared.network_parameters import ParameterSpec, packed_places, parameters_of
from shared.network_spec import Network, OwnTorso, network_of


@dataclass(frozen=True)
class Elsewhere:
    """The seam for lanes that are played elsewhere: further actors, which follow those of this machine.

    Such an actor is a process that owns lanes and writes their memory as every actor does. It need not play them itself
    (ringside/cluster). `ringside.run` knows no more of it than this.
    """

    actors: int = 0
    module: str = ""
    """Module with `main(child_spec)`, which their processes run, and `GatewayBalancer(memory, note)`, which divides the
    lanes before any process starts; its `measure` moves them later, as that of `ringside.run.lane_balance.Balancer`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """For the module."""


@dataclass(frozen=True)
class Plan:
    """Input of every process: a resolved, validated configuration and the size of the action set."""

    config: ResolvedConfig
    actions: int
    elsewhere: Elsewhere = Elsewhere()
    env_repeats: bool = True
    """False if the user's env is known not to repeat itself after `reset(seed=...)`."""
    keeps_every_boundary: bool = False
    """True in a group on another node: its lanes keep a snapshot at every boundary, since the run may end there."""
    own_torso: OwnTorso | None = None
    """Findings about a network of the user; None: it is built in."""
    warnings: tuple[str, ...] = ()
    """Sentences of the checks before the start that refuse nothing."""
    method: MethodDeclaration = field(init=False)
    """The declaration of the configured method."""
    run_schedule: RunSchedule = field(init=False)
    """Derived sizes."""
    network: Network = field(init=False)
    """Description of the network."""
    parameters: ParameterSpec = field(init=False)
    """Names and shapes of the network's parameters."""
    actors: int = field(init=False)
    """Number of processes that play: actors, those of `elsewhere` included, or those of the workers."""
    player: Role = field(init=False)
    """Role of the processes that play."""
    processes: ProcessTable = field(init=False)
    """The processes of the run and their positions on the board."""

    def __post_init__(self) -> None:
        """Derive the other fields, once. Raises `ConfigError` when no method of that name is registered."""
        config, method = self.config, method_declaration(self.config.algorithm.method)
        run_schedule, network = make_run_schedule(config, method), network_of(config, self.actions, self.own_torso)
        if self.keeps_every_boundary:
            run_schedule = replace(run_schedule, snapshot_rounds=1)
        actors = config.machine.actors + self.elsewhere.actors
        player = Role.WORKER if run_schedule.workers else Role.ACTOR
        self.__dict__.update(
            method=method,
            run_schedule=run_schedule,
            network=network,
            parameters=parameters_of(network),
            actors=actors,
            player=player,
            processes=ProcessTable.make({player: actors, Role.MEMBER: config.machine.learner_processes - 1}),
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Register what a plug-in registered where the plan was made, so that a child process need not import it."""
        self.__dict__.update(state)
        add_method(self.method)

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles that the run has, those that play last."""
        members = (Role.MEMBER,) if self.config.machine.learner_processes > 1 else ()
        learners = () if self.run_schedule.workers else (Role.LEARNER, *members, Role.INFERENCE)
        evaluators = (Role.INFERENCE, Role.EVALUATOR) if self.evaluation_episodes else ()
        return tuple(dict.fromkeys((Role.SCRIBE, *learners, *evaluators, self.player)))

    @property
    def committer(self) -> int:
        """Position of the process that commits: the learner, or the first of workers."""
        return self.processes.index_of(Role.WORKER if self.run_schedule.workers else Role.LEARNER)

    @property
    def less_memory(self) -> str:
        """The advice with which a run needs less memory, as half a sentence."""
        if self.config.run.resume is not None:  # which refuses the others
            return "fewer --actors need less"
        if self.run_schedule.workers:
            smaller = self.config.learn.local_replay > 0
            return "a smaller --local-replay needs less" if smaller else "fewer --workers need less"
        return "fewer --round-steps need less" if self.method.on_policy else "a smaller --replay-size needs less"

    @property
    def evaluation_episodes(self) -> int:
        """Episodes of one evaluation beside training; 0: there is none."""
        return self.config.evaluate.eval_episodes if self.config.evaluate.eval_every_steps else 0

    def first_owners(self) -> list[int]:
        """The first owner of each lane; later `Board.lane_owner` holds it.

        Workers are contiguous: a process answers those of a batch in one pass.
        """
        if self.run_schedule.workers:
            return divide(self.run_schedule.lanes, range(self.actors))
        return deal(self.run_schedule.lanes, range(self.config.machine.actors))

    @property
    def cell_lanes(self) -> int:
        """Lanes of a cell, which must be played in one place: those of a batch that is answered as a whole."""
        return 1 if self.partial_batches else self.batch_lanes

    @property
    def batch_lanes(self) -> int:
        """Lanes that inference answers in one pass."""
        return self.config.machine.inference_batch // self.config.play.lane_envs

    @property
    def partial_batches(self) -> bool:
        """True if inference answers the lanes of a batch that have asked, as on a GPU; else it waits for all."""
        return self.config.machine.acts_on != "cpu"

    def cell_of(self, lane: int) -> slice:
        """The cell of a lane: the lanes that must all have asked before inference answers one of them."""
        first = lane - lane % self.cell_lanes
        return slice(first, first + self.cell_lanes)

    @cached_property
    def layout(self) -> Layout:
        """The shared region's table of fields; single numbers first, the rings last."""
        run_schedule, parameters, packed = self.run_schedule, self.parameters.count, packed_places(self.network)[1]
        envs, units = self.config.evaluate.eval_envs, self.network.recurrent
        sizes = {
            "parameters": packed,
            **Board.sizes(run_schedule, len(self.processes), self.elsewhere.actors),
            **Mailbox.sizes(run_schedule, self.actions),
            **Evaluations.sizes(parameters, envs, self.evaluation_episodes, run_schedule.frames, units),
            **LaneSnapshots.sizes(run_schedule),
            **SharedParameters.sizes(run_schedule, self.actors, packed),
            "gateways": self.elsewhere.actors,
        }
        return Layout(
            [
                *Board.fields(sizes),
                *Mailbox.fields(sizes),
                *Mailbox.declared_fields(run_schedule),
                *PublishedWeights.fields(sizes),
                *Evaluations.fields(sizes),
                *LaneSnapshots.fields(sizes),
                *state_fields(run_schedule, parameters).values(),
                *LearnerSnapshots.fields(sizes),
                *(SharedParameters.fields(sizes) if run_schedule.workers else []),
                *(Gateways.fields(sizes) if self.elsewhere.actors else []),
                *ring_fields(run_schedule).values(),
            ]
        )


def deal(lanes: int, actors: Sequence[int]) -> list[int]:
    """Owner of each lane, in turn: every actor has lanes of every batch, and plays one while another is answered."""
    return [actors[lane % len(actors)] for lane in range(lanes)]


def divide(items: int, owners: Sequence[int]) -> list[int]:
    """Owner of each item: contiguous, as even as can be."""
    bounds = pairwise(place * items // len(owners) for place in range(len(owners) + 1))
    return [owner for owner, (first, last) in zip(owners, bounds, strict=True) for _ in range(first, last)]
