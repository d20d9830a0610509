"""Presets of the DQN family, which learn from a replay buffer.

dqn_zoo is DeepMind's collection of these agents (github.com/google-deepmind/dqn_zoo, the flags of
dqn_zoo/AGENT/run_atari.py). Dopamine is Google's (github.com/google/dopamine, agents/AGENT/configs).

In Ringside the target network plays, so the period of the target network also bounds the policy lag (docs/design.md).
Epsilon falls from the step at which learning may begin, as in dqn_zoo; updates begin with the next whole round.
"""

from __future__ import annotations

from dataclasses import replace

from shared.config.method_declaration import C51Settings, IQNSettings
from shared.config.sections import Algorithm, Evaluate, Explore, Learn, Machine, Play
from shared.config.settings import Config

NATURE = Config()
"""Mnih et al. 2015, Extended Data Table 1: the defaults of `Config`.

The table counts the target network's 10,000 in updates; the authors' program, and dqn_zoo, in steps, as here.

dqn_zoo's dqn has the same numbers: target network every 40,000 frames, replay of a million, learning after a twentieth
of it, an update of 32 every 16 frames, centered RMSProp at 0.00025 with decay 0.95 and epsilon 0.01 (for gradients
summed over the batch), epsilon-greedy from 1 to 0.1 in four million frames."""

DOUBLE = replace(
    NATURE,
    learn=replace(NATURE.learn, round_steps=30_000),
    algorithm=Algorithm(double=True),
    explore=replace(NATURE.explore, epsilon_end=0.01),
    evaluate=Evaluate(eval_epsilon=0.001, eval_max_frames=108_000),
)
"""van Hasselt et al. 2016, appendix "Hyper-parameters", the tuned version: target network every 30,000 steps, epsilon
to 0.01; dqn_zoo's double_q: 120,000 frames and 0.01.

Evaluation: epsilon 0.001 and 108,000 frames ("Robustness to Human starts", the tuned version); dqn_zoo has 0.01. The
untuned Double DQN of the same paper has 0.05 and 18,000 frames, as `nature`. Here episodes begin with no-ops, not with
states of human play.

Left out: one bias for all actions of the last layer, the third change of the tuned version."""

DUELING = replace(
    NATURE,
    learn=replace(NATURE.learn, learning_rate=6.25e-5, optimizer_epsilon=0.01 / 16, round_steps=30_000),
    algorithm=Algorithm(double=True, dueling=True, clip_gradient=10.0),
    explore=replace(NATURE.explore, epsilon_end=0.01),
    evaluate=DOUBLE.evaluate,
)
"""Wang et al. 2016, section 4.2: Double DQN with two streams of 512 units and gradient norms clipped to 10.

The paper calls the learning rate "slightly lower" than Double DQN's and does not give it; 6.25e-5 is what it settles
on for the dueling network with priorities, which is also that of Schaul et al. 2016. It is a quarter of DQN's, and
RMSProp's epsilon, a square, a sixteenth: dqn_zoo has no dueling agent, but scales both so for `prioritized`. The norm
is that of the batch's mean gradient here, which hardly ever comes to 10; the paper does not say whether it is of a
mean or of a sum, for which 10/32 would stand here. All else is the tuned Double DQN's, says the paper; so is the
evaluation. Left out: the gradient that enters the convolutions is not scaled by 1/sqrt(2)."""

C51 = replace(
    NATURE,
    learn=replace(NATURE.learn, optimizer="adam", optimizer_decay=0.999, optimizer_epsilon=0.01 / 32),
    algorithm=Algorithm(method="c51"),
    explore=replace(NATURE.explore, epsilon_end=0.01),
    evaluate=Evaluate(eval_epsilon=0.001, eval_max_frames=108_000),
)
"""Bellemare et al. 2017, section 5: 51 atoms in [-10, 10], Adam with the learning rate of DQN, 0.00025, and epsilon
0.01/32, epsilon-greedy down to 0.01; Dopamine's c51_icml.gin and dqn_zoo's c51 have the same numbers, and
both evaluate with epsilon 0.001 and 108,000 frames.

dqn_zoo also clips the norm of gradients to 10, of which the paper says nothing; it is not done here."""

