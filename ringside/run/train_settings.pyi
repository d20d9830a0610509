"""Settings of `ringside.train` for editors and type checkers; tests/ringside/run compares them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypedDict

class TrainSettings(TypedDict, total=False):
    """Settings by the flat names of the flags. Each has the default of the preset."""

    game: str
    env: str | None
    protocol: Literal["nature", "machado", "envpool", "dopamine", "dqn_zoo", "atari100k"]
    frame_size: int
    frame_color: Literal["gray", "rgb"]
    frame_stack: int
    envs: int
    lane_envs: int
    workers: int
    total_steps: int
    schedule: Literal["concurrent", "alternate", "free", "ordered", "async"]
    round_steps: int
    t_max: int
    local_replay: int
    train_every: int
    batch_size: int
    replay_size: int
    learning_starts: int
    discount: float
    clip_rewards: bool
    optimizer: Literal["rmsprop", "rms", "adam", "radam"]
    learning_rate: float
    learning_rate_end: float | None
    anneal_steps: int
    optimizer_decay: float
    optimizer_epsilon: float
    network: str | type
    initial: Literal["auto", "torch", "orthogonal"]
    publish_every_updates: int
    snapshot_every_steps: int | None
    method: str
    double: bool
    dueling: bool
    noisy: bool
    noisy_std: float
    n_step: int
    prioritized: bool
    priority_exponent: float
    importance_start: float
    importance_end: float
    importance_steps: int
    augment: bool
    munchausen: bool
    munchausen_alpha: float
    munchausen_temperature: float
    munchausen_floor: float
    value_rescaling: bool
    clip_gradient: float | None
    width: int
    pooling: bool
    spectral_norm: bool
    normalize: Literal["none", "last", "all"]
    recurrent: bool
    epsilon_start: float
    epsilon_end: float
    epsilon_steps: int
    epsilon_by_worker: bool
    epsilon_ladder: float
    eval_every_steps: int
    eval_episodes: int | None
    eval_epsilon: float | None
    eval_max_frames: int | None
    eval_actions: Literal["auto", "sample", "greedy"]
    eval_envs: int
    eval_video: bool
    actors: int | None
    device: str
    precision: Literal["auto", "fp32", "tf32", "bf16"]
    acting_device: str | None
    acting_precision: Literal["auto", "fp32", "tf32", "bf16"] | None
    learner_parts: int | None
    learner_members: int | None
    learner_ranks: int
    inference_threads: int | None
    inference_batch: int | None
    deterministic: Literal["on", "off"]
    replay_on: Literal["auto", "device", "host"]
    graph_updates: int
    pin: Literal["auto", "off"]
    balance: Literal["auto", "off"]
    seed: int
    run_dir: str | Path | None
    resume: str | Path | None
    init_from: str | Path | None
    stop_at: float | None
    checkpoint_every_minutes: float
    checkpoint_replay: bool
    require_exact: bool
    plugin: str | None
    plain: bool
    track: Literal["off", "wandb"]
    wandb_entity: str | None
    wandb_group: str | None
    wandb_tags: str | None
    epochs: int
    trace: float
    value_weight: float
    entropy_weight: float
    entropy_weight_end: float | None
    rho_max: float
    return_steps: int
    atoms: int
    v_min: float
    v_max: float
    c51_priority: Literal["divergence", "cross-entropy"]
    iqn_samples: int
    iqn_policy_samples: int
    clip_ratio: float
    clip_ratio_end: float | None
    clip_value: bool
    normalize_advantage: bool
    c_max: float
    env_kwargs: str | Mapping[str, bool | int | float | str | None] | None
