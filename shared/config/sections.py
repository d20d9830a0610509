"""The settings of a run in sections, with their types, ranges and defaults.

Flags count *steps*: one agent action, `FRAME_SKIP` emulator frames. The docstrings of the fields are the text of
`--help`; the range of a number stands in its type.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from shared.config.method_declaration import MethodSettings, Need, method_declaration
from shared.frame_shape import BLOCK, FRAME_SIDE, MOST_SIDE, MOST_STACK, STACK, FrameColor, FrameShape

FRAME_SKIP = 4
"""Emulator frames of one step of a game."""
ProtocolName = Literal["nature", "machado", "envpool", "dopamine", "dqn_zoo", "atari100k"]
Schedule = Literal["concurrent", "alternate", "free", "ordered", "async"]
WORKER_SCHEDULES: tuple[Schedule, ...] = ("ordered", "async")
"""Schedules of workers, which play, compute gradients and apply them to shared parameters."""
INEXACT_SCHEDULES: tuple[Schedule, ...] = ("free", "async")
"""Schedules whose weights depend on which process is the first."""
EvalActions = Literal["sample", "greedy"]
Precision = Literal["auto", "fp32", "tf32", "bf16"]
Initial = Literal["auto", "torch", "orthogonal"]
Normalize = Literal["none", "last", "all"]


class Effect(Enum):
    """Effect of a setting on the numbers of the steps already planned, in the type of the setting.

    A setting without one decides what is played or learned.
    """

    NONE = auto()
    """A resumed run may have another value."""
    LAST_BITS = auto()
    """A run that resumes with another value continues, but is no longer exact."""


Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
MOST_EVAL_FRAMES = 4_000_000
"""Most frames of an episode of an evaluation, which has 2^20 ticks for its draws (actors/evaluation.py)."""
Frames = Annotated[int, Meta(ge=1, le=MOST_EVAL_FRAMES)]
MOST_GRAPH_UPDATES = 8
"""Most updates that a GPU makes of one launch."""
Threads = Annotated[int, Meta(ge=1, le=1_024)]
PARTS = (1, 2, 4, 8, 16)
"""Possible numbers of parts of an update."""
Parts = Annotated[int, Meta(ge=1, le=PARTS[-1])]
MOST_WIDTH = 64
MOST_NOISE = 100
OF_METHOD = MethodSettings()
"""Placeholder for the default settings of the configured method."""
OWN_SETTINGS = "settings"
"""Name of the method's own settings in `Algorithm`; no flag has it."""


@dataclass(frozen=True)
class Play:
    """The game or environment, its rules, and the emulators."""

    game: str = "breakout"
    """Atari game, as in ale-py: breakout, space_invaders or SpaceInvaders."""
    env: str | None = None
    """Instead of a game: a Gymnasium id with image observations, module:Id-v0 or module:factory (docs/protocols.md).
    Pass it to --resume, too."""
    protocol: ProtocolName = "nature"
    """Rules of preprocessing and episodes (docs/protocols.md)."""
    frame_size: Annotated[int, Meta(ge=BLOCK, le=MOST_SIDE)] = FRAME_SIDE
    """Pixels along a side of a frame, as the network sees it: a multiple of 4; with --game 160 at most."""
    frame_color: FrameColor = "gray"
    """rgb: frames in color, for an --env whose observations have colors."""
    frame_stack: Annotated[int, Meta(ge=1, le=MOST_STACK)] = STACK
    """Newest frames that the network sees together."""
    envs: Count = 96
    """Emulators played together; part of the experiment, unlike --actors."""
    lane_envs: Count = 2
    """Emulators that step together as one request (a lane)."""
    workers: Amount = 0
    """With --schedule ordered and async: actor-learners, each with a lane of --lane-envs emulators and gradients of its
    own; part of the experiment. They run on --actors processes."""

    @property
    def played(self) -> str:
        """Name of the game, or of the env where one is set."""
        return self.env or self.game

    @property
    def emulators(self) -> int:
        """Emulators played together: those of all workers, or --envs."""
        return self.workers * self.lane_envs or self.envs

    @property
    def frames(self) -> FrameShape:
        """Shape of what the network sees."""
        return FrameShape(self.frame_size, self.frame_stack, 1 if self.frame_color == "gray" else 3)

    @property
    def frames_per_step(self) -> int | None:
        """Emulator frames of one step; None: unknown, because the environment is not a game."""
        return FRAME_SKIP if self.env is None else None


