"""Benchmarks: `launch.py bench NAME`, a file each. Each verifies its result and names its machine.

Read bench_command and harness/ first, then throughput. limits runs system_parts/ and network_parts/. Then read ladder/
and peers/, which compare with other programs, and gpu and gpu_proof/ for a machine with a GPU.
"""
