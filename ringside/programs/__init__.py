"""Programs of `launch.py` for runs: here one after another, or on the nodes of a cluster, many at once.

Read places, then local_programs, placing, lost_nodes and former_runs. Suites and studies run on these.
"""