@dataclass(frozen=True)
class Learn:
    """Learning of the network. Defaults: Mnih et al. 2015, Extended Data Table 1."""

    total_steps: Annotated[Count, Effect.NONE] = 50_000_000
    """Steps to play, rounded up to whole rounds."""
    schedule: Schedule = "concurrent"
    """concurrent: play and learn in parallel, exactly; alternate: in turns, as in 2015; free: without a barrier;
    ordered: rounds of gradients by --workers, exactly; async: gradients without a lock, as in A3C."""
    round_steps: Count = 10_000
    """Steps between target updates, or in a rollout over all envs; with concurrent and free, one round."""
    t_max: Count = 5
    """With --workers: steps that each emulator of a worker makes for a gradient."""
    local_replay: Annotated[Amount, Need.REPLAY] = 0
    """With --workers: newest steps of a worker from which it samples --batch-size transitions for a gradient."""
    train_every: Annotated[Count, Need.REPLAY] = 4
    """Steps played for each update."""
    batch_size: Count = 32
    """Transitions in one update."""
    replay_size: Annotated[Count, Need.REPLAY] = 1_000_000
    """Number of most recent steps from which updates sample."""
    learning_starts: Annotated[Count, Need.REPLAY] = 50_000
    """Steps before learning may begin; it begins with the next whole round, and the run prints that step."""
    discount: Share = 0.99
    """Discount factor gamma."""
    clip_rewards: bool = True
    """Learn from the sign of each reward (Mnih et al. 2015, Methods) instead of its amount."""
    optimizer: Literal["rmsprop", "rms", "adam", "radam"] = "rmsprop"
    """rmsprop: centered, as in 2015; rms: not centered, as in A3C; adam: Kingma & Ba 2015; radam: Liu et al. 2020."""
    learning_rate: Positive = 2.5e-4
    """Step size of the optimizer."""
    learning_rate_end: NotNegative | None = None
    """Learning rate after --anneal-steps, reached in a straight line; default: the learning rate is constant."""
    anneal_steps: Amount = 0
    """Steps after which the learning rate and other annealed settings are at their end. They belong to what is learned:
    --total-steps, which only says when the run stops, does not change them."""
    optimizer_decay: Annotated[float, Meta(ge=0, lt=1)] = 0.95
    """Decay of RMSProp's moments, or beta2 of adam and radam."""
    optimizer_epsilon: Positive = 0.01
    """Smoothing term: under the root for rmsprop and rms, beside it for adam and radam."""
    network: str = "nature"
    """nature: Mnih et al. 2015; a3c: a smaller one, Mnih et al. 2013 and 2016; impala: residual, Espeholt et al. 2018;
    der: van Hasselt et al. 2019; small: a light network for 84x84 toy games; module:Class: a module of PyTorch of your
    own (docs/extending.md), which --resume needs again."""
    initial: Initial = "auto"
    """Initial weights. torch: uniform, as PyTorch's layers begin; orthogonal: Saxe et al. 2014; auto: orthogonal for
    methods with a policy, else torch."""
    publish_every_updates: Annotated[Count, Need.REPLAY] = 250
    """With --schedule free: updates between two publications of the weights."""
    snapshot_every_steps: Annotated[Count | None, Effect.NONE] = None
    """Steps between two snapshots, rounded down to whole rounds; a restart repeats at most so many. Default: one round;
    10_000 with --schedule alternate; 20_000 with an on-policy method or --workers."""


