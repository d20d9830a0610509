"""Benchmarks of the emulator, the actor loop, shared memory, the mailbox and segment files, each against its limit."""
