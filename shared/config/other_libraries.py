"""Names of settings in other libraries, for those who come from them: each is answered with the name here.

docs/coming-from.md has the same names in tables, with what differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container

ELSEWHERE = {
    "adam_eps": "{optimizer_epsilon}",
    "algo": "{method}, or {preset} for published settings",
    "algorithm": "{method}, or {preset} for published settings",
    "anneal_lr": "{learning_rate_end} with {anneal_steps}",
    "buffer_size": "{replay_size}",
    "capture_video": "{eval_video}",
    "clip_coef": "{clip_ratio}",
    "clip_range": "{clip_ratio}",
    "clip_range_vf": "{clip_value}",
    "clip_reward": "{clip_rewards}",
    "clip_vloss": "{clip_value}",
    "cuda": "{device} cuda",
    "double_dqn": "{double}",
    "double_q": "{double}",
    "end_e": "{epsilon_end}",
    "ent_coef": "{entropy_weight}",
    "entropy_coef": "{entropy_weight}",
    "env_args": "{env_kwargs}",
    "env_config": "{env_kwargs}",
    "env_framestack": "{frame_stack}",
    "env_id": "{game} for an Atari game, or {env} for an id of Gymnasium",
    "env_name": "{game} for an Atari game, or {env} for an id of Gymnasium",
    "env_names": "{game} for an Atari game, or {env} for an id of Gymnasium",
    "epsilon": "{epsilon_start} and {epsilon_end}",
    "epsilon_decay": "{epsilon_steps}, a number of steps",
    "epsilon_decay_period": "{epsilon_steps}",
    "epsilon_eval": "{eval_epsilon}",
    "epsilon_train": "{epsilon_end}",
    "eval_freq": "{eval_every_steps}",
    "eval_frequency": "{eval_every_steps}",
    "eval_interval": "{eval_every_steps}",
    "evaluation_steps": "{eval_episodes}, the episodes of an evaluation",
    "exp_name": "{run_dir}",
    "experiment": "{run_dir}",
    "exploration_final_eps": "{epsilon_end}",
    "exploration_fraction": "{epsilon_steps}, a number of steps",
    "exploration_initial_eps": "{epsilon_start}",
    "final_epsilon": "{epsilon_end}",
    "frames_stack": "{frame_stack}",
    "framestack": "{frame_stack}",
    "full_action_space": "{protocol}, which sets it",
    "gae_lambda": "{trace}",
    "game_name": "{game}",
    "gamma": "{discount}",
    "gpu": "{device} cuda",
    "gradient_steps": "{train_every}, steps for one update",
    "grayscale": "{frame_color} gray, which is the default",
    "horizon": "{round_steps}, the steps of all envs together",
    "log_dir": "{run_dir}",
    "logdir": "{run_dir}",
    "lr": "{learning_rate}",
    "max_capacity": "{replay_size}",
    "max_grad_norm": "{clip_gradient}",
    "max_steps": "{total_steps}",
    "max_steps_per_episode": "{protocol}, which sets it",
    "memory_size": "{replay_size}",
    "min_replay_history": "{learning_starts}",
    "mini_batch_size": "{batch_size}",
    "minibatch_size": "{batch_size}",
    "n_envs": "{envs}; {actors} is the number of processes",
    "n_epochs": "{epochs}",
    "n_eval_episodes": "{eval_episodes}",
    "n_stack": "{frame_stack}",
    "n_steps": "{n_step} for returns of several steps, or {round_steps} for the steps of a rollout of all envs",
    "n_timesteps": "{total_steps}",
    "norm_adv": "{normalize_advantage}",
    "num_actors": "{actors}",
    "num_atoms": "{atoms}",
    "num_env_steps": "{total_steps}",
    "num_envs": "{envs}; {actors} is the number of processes",
    "num_epochs": "{epochs}",
    "num_eval_episodes": "{eval_episodes}",
    "num_frames": "{total_steps}, a fourth of the frames",
    "num_minibatches": "{batch_size}, the transitions of one update",
    "num_quantile_samples": "{iqn_policy_samples}",
    "num_steps": "{round_steps}, the steps of all envs together",
    "num_tau_prime_samples": "{iqn_samples}",
    "num_tau_samples": "{iqn_samples}",
    "num_timesteps": "{total_steps}",
    "num_workers": "{actors}; {envs} is the number of emulators",
    "output_dir": "{run_dir}",
    "per": "{prioritized}",
    "policy_lr": "{learning_rate}",
    "prioritized_replay": "{prioritized}",
    "q_lambda": "{trace}",
    "repeat_action_probability": "{protocol}, which sets it",
    "replay_capacity": "{replay_size}",
    "rms_prop_eps": "{optimizer_epsilon}",
    "rollout": "{round_steps}, the steps of all envs together",
    "save_freq": "{checkpoint_every_minutes}",
    "save_interval": "{checkpoint_every_minutes}",
    "screen_size": "{frame_size}",
    "stack_size": "{frame_stack}",
    "start_e": "{epsilon_start}",
    "sticky_actions": "{protocol} dopamine, or machado for all 18 actions",
    "target_network_frequency": "{round_steps}",
    "target_update": "{round_steps}",
    "target_update_freq": "{round_steps}",
    "target_update_interval": "{round_steps}",
    "target_update_period": "{round_steps}",
    "terminal_on_life_loss": "{protocol}, which sets it",
    "timesteps": "{total_steps}",
    "torch_deterministic": "{deterministic} on",
    "total_frames": "{total_steps}, a fourth of the frames",
    "total_timesteps": "{total_steps}",
    "train_for_env_steps": "{total_steps}, a fourth of these frames",
    "train_freq": "{train_every}",
    "train_frequency": "{train_every}",
    "update_epochs": "{epochs}",
    "update_horizon": "{n_step}",
    "update_period": "{train_every}",
    "use_rms_prop": "{optimizer} rms",
    "vf_coef": "{value_weight}",
    "vmax": "{v_max}",
    "vmin": "{v_min}",
    "warmup_steps": "{learning_starts}",
}
"""Setting here by its name elsewhere, in words that name it in braces."""


_SETTING = re.compile(r"\{(\w+)\}")


def name_here(name: str, known: Container[str], spell: Callable[[str], str]) -> str | None:
    """Words with the setting that another library calls `name`; None: none does, or that setting is not known here.

    Args:
        name: with underscores or hyphens.
        known: names of the settings that can be given.
        spell: returns a setting as it is written: as a flag, say.
    """
    words = ELSEWHERE.get(name.replace("-", "_").lower())
    if words is None or not any(setting in known for setting in _SETTING.findall(words)):
        return None
    return _SETTING.sub(lambda found: spell(found[1]), words)