@dataclass(frozen=True)
class Algorithm:
    """Method, and parts that came after the DQN of 2015."""

    method: str = "dqn"
    """dqn, c51, qr-dqn, iqn: action values from a replay buffer; a2c, a3c, ppo, vtrace: a policy; pqn: action values
    without a replay buffer; n-step-q, one-step-q, sarsa: with --workers. --method ppo --help all lists the settings of
    ppo."""
    settings: MethodSettings = OF_METHOD
    """Settings of the method itself; by default those of its declaration."""
    double: Annotated[bool, Need.TD_TARGETS] = False
    """The online network chooses the action whose target value is learned (van Hasselt et al. 2016)."""
    dueling: Annotated[bool, Need.ACTION_VALUES] = False
    """A stream for the state's value and one for the actions' advantages (Wang et al. 2016)."""
    noisy: Annotated[bool, Need.REPLAY] = False
    """Explore by factorized noise on the weights of the linear layers (Fortunato et al. 2018)."""
    noisy_std: Annotated[float, Meta(gt=0, le=MOST_NOISE), Need.REPLAY] = 0.5
    """With --noisy: sigma_0, the initial scale of the noise; Hessel et al. 2018: 0.5; dqn_zoo and Dopamine: 0.1."""
    n_step: Annotated[Count, Need.REPLAY] = 1
    """Number of rewards in a return before the target network's value is added."""
    prioritized: Annotated[bool, Need.REPLAY] = False
    """Sample in proportion to the last error (Schaul et al. 2016)."""
    priority_exponent: Annotated[Share, Need.REPLAY] = 0.5
    """With --prioritized: the power of the error (alpha or omega)."""
    importance_start: Annotated[Share, Need.REPLAY] = 0.4
    """With --prioritized: the exponent of importance weights at first (beta)."""
    importance_end: Annotated[Share, Need.REPLAY] = 1.0
    """With --prioritized: the exponent of importance weights after --importance-steps."""
    importance_steps: Annotated[Count, Need.REPLAY] = 50_000_000
    """With --prioritized: steps over which beta grows linearly from --importance-start to --importance-end. It does not
    depend on --total-steps."""
    augment: Annotated[bool, Need.REPLAY] = False
    """Learn from stacks that are shifted at random by up to 4 pixels and brighter or darker by up to a tenth (Yarats et
    al. 2021, as in Dopamine)."""
    munchausen: Annotated[bool, Need.TD_TARGETS] = False
    """Add the policy's scaled logarithm to the reward (Vieillard et al. 2020)."""
    munchausen_alpha: Annotated[Share, Need.TD_TARGETS] = 0.9
    """With --munchausen: factor of the clipped logarithm (alpha)."""
    munchausen_temperature: Annotated[Positive, Need.TD_TARGETS] = 0.03
    """With --munchausen: temperature of the policy."""
    munchausen_floor: Annotated[float, Meta(lt=0), Need.TD_TARGETS] = -1.0
    """With --munchausen: lower bound of the logarithm times the temperature (l0)."""
    value_rescaling: Annotated[bool, Need.REPLAY] = False
    """Learn values on a scale like that of their square root (Pohlen et al. 2018; R2D2)."""
    clip_gradient: Positive | None = None
    """Greatest norm of the gradient of the batch's mean; default: unbounded."""
    width: Annotated[int, Meta(ge=1, le=MOST_WIDTH)] = 1
    """With --network impala: factor of its numbers of channels."""
    pooling: bool = False
    """With --network impala: features pooled to 6x6 by their maximum (BTR)."""
    spectral_norm: bool = False
    """With --network impala: residual weights divided by their largest singular value (BTR)."""
    normalize: Normalize = "none"
    """Layer normalization (Ba et al. 2016). last: of the hidden units; all: also of the channels behind each
    convolution, as in PQN, except with --network impala."""
    recurrent: Annotated[bool, Need.POLICY] = False
    """An LSTM behind the hidden layer (Mnih et al. 2016; Espeholt et al. 2018). A minibatch is then the whole round of
    some envs: --batch-size must be a multiple of the ticks of a round. With --workers, gradients go back --t-max ticks
    at most."""

    def __post_init__(self) -> None:
        """Take the method's default settings unless some were given."""
        if self.settings is OF_METHOD:
            object.__setattr__(self, "settings", method_declaration(self.method).settings())

    def importance_at(self, steps: int) -> float:
        """The exponent of importance weights after so many steps of the run."""
        done = min(1.0, steps / self.importance_steps)
        return self.importance_start + done * (self.importance_end - self.importance_start)


