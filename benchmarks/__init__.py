"""Benchmarks of Ringside: `python -m benchmarks NAME`, a file each. They are no part of the wheel.

Read harness first, then measured_run and throughput. `limits` runs emulator, memory_paths and network_parts. `ladder`
uses serial and wrapped_game; `peers` runs peer_program in the environment of other projects. `gpu` is for a machine
with a GPU. results/ holds kept figures.
"""
