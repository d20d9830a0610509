"""The processes that compute with networks: inference and the learner. No emulator here."""

from pathlib import Path

from shared.process import kernel_cache

kernel_cache.prepare(Path(__file__).parent)