@dataclass(frozen=True)
class Explore:
    """Epsilon-greedy exploration, by the clock of steps."""

    epsilon_start: Annotated[Share, Need.EPSILON] = 1.0
    """Chance of a random action until learning starts."""
    epsilon_end: Annotated[Share, Need.EPSILON] = 0.1
    """Chance of a random action in the end."""
    epsilon_steps: Annotated[Amount, Need.EPSILON] = 1_000_000
    """Steps from the first to the last epsilon, counted from --learning-starts."""
    epsilon_by_worker: Annotated[bool, Need.EPSILON] = False
    """With --workers: each worker has its own last epsilon instead of --epsilon-end: 0.1, 0.01 or 0.5, drawn with the
    chances 0.4, 0.3 and 0.3 (Mnih et al. 2016)."""
    epsilon_ladder: Annotated[NotNegative, Need.EPSILON] = 0.0
    """Env i of N plays with epsilon^(1 + ladder * i/(N - 1)); Ape-X has 7 with a constant epsilon of 0.4."""


@dataclass(frozen=True)
class Evaluate:
    """Evaluation beside training."""

    eval_every_steps: Annotated[Amount, Effect.NONE] = 0
    """Steps between two evaluations; 0: none."""
    eval_episodes: Annotated[Count | None, Effect.NONE] = None
    """Episodes of one evaluation; default: as the protocol says."""
    eval_epsilon: Share | None = None
    """Chance of a random action in evaluation; default: as the preset, or else the protocol, says; 0 with a policy."""
    eval_max_frames: Frames | None = None
    """Emulator frames after which an evaluation cuts an episode, no-ops not counted; default: as for --eval-epsilon."""
    eval_actions: Literal["auto", EvalActions] = "auto"
    """sample: actions drawn from the policy; greedy: the best ones; auto: sample with a method that learns a policy, as
    it plays in training, and greedy with action values."""
    eval_envs: Count = 8
    """Emulators of the evaluation actor."""
    eval_video: Annotated[bool, Effect.NONE] = False
    """Write a video of the first episode of each evaluation to RUN/videos."""