RAINBOW = Config(
    learn=Learn(
        learning_starts=20_000,
        round_steps=8_000,
        optimizer="adam",
        learning_rate=6.25e-5,
        optimizer_decay=0.999,
        optimizer_epsilon=1.5e-4,
    ),
    algorithm=Algorithm(
        method="c51",
        double=True,
        dueling=True,
        noisy=True,
        noisy_std=0.5,
        n_step=3,
        prioritized=True,
        priority_exponent=0.5,
        importance_start=0.4,
        importance_end=1.0,
        # The whole of the published training, 200 million frames; it does not follow --total-steps.
        importance_steps=50_000_000,
    ),
    explore=Explore(epsilon_start=0.0, epsilon_end=0.0, epsilon_steps=0),
    evaluate=Evaluate(eval_epsilon=0.0, eval_max_frames=108_000),
)
"""Hessel et al. 2018, Table 1: 80,000 frames before learning, Adam at 0.0000625 with epsilon 1.5e-4, noisy nets with
sigma_0 0.5 and no epsilon, target network every 32,000 frames, priority exponent 0.5, importance from 0.4 to 1, three
steps, 51 atoms in [-10, 10]. Dopamine's rainbow_aaai.gin has the same periods and Adam, but epsilon-greedy in place of
noisy nets, neither Double DQN nor two streams, and an importance exponent of 0.5.

What differs: the paper's first footnote says that a sigma_0 of 0.1 may be helpful where the noise is made on a CPU, as
it is here; dqn_zoo, Kaixhin/Rainbow and Dopamine's full_rainbow have 0.1, PFRL 0.5 (here: --noisy-std 0.1). Batches are
drawn a chunk of eight updates ahead, so errors count from the second chunk after them on (docs/algorithms.md).
dqn_zoo's also differs from the paper in Adam's epsilon (0.005/32), a thousandth of uniform draws, gradient norms
clipped to 10 and noise clipped to 2, among
others. Priorities are the Kullback-Leibler divergence, as in the paper, where both programs take the cross-entropy
(here: --c51-priority cross-entropy), whose least value is the target's entropy: their draws are the more even.

Evaluation: 108,000 frames (Hessel et al. 2018, "Evaluation Methodology"); no epsilon, as in dqn_zoo and PFRL
(train_rainbow.py), the first of which leaves the noise on. Here it is off, as in Dopamine's full_rainbow, which has
epsilon 0.001."""

DER = Config(
    play=Play(envs=1, lane_envs=1, protocol="atari100k"),
    learn=replace(
        RAINBOW.learn,
        total_steps=100_000,
        schedule="alternate",
        round_steps=2_000,
        train_every=1,
        replay_size=100_000,
        learning_starts=1_600,
        learning_rate=1e-4,
        network="der",
    ),
    algorithm=replace(
        RAINBOW.algorithm,
        settings=C51Settings(c51_priority="cross-entropy"),
        noisy_std=0.1,
        n_step=20,
        importance_steps=100_000,
        clip_gradient=10.0,
    ),
    explore=RAINBOW.explore,
    machine=Machine(precision="fp32", learner_parts=1),
)
"""Data-efficient Rainbow for Atari 100k: van Hasselt et al. 2019, appendix E, Table 2. What differs from `rainbow`:
100,000 steps, all of which are kept; learning after 1,600 of them; an update every step; Adam at 0.0001; 20 steps of
rewards; the network `der`. The sigma_0 of 0.1, the norm of 10 and the cross-entropy as priority are those of
Kaixhin/Rainbow (main.py, agent.py), whose README has the paper's numbers as options.

The target network changes every 2,000 steps, each of which has an update from step 1,600 on. Beta grows from step 0 on,
with Kaixhin from 1,600. There is no epsilon beside the noise. With the defaults every bit follows from seed and CPU
model: precision and parts are named. The small network has one part, those of the next presets four. Evaluation: 100
episodes with epsilon 0.001, as the protocol says.

What differs from Kaixhin/Rainbow. Screens are reduced by area after their maximum, as in Dopamine; there linearly,
before it. The sigma of biases is sigma_0/sqrt(fan-in) as in Dopamine; there by outputs. Acting and learning draw
separate noise. The tick of a reset counts as a step. A transition has no weight until its 20 steps are there; there a
batch with such a one is drawn again. A truncated episode adds the value of its last state; there it ends. After a
lost life the game plays on and its stack continues; there a no-op follows, learning begins with an empty stack, and a
life that leaves none ends no return. The state 20 steps on may be the last of a life; there its value is left out."""

