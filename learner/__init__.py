"""The two processes that compute with networks: the inference server and the learner. They load no emulator.

Read inference, answers, learner, commits and make_engine first; numerics_probe and first_calls stand apart. Then follow
an update: engine/, replay/, rollout/, losses/, methods/, networks/, team/.
"""

from pathlib import Path

from shared.process.library_env import choose_kernel_cache

choose_kernel_cache(Path(__file__).parent)