@dataclass(frozen=True)
class Machine:
    """Processes, cores and devices."""

    actors: Annotated[Count | None, Effect.NONE] = None
    """Actor processes; default: as many as the usable cores allow."""
    device: Annotated[str, Effect.LAST_BITS] = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: Annotated[Precision, Effect.LAST_BITS] = "auto"
    """Arithmetic of the networks; auto: bf16 on a CPU with amx_bf16 or avx512_bf16, tf32 on CUDA, else fp32."""
    acting_device: Annotated[str | None, Effect.LAST_BITS] = None
    """Device of the inference server; default: that of the learner. `cpu` has nodes of a cluster play for a GPU."""
    acting_precision: Annotated[Precision | None, Effect.LAST_BITS] = None
    """Arithmetic of the inference server; default: on another device auto, else that of the learner."""
    learner_parts: Annotated[Parts | None, Effect.LAST_BITS] = None
    """Parts of the work of an update, 1, 2, 4, 8 or 16, which are added in order. Recorded, because the number changes
    the last bits; default: 4 on every CPU, 1 on a GPU, with --learner-ranks the first from 4 on that they divide."""
    learner_members: Annotated[Parts | None, Effect.NONE] = None
    """Processes of a learner on a CPU, which share --learner-parts evenly. The number changes no bit; default: as many
    as the usable cores allow."""
    learner_ranks: Annotated[Parts, Effect.NONE] = 1
    """Processes of a learner on GPUs, one for each from --device on, which share --learner-parts evenly. The number
    changes no bit."""
    inference_threads: Annotated[Threads | None, Effect.LAST_BITS] = None
    """CPU threads of the inference server; recorded, because the number changes the last bits."""
    inference_batch: Annotated[Count | None, Effect.LAST_BITS] = None
    """Emulators answered in one forward pass; default: at most 32 and half of --envs on a CPU, all of them on a GPU."""
    deterministic: Annotated[Literal["on", "off"], Effect.LAST_BITS] = "on"
    """on: kernels that give the same bits every time; off: the fastest kernels, which gives up exactness."""
    replay_on: Annotated[Literal["auto", "device", "host"], Need.REPLAY, Effect.NONE] = "auto"
    """Memory that frames are sampled from: a copy on the GPU (auto: if it fits into free memory) or shared memory."""
    graph_updates: Annotated[int, Meta(ge=0, le=MOST_GRAPH_UPDATES), Effect.NONE] = MOST_GRAPH_UPDATES
    """On CUDA: most updates in one launch; with fewer, inference waits less; 0: no graphs."""
    pin: Annotated[Literal["auto", "off"], Effect.NONE] = "auto"
    """auto: bind each actor and member to a core if there are enough and no quota; off: leave it to the kernel."""
    balance: Annotated[Literal["auto", "off"], Effect.NONE] = "auto"
    """auto: at the end of a round, slow actors give lanes to faster ones; off: lanes stay where they are."""

    @property
    def is_deterministic(self) -> bool:
        """True if kernels give the same bits every time."""
        return self.deterministic == "on"

    @property
    def learner_processes(self) -> int:
        """Processes of the learner: members on a CPU, ranks on GPUs."""
        return self.learner_ranks if self.device != "cpu" else self.learner_members or 1

    @property
    def acts_on(self) -> str:
        """Device of the inference server."""
        return self.acting_device or self.device

    @property
    def acts_in(self) -> Precision:
        """Arithmetic of the inference server."""
        return self.acting_precision or self.precision


@dataclass(frozen=True)
class Run:
    """Files, display, beginnings and ends."""

    seed: Amount = 1
    """Seed of everything random."""
    run_dir: Annotated[Path | None, Effect.NONE] = None
    """Files of the run; default: runs/GAME-DATE-TIME-CODE."""
    resume: Annotated[Path | None, Effect.NONE] = None
    """Continue this run directory or checkpoint exactly, with its settings; docs/reliability.md says
    which may change."""
    init_from: Annotated[Path | None, Effect.NONE] = None
    """Begin a new run with the weights of this run, checkpoint, file or agent of the zoo."""
    stop_at: Annotated[float | None, Effect.NONE] = None
    """Stop once the mean return reaches this score: of an evaluation with --eval-every-steps, else of the last 100
    training episodes."""
    checkpoint_every_minutes: Annotated[NotNegative, Effect.NONE] = 10.0
    """Minutes between two checkpoints; the end of a run always writes one."""
    checkpoint_replay: Annotated[bool, Effect.NONE] = True
    """Keep the replay, or the last round of an on-policy method, in checkpoints, which makes --resume exact."""
    require_exact: Annotated[bool, Effect.NONE] = False
    """Refuse a run whose weights another run could not repeat, and end one of which that turns out."""
    plugin: Annotated[str | None, Effect.NONE] = None
    """Python module that registers methods or presets (docs/extending.md); pass it also to --resume."""
    plain: Annotated[bool, Effect.NONE] = False
    """Print a line every few seconds instead of the live display."""
    track: Annotated[Literal["off", "wandb"], Effect.NONE] = "off"
    """wandb: send the records also to Weights & Biases (docs/watching.md)."""
    wandb_entity: Annotated[str | None, Effect.NONE] = None
    """With --track wandb: user or team that the run belongs to; default: that of the login."""
    wandb_group: Annotated[str | None, Effect.NONE] = None
    """With --track wandb: group of runs, such as a suite."""
    wandb_tags: Annotated[str | None, Effect.NONE] = None
    """With --track wandb: tags, separated by commas."""
