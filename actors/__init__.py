"""Actor processes: games, and what is made of their screens. No torch here."""

from pathlib import Path

from shared.process import kernel_cache

kernel_cache.prepare(Path(__file__).parent)
