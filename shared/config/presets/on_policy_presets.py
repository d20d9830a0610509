"""Presets of the methods that learn from the newest round alone.

CleanRL is github.com/vwxyzjn/cleanrl, Baselines github.com/openai/baselines, the zoo of Stable-Baselines3
github.com/DLR-RM/rl-baselines3-zoo, purejaxql github.com/mttga/purejaxql.

`round_steps` is the number of envs times the length of a rollout. These programs average the squared error of the value
with or without the factor 1/2; `value_weight` is always the weight of half of it.
"""

from __future__ import annotations

from dataclasses import replace

from shared.config.method_declaration import PPOSettings
from shared.config.sections import Algorithm, Evaluate, Explore, Learn, Play
from shared.config.settings import Config

_EVALUATE = Evaluate(eval_max_frames=108_000)

PPO = Config(
    # 8 envs x 128 steps. Lanes of one env, so that two groups of four take turns with inference.
    play=Play(envs=8, lane_envs=1),
    learn=Learn(
        total_steps=10_000_000,
        schedule="alternate",
        round_steps=1_024,
        batch_size=256,
        optimizer="adam",
        learning_rate=2.5e-4,
        learning_rate_end=0.0,
        anneal_steps=10_000_000,
        optimizer_decay=0.999,
        optimizer_epsilon=1e-5,
    ),
    algorithm=Algorithm(method="ppo", clip_gradient=0.5),
    evaluate=_EVALUATE,
)
"""PPO with the numbers of CleanRL's ppo_atari: 8 envs, rollouts of 128 steps, four passes in four minibatches, Adam at
2.5e-4 down to 0 over 10 million steps with epsilon 1e-5, clip 0.1 (also of the value), lambda 0.95, entropy 0.01, norm
0.5, orthogonal weights. Baselines' ppo2 has the same, but lets the clip fall to 0 with the learning rate
(`clip_ratio_end`); so does the zoo of Stable-Baselines3 (ppo.yml), which also weighs the error of the value twice as
much and does not clip it.

What differs: a truncated episode is bootstrapped from its true last frame, which CleanRL cuts. FIRE is not pressed,
there it is after a reset and a lost life, at which their stacks begin anew, with copies of the first frame."""

PPO_QUICK = replace(
    PPO,
    play=Play(envs=32, lane_envs=2),
    learn=replace(
        PPO.learn,
        total_steps=3_000_000,
        batch_size=128,
        # The products of a pass cost half of those of `nature`.
        network="a3c",
        learning_rate=1e-3,
        anneal_steps=3_000_000,
    ),
    algorithm=replace(PPO.algorithm, settings=PPOSettings(epochs=3, clip_ratio=0.2, clip_value=False)),
)
"""PPO for a short run on few cores: rounds of 32 envs x 32 steps, the small network, three passes in minibatches of
128, wider clipping and none of the value. Pong decided (docs/lab/2026-11-on-policy.md)."""

A2C = Config(
    play=Play(envs=16, lane_envs=2),
    learn=Learn(
        total_steps=10_000_000,
        schedule="alternate",
        round_steps=80,
        batch_size=80,
        optimizer="rms",
        learning_rate=7e-4,
        optimizer_decay=0.99,
        optimizer_epsilon=1e-5,
    ),
    algorithm=Algorithm(method="a2c", clip_gradient=0.5),
    evaluate=_EVALUATE,
)
"""A2C with the numbers of Stable-Baselines3's zoo (a2c.yml) and class: 16 envs x 5 steps, one update a round, RMSProp
at a constant 7e-4 with decay 0.99 and epsilon 1e-5 under the root, 0.25 times the squared error of the value, entropy
0.01, norm 0.5. Baselines' a2c has 0.5 times the squared error, and lets the rate fall to 0 over 80 million steps.

What differs: their RMSProp is TensorFlow's, whose mean of squares begins at 1, here at 0. FIRE, here never pressed, is
there pressed after a reset and a lost life."""

A3C = Config(
    # 50 processes in tensorpack, later two a core; 64 fill the batches of inference. 10 steps are two chains of 5.
    play=Play(envs=64, lane_envs=2),
    learn=Learn(
        total_steps=92_160_000,
        schedule="concurrent",
        round_steps=640,
        batch_size=128,
        optimizer="adam",
        learning_rate=1e-3,
        learning_rate_end=1e-4,
        anneal_steps=92_160_000,
        optimizer_decay=0.999,
        optimizer_epsilon=1e-3,
    ),
    algorithm=Algorithm(method="a3c"),
    evaluate=_EVALUATE,
)
"""Batched A3C with the numbers of tensorpack's example A3C-Gym: batches of 128, returns of at most 5
steps, Adam from 1e-3 with epsilon 1e-3, entropy 0.01, half the squared error of the value, importance clipped to 10.

What differs. Their rate falls in two steps, to 3e-4 after 20 epochs of 768,000 steps and to 1e-4 after 120; here in a
straight line. Their entropy weight falls to 0.005. In their games a lost life ends nothing, FIRE is pressed after a
reset, and an episode has at most 60,000 steps; here the rules are those of `nature`. Left out: frames in color, a
network with pooling, gradients clipped tensor by tensor, and games with random repeats (`-v0`). Their lag varies, up to
a queue of 2,048 steps, and 50 batches on several GPUs; here it is one round for every step. Returns are bootstrapped by
the learner's network, where theirs are by the one that acted."""

