"""The harness of all benchmarks: interleaved repeats, runs at steady state, tables.

Read interleaved first, then measured_plans, measured_runs and tables. The rest are child_process, programs,
devices and gpu_use.
"""
