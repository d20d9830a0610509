"""Actor processes: games, and what is made of their screens. No torch here."""

from pathlib import Path

from shared.process.library_env import choose_kernel_cache

choose_kernel_cache(Path(__file__).parent)