A3C_ASYNC = Config(
    play=Play(workers=16, lane_envs=1),
    learn=Learn(
        # 320 million frames. The rate falls to 0 over the whole training.
        total_steps=80_000_000,
        schedule="ordered",
        t_max=5,
        network="a3c",
        optimizer="rms",
        learning_rate=7e-4,
        learning_rate_end=0.0,
        anneal_steps=80_000_000,
        optimizer_decay=0.99,
        optimizer_epsilon=0.1,
    ),
    algorithm=Algorithm(method="a2c"),
    evaluate=_EVALUATE,
)
"""A3C of Mnih et al. 2016, section 5.1 and supplementary section 8: 16 workers, a gradient of 5 steps each, RMSProp
with shared statistics and decay 0.99, entropy 0.01, the network of 2013, a rate that falls to 0 over 80 million steps.

The paper samples the rate from LogUniform(1e-4, 1e-2) and does not give RMSProp's epsilon: 7e-4 and 0.1 are those of
miyosuda's async_deep_reinforce (constants.py), which also clips the norm of gradients to 40. The gradient is the sum
over the steps; half the squared error of the value has the weight 0.5. RMSProp's mean of squares begins at 0, there, in
TensorFlow, at 1. `--recurrent` gives the paper's A3C LSTM."""

NQ_ASYNC = replace(
    A3C_ASYNC,
    # The target network changes every 40,000 frames.
    learn=replace(A3C_ASYNC.learn, round_steps=10_000),
    algorithm=Algorithm(method="n-step-q"),
    # Epsilon falls from 1 over the first four million frames, in each worker to a value of its own.
    explore=Explore(epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=1_000_000, epsilon_by_worker=True),
)
"""Asynchronous n-step Q-learning of Mnih et al. 2016, section 5.1 and supplementary section 8: as `a3c-async`, with a
target network that changes every 40,000 frames, and epsilons of 0.1, 0.01 and 0.5 with chances 0.4, 0.3 and 0.3 after
four million frames. Evaluation: epsilon as the protocol says."""

Q_ASYNC = replace(NQ_ASYNC, algorithm=Algorithm(method="one-step-q"))
"""Asynchronous one-step Q-learning of the same paper, in which a gradient is also that of five steps. `--method sarsa`
is the third method of its section 4 with the same numbers."""

IMPALA = Config(
    play=Play(envs=32, lane_envs=2),
    learn=Learn(
        total_steps=50_000_000,
        schedule="concurrent",
        round_steps=640,
        batch_size=640,
        optimizer="rms",
        learning_rate=6e-4,
        learning_rate_end=0.0,
        anneal_steps=50_000_000,
        optimizer_decay=0.99,
        optimizer_epsilon=0.01,
    ),
    # Of the mean, as every norm here; 40 of their sum over 640 steps.
    algorithm=Algorithm(method="vtrace", clip_gradient=40.0 / 640),
    evaluate=_EVALUATE,
)
"""IMPALA: V-trace on batches of 32 rollouts of 20 steps, losses summed, RMSProp at 6e-4 down to 0 over 200 million
frames with epsilon 0.01, value weight 0.5, entropy 0.01, norm 40 (Espeholt et al. 2018, table G.1; the decay of 0.99 is
that of torchbeast). `--network impala` gives their deep network; on Atari none has an LSTM (appendix G).

What differs: the network, there shallow or deep. Every step was played by the version just before, where theirs lag as
the queue has it. RMSProp's mean of squares begins at 0, in TensorFlow at 1."""

PQN = Config(
    play=Play(envs=128, lane_envs=2),
    learn=Learn(
        total_steps=50_000_000,
        schedule="alternate",
        round_steps=4_096,
        batch_size=128,
        optimizer="radam",
        learning_rate=2.5e-4,
        optimizer_decay=0.999,
        optimizer_epsilon=1e-8,
        initial="orthogonal",
    ),
    algorithm=Algorithm(method="pqn", clip_gradient=10.0, normalize="all"),
    explore=Explore(epsilon_start=1.0, epsilon_end=0.001, epsilon_steps=5_000_000),
    evaluate=Evaluate(eval_epsilon=0.0, eval_max_frames=108_000),
)
"""PQN with the numbers of purejaxql's pqn_atari.yaml: 128 envs x 32 steps, two passes in minibatches of 128, RAdam at
2.5e-4, lambda 0.65, norm 10, epsilon from 1 to 0.001 in the first tenth of the steps, layer normalization of every
layer, evaluation without epsilon.

What differs: weights are orthogonal, as in CleanRL's pqn_atari_envpool, where theirs are normal with the same scale."""

PQN_QUICK = replace(
    PQN,
    play=Play(envs=32, lane_envs=2),
    learn=replace(PQN.learn, total_steps=3_000_000, round_steps=1_024, learning_rate=5e-4),
    explore=Explore(epsilon_start=1.0, epsilon_end=0.01, epsilon_steps=100_000),
)
"""PQN for a short run: 32 envs x 32 steps, twice the learning rate, exploration as in the preset `quick`."""