DER_DOPAMINE = replace(
    DER,
    learn=replace(DER.learn, network="nature"),
    algorithm=replace(DER.algorithm, n_step=10, importance_start=0.5, importance_end=0.5, clip_gradient=None),
    explore=Explore(epsilon_start=0.01, epsilon_end=0.01, epsilon_steps=0),
    machine=Machine(precision="fp32", learner_parts=4),
)
"""Dopamine's DER, dopamine/labs/atari_100k/configs/DER.gin and atari_100k_rainbow_agent.py, of Agarwal et al. 2021:
10 steps, importance weights P^-1/2 without annealing, no bound of the norm, and the convolutions of `nature`.

Epsilon: the file names 0.01 reached 2,000 steps after learning starts, which the program has never used beside noise:
until November 2022, with the published scores, it was 0.01 from the first step, as here; since then it is 0
(full_rainbow_agent.py). `--epsilon-start 1 --epsilon-steps 2_000` gives the file's, `--epsilon-start 0 --epsilon-end 0`
today's. The file's target period was 8,000 until November 2021 (`--round-steps 8_000`).

What differs. Their convolutions have a border ("SAME"), so features are 7,744 and not 3,136. Both streams share one
hidden layer of 512, and the noise of its units. Their convolutions begin with Xavier's weights and biases of 0, here
with PyTorch's. Their Double DQN chooses with the noise of the target network; until March 2022 inputs and outputs of
a layer shared one draw. A lost life clears their stack of frames. Until June 2023 they played whole episodes until
10,000 steps were there, ten times. The replay is that of 2021: since October 2024 theirs stores stacks of one frame
before an end."""

DRQ = replace(
    DER_DOPAMINE,
    learn=replace(DER_DOPAMINE.learn, round_steps=1),
    algorithm=Algorithm(double=True, dueling=True, n_step=10, augment=True),
    explore=Explore(epsilon_start=1.0, epsilon_end=0.01, epsilon_steps=5_000),
)
"""DrQ(epsilon) of Agarwal et al. 2021, Dopamine's configs/DrQ_eps.gin: Yarats et al. 2021 with one augmented copy of
each state, a Double DQN with two streams, 10 steps, uniform replay, a target network that changes after every update,
epsilon to 0.01 within 5,000 steps after learning starts. `--epsilon-end 0.1 --eval-epsilon 0.05` is their DrQ.gin.

What differs: the network, as in `der-dopamine`; the first weights of all layers, there Xavier's; augmented pixels
stay bytes (docs/algorithms.md). Until March 2022 theirs had one offset for a whole batch."""

QR_DQN = replace(
    NATURE,
    learn=replace(C51.learn, learning_rate=5e-5),
    algorithm=Algorithm(method="qr-dqn"),
    explore=replace(NATURE.explore, epsilon_end=0.01),
    evaluate=Evaluate(eval_epsilon=0.001, eval_max_frames=108_000),
)
"""Dabney et al. 2018a, section 5.2 ("QR-DQN-1"): 200 quantiles, Huber loss of width 1, Adam at 0.00005 with epsilon
0.01/32, epsilon-greedy down to 0.01. dqn_zoo's qrdqn has 201 quantiles and gradient norms clipped to 10, else the
same, and evaluates with epsilon 0.001 and 108,000 frames."""

IQN = replace(QR_DQN, algorithm=Algorithm(method="iqn"))
"""Dabney et al. 2018b, section 4: N = N' = 64, K = 32, 64 cosines, the rest as QR-DQN; Dopamine's
implicit_quantile_icml.gin has the same numbers, and evaluates with epsilon 0.001 and 108,000 frames, as dqn_zoo's iqn
does, which has K = 64 and learns from 80,000 frames on.

The K fractions whose mean chooses an action are evenly spaced here, not sampled."""

