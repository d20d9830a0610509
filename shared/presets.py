"""Named starting points for the configuration. `--preset NAME` chooses one; single flags override it."""

from __future__ import annotations

from shared.config import Config, Explore, Learn, Play, PresetName

NATURE = Config()
"""Mnih et al. 2015, Extended Data Table 1: the defaults of `Config`."""

QUICK = Config(
    # A round of 1,024 steps is 32 ticks of 32 emulators; with 96 it would be 11, and mostly barrier.
    play=Play(envs=32, lane_envs=2),
    learn=Learn(
        total_steps=1_000_000,
        # A tenth of the published interval; Lapan's Pong, CleanRL and the Stable-Baselines3 zoo all use 1,000.
        # It is one round, so it also bounds how old the playing policy is.
        round_steps=1_024,
        train_every=4,
        batch_size=32,
        # Lapan and the Stable-Baselines3 zoo: 0.8 GB, and old play is forgotten ten times sooner.
        replay_size=100_000,
        # Lapan: begin as soon as 10,000 steps are there.
        learning_starts=10_000,
        # Adam at 1e-4, which the same three share, with Adam's published beta2; the smoothing term is that of
        # Rainbow (Hessel et al. 2018, Table 1), which keeps early updates small.
        optimizer="adam",
        learning_rate=1e-4,
        optimizer_decay=0.999,
        optimizer_epsilon=1.5e-4,
    ),
    # Lapan: 100,000 steps down to 0.02.
    explore=Explore(epsilon_start=1.0, epsilon_end=0.02, epsilon_steps=100_000),
)
"""The fastest sound settings for a short run, chosen on Pong. Sources: Lapan, "Deep Reinforcement Learning
Hands-On", 2nd ed., ch. 8, the Pong row of its hyperparameters; the published settings of the others."""

PRESETS: dict[PresetName, Config] = {"nature": NATURE, "quick": QUICK}
"""Configuration by preset name."""
