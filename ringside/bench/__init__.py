"""Benchmarks: `launch.py bench NAME`, a file each. Each verifies its result and names its machine.

Read bench_command and harness/ first, then throughput and preset_costs. limits runs system_parts/ and network_parts/.
ladder/ and peers/ compare with other programs. gpu and gpu_proof/ are for a machine with a GPU.
"""
