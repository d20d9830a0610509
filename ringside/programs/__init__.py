"""Programs of `launch.py` for runs: here one after another, or on the nodes of a cluster, many at once.

Read places, then local_programs, placing and lost_nodes. Suites and studies run on these.
"""
