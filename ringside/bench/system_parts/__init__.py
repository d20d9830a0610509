"""Benchmarks of the emulator, the actor loop, shared memory, the mailbox and segment files, each against its limit.

Read emulator first, then actor_side, actors_alone, memory_paths, round_trip and segment_files.
"""
