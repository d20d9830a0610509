"""Actor processes: play the games, and write frames and results into shared memory. They never load torch.

Read actor first, then lane, lanes, env, make_env and env_trial; then evaluator, evaluation and filming; then
envs/ and pixels/.
"""

from pathlib import Path

from shared.process.library_env import choose_kernel_cache

choose_kernel_cache(Path(__file__).parent)
