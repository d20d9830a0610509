"""Named starting points for the configuration. `--preset NAME` chooses one; single flags override it.

Periods are given in steps; a published one in frames is four times as long. In Ringside the network that plays is the
target network, so a period of the target network is also how old the playing policy may be (docs/design.md).
"""

from __future__ import annotations

from dataclasses import replace

from shared.config import Config, Explore, Extend, Learn, Play, PresetName

NATURE = Config()
"""Mnih et al. 2015, Extended Data Table 1: the defaults of `Config`."""

DOUBLE = replace(
    NATURE,
    learn=replace(NATURE.learn, round_steps=30_000),
    extend=Extend(double=True),
    explore=replace(NATURE.explore, epsilon_end=0.01),
)
"""van Hasselt et al. 2016, appendix "Hyper-parameters", the tuned version: target network every 30,000 steps, epsilon
to 0.01. Its third change, one bias for all actions of the last layer, is left away. Evaluated by the authors with
epsilon 0.001."""

DUELING = replace(
    NATURE,
    learn=replace(NATURE.learn, learning_rate=6.25e-5, round_steps=30_000),
    extend=Extend(double=True, dueling=True, clip_gradient=10.0),
    explore=replace(NATURE.explore, epsilon_end=0.01),
)
"""Wang et al. 2016, section 4.2: Double DQN with two streams of 512 units, gradient norm clipped to 10, and a learning
rate slightly lower than that of Double DQN; 6.25e-5 is that of prioritised Double DQN (Schaul et al. 2016). Left away:
the gradient of the shared layers scaled by 1/sqrt(2)."""

C51 = replace(
    NATURE,
    learn=replace(NATURE.learn, optimizer="adam", optimizer_decay=0.999, optimizer_epsilon=0.01 / 32),
    extend=Extend(method="c51", v_min=-10.0, v_max=10.0, atoms=51),
    explore=replace(NATURE.explore, epsilon_end=0.01),
)
"""Bellemare et al. 2017, section 5: 51 atoms in [-10, 10], Adam with the learning rate of DQN, 0.00025, and epsilon
0.01/32, epsilon-greedy down to 0.01."""

RAINBOW = Config(
    learn=Learn(
        learning_starts=20_000,
        round_steps=8_000,
        optimizer="adam",
        learning_rate=6.25e-5,
        optimizer_decay=0.999,
        optimizer_epsilon=1.5e-4,
    ),
    extend=Extend(
        method="c51",
        v_min=-10.0,
        v_max=10.0,
        atoms=51,
        double=True,
        dueling=True,
        noisy=True,
        noisy_std=0.5,
        n_step=3,
        prioritised=True,
        priority_exponent=0.5,
        importance_start=0.4,
        importance_end=1.0,
    ),
    explore=Explore(epsilon_start=0.0, epsilon_end=0.0, epsilon_steps=0),
)
"""Hessel et al. 2018, Table 1: 80k frames before learning, Adam at 0.0000625 with epsilon 1.5e-4, noisy nets with
sigma_0 0.5 and no epsilon, target network every 32k frames, priority exponent 0.5, importance from 0.4 to 1, three
steps, 51 atoms in [-10, 10]."""

QR_DQN = replace(
    NATURE,
    learn=replace(
        NATURE.learn, optimizer="adam", learning_rate=5e-5, optimizer_decay=0.999, optimizer_epsilon=0.01 / 32
    ),
    extend=Extend(method="qr-dqn", atoms=200),
    explore=replace(NATURE.explore, epsilon_end=0.01),
)
"""Dabney et al. 2018a, section 5.2 ("QR-DQN-1"): 200 quantiles, Huber loss of width 1, Adam at 0.00005 with epsilon
0.01/32, epsilon-greedy down to 0.01."""

IQN = replace(QR_DQN, extend=Extend(method="iqn", iqn_samples=64, iqn_policy_samples=32))
"""Dabney et al. 2018b, section 4: N = N' = 64, K = 32, 64 cosines, the rest as QR-DQN."""

BTR = Config(
    play=Play(envs=64, lane_envs=2, protocol="machado"),
    learn=Learn(
        # 64 emulators, and one update of 256 transitions when each has made a step.
        train_every=64,
        batch_size=256,
        replay_size=1_048_576,
        learning_starts=200_000,
        # The target network is replaced every 500 updates, which is every 32,000 steps.
        round_steps=32_000,
        discount=0.997,
        optimizer="adam",
        learning_rate=1e-4,
        optimizer_decay=0.999,
        optimizer_epsilon=0.005 / 256,
        network="impala",
    ),
    extend=Extend(
        method="iqn",
        iqn_samples=8,
        iqn_policy_samples=8,
        dueling=True,
        noisy=True,
        noisy_std=0.5,
        n_step=3,
        prioritised=True,
        priority_exponent=0.2,
        importance_start=0.45,
        importance_end=0.45,
        munchausen=True,
        munchausen_alpha=0.9,
        munchausen_temperature=0.03,
        munchausen_floor=-1.0,
        clip_gradient=10.0,
        width=2,
        pooling=True,
        spectral_norm=True,
    ),
    explore=Explore(epsilon_start=1.0, epsilon_end=0.01, epsilon_steps=2_000_000),
)

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

PRESETS: dict[PresetName, Config] = {
    "nature": NATURE,
    "quick": QUICK,
    "double": DOUBLE,
    "dueling": DUELING,
    "c51": C51,
    "rainbow": RAINBOW,
    "qr-dqn": QR_DQN,
    "iqn": IQN,
    "btr": BTR,
}
"""Configuration by preset name."""
