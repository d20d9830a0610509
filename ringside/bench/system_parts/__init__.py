"""Benchmarks of the emulator, the actor loop, shared memory and the mailbox, each against its limit.

Read emulator first, then actor_side, actors_alone, memory_paths and round_trip.
"""
