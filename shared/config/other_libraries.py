"""Names of settings in other libraries, for those who come from them: each is answered with the name here.

docs/coming-from.md has the same names in tables, with what differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container

_THERE = {
    "{optimizer_epsilon}": "adam_eps rms_prop_eps",
    "{method}, or {preset} for published settings": "algo algorithm",
    "{learning_rate_end} with {anneal_steps}": "anneal_lr",
    "{replay_size}": "buffer_size max_capacity memory_size replay_capacity",
    "{clip_ratio}": "clip_coef clip_range",
    "{clip_value}": "clip_range_vf clip_vloss",
    "{device} cuda": "cuda gpu",
    "{epsilon_end}": "end_e epsilon_train exploration_final_eps final_epsilon",
    "{entropy_weight}": "ent_coef entropy_coef",
    "{env_kwargs}": "env_args env_config",
    "{frame_stack}": "env_framestack frames_stack framestack n_stack stack_size",
    "{game} for an Atari game, or {env} for an id of Gymnasium": "env_id env_name env_names",
    "{epsilon_start} and {epsilon_end}": "epsilon",
    "{epsilon_steps}, a number of steps": "epsilon_decay exploration_fraction",
    "{epsilon_steps}": "epsilon_decay_period",
    "{eval_epsilon}": "epsilon_eval",
    "{eval_every_steps}": "eval_freq eval_frequency eval_interval",
    "{eval_episodes}, the episodes of an evaluation": "evaluation_steps",
    "{run_dir}": "exp_name experiment log_dir logdir output_dir",
    "{epsilon_start}": "exploration_initial_eps start_e",
    "{protocol}, which sets it": "full_action_space max_steps_per_episode repeat_action_probability "
    "terminal_on_life_loss",
    "{trace}": "gae_lambda q_lambda",
    "{discount}": "gamma",
    "{train_every}, steps for one update": "gradient_steps",
    "{frame_color} gray, which is the default": "grayscale",
    "{round_steps}, the steps of all envs together": "horizon num_steps rollout",
    "{learning_rate}": "lr policy_lr",
    "{clip_gradient}": "max_grad_norm",
    "{total_steps}": "max_steps n_timesteps num_env_steps num_timesteps timesteps total_timesteps",
    "{learning_starts}": "min_replay_history warmup_steps",
    "{envs}; {actors} is the number of processes": "n_envs num_envs",
    "{n_step} for returns of several steps, or {round_steps} for the steps of a rollout of all envs": "n_steps",
    "{normalize_advantage}": "norm_adv",
    "{total_steps}, a fourth of the frames": "num_frames total_frames",
    "{batch_size}, the transitions of one update": "num_minibatches",
    "{iqn_policy_samples}": "num_quantile_samples",
    "{iqn_samples}": "num_tau_prime_samples num_tau_samples",
    "{actors}; {envs} is the number of emulators": "num_workers",
    "{prioritized}": "per prioritized_replay",
    "{checkpoint_every_minutes}": "save_freq save_interval",
    "{protocol} dopamine, or machado for all 18 actions": "sticky_actions",
    "{round_steps}": "target_network_frequency target_update target_update_freq target_update_interval "
    "target_update_period",
    "{deterministic} on": "torch_deterministic",
    "{total_steps}, a fourth of these frames": "train_for_env_steps",
    "{train_every}": "train_freq train_frequency update_period",
    "{n_step}": "update_horizon",
    "{optimizer} rms": "use_rms_prop",
    "{value_weight}": "vf_coef",
}
"""Names elsewhere by the setting here, in words that name it in braces. Names that resemble the setting are left out:
`capture_video` is answered with `eval_video` as a misspelled name is."""
ELSEWHERE = {name: words for words, names in _THERE.items() for name in names.split()}
"""Setting here by its name elsewhere."""
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