BTR = Config(
    play=Play(envs=64, lane_envs=2, protocol="machado"),
    learn=Learn(
        # main.py: --envs 64, --bs 256, --rr 1: one update of 256 when each of 64 emulators has made a step.
        train_every=64,
        batch_size=256,
        # Agent.py: max_mem_size, min_sampling_size.
        replay_size=1_048_576,
        learning_starts=200_000,
        # main.py: --c 500 updates, which are 32,000 steps.
        round_steps=32_000,
        # main.py: --discount, --lr; Agent.py: Adam with eps 0.005 / batch_size and PyTorch's betas.
        discount=0.997,
        optimizer="adam",
        learning_rate=1e-4,
        optimizer_decay=0.999,
        optimizer_epsilon=0.005 / 256,
        network="impala",
    ),
    algorithm=Algorithm(
        # main.py: --taus 8, which are N, N' and K; --dueling 1, --noisy 1; networks.py: sigma_0=0.5; Agent.py: n = 3.
        method="iqn",
        settings=IQNSettings(iqn_samples=8, iqn_policy_samples=8),
        dueling=True,
        noisy=True,
        noisy_std=0.5,
        n_step=3,
        # Agent.py: per_alpha. PER.py weighs losses with (N P(i))^-alpha; its beta is not read. So nothing moves.
        prioritized=True,
        priority_exponent=0.2,
        importance_start=0.2,
        importance_end=0.2,
        importance_steps=50_000_000,
        # Agent.py: alpha, entropy_tau, lo (Vieillard et al. 2020 have the same).
        munchausen=True,
        munchausen_alpha=0.9,
        munchausen_temperature=0.03,
        munchausen_floor=-1.0,
        # Agent.py: grad_clip.
        clip_gradient=10.0,
        # main.py: --model_size 2, --maxpool_size 6, --spectral 1; layer_norm is off by default.
        width=2,
        pooling=True,
        spectral_norm=True,
    ),
    # Agent.py: eps_start, eps_final, eps_steps.
    explore=Explore(epsilon_start=1.0, epsilon_end=0.01, epsilon_steps=2_000_000),
    # Agent.py: choose_action in evaluation; main.py: gym.make("ALE/...-v5"), which cuts after 108,000 frames.
    evaluate=Evaluate(eval_epsilon=0.01, eval_max_frames=108_000),
)
"""BTR, "Beyond the Rainbow": Clark et al. 2025 (ICML; arXiv:2411.03820), section 3 and appendix, with the numbers of
the authors' code, github.com/VIPTankz/BeyondTheRainbowICML, file by file above.

The network is theirs: three residual blocks of 32, 64 and 64 channels, ReLU, maximum pooling to 6x6, 64 cosines, two
noisy streams of 512 units, no layer norm. Convolutions within residual parts are divided by their largest singular
value; those that open a block are not.

What differs. The log-policy that Munchausen adds is the target network's, as Vieillard et al. 2020 have it; the
authors' code takes the online network's. Policies are means over eight evenly spaced fractions, not over the eight
sampled ones. They switch epsilon off in the second half of training and let it fall by a two-millionth of the rest at
every step, from the first on: to 0.37 after two million, 0.14 after four. Here it falls in a straight line over two
million steps and stays at 0.01. Versions of their code differ in whether a truncated episode ends the return; here it
does not. Power iteration makes a step an update here, and theirs one a forward pass. Their code plays the minimal
action set after up to 30 no-ops, with sticky actions; `machado` plays all 18 actions without no-ops. Noise of acting
is one for all their emulators; here each has its own. Acting is with the target network, up to 500 updates old, where
theirs is the online one. A version of their code evaluates without epsilon after 125 million frames."""

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
        # Adam with its published beta2, and the learning rate of Lapan, CleanRL and the Stable-Baselines3 zoo: with
        # 2e-4 the convolutions of two seeds in three died before they had learned anything. Rainbow's smoothing of
        # 1.5e-4 is more than Pong's gradients come to, 1e-4 a parameter and less: with it steps become ever smaller as
        # the agent learns (docs/lab/2026-11-pong.md).
        optimizer="adam",
        learning_rate=1e-4,
        optimizer_decay=0.999,
        optimizer_epsilon=1e-5,
    ),
    # Rainbow's three steps, with which Pong's few rewards reach far sooner, and Double DQN.
    algorithm=Algorithm(double=True, n_step=3),
    # Lapan: 100,000 steps, though down to 0.02.
    explore=Explore(epsilon_start=1.0, epsilon_end=0.01, epsilon_steps=100_000),
    # 30 minutes, as with all after Mnih et al. 2015: games of equal players at Pong last longer than 5.
    evaluate=Evaluate(eval_max_frames=108_000),
)
"""Settings of a DQN for a short run, chosen on Pong. Sources: Lapan, "Deep Reinforcement Learning
Hands-On", 2nd ed., ch. 8, the Pong row of its hyperparameters; the published settings of the others.

What each change was worth: docs/lab/2026-11-pong.md. On Breakout this window stops progress at a mean return of 38;
a million steps do not (docs/lab/2026-11-gpu.md)."""

DQN_ASYNC = Config(
    play=Play(workers=4, lane_envs=1),
    learn=Learn(
        total_steps=500_000,
        schedule="ordered",
        t_max=4,
        local_replay=10_000,
        batch_size=32,
        learning_starts=QUICK.learn.learning_starts,
        round_steps=1_000,
        network="a3c",
        optimizer="adam",
        learning_rate=QUICK.learn.learning_rate,
        optimizer_decay=QUICK.learn.optimizer_decay,
        optimizer_epsilon=QUICK.learn.optimizer_epsilon,
    ),
    explore=QUICK.explore,
    evaluate=QUICK.evaluate,
)
"""DQN of workers, each with a small replay buffer of its own, as tutorials on asynchronous DQN have it: 10,000 steps a
worker, batches of 32, Adam at 1e-4, 500,000 steps of Pong. Each worker updates every 4 steps, as in Mnih et al. 2015.

What such a tutorial leaves open follows the preset `quick`: exploration, the beginning of learning and Adam's epsilon.
The target network changes every 1,000 steps, as with Lapan, CleanRL and the zoo of Stable-Baselines3. The network is
that of 2013, which is cheap enough for a CPU; `--network nature` gives that of 2015."""
