"""Actor processes: games, and the frames made of their screens. No torch here. Read actor, lane, lanes, then env."""

from pathlib import Path

from shared.process.library_env import choose_kernel_cache

choose_kernel_cache(Path(__file__).parent)
