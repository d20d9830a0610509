"""The processes that compute with networks: inference and the learner. No emulator here."""

from pathlib import Path

from shared.process.library_env import choose_kernel_cache

choose_kernel_cache(Path(__file__).parent)
