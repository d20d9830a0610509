"""Programs of `launch.py` for runs: here one after another, or on the nodes of a cluster, many at once.

Read local_programs, then placing and places. Suites and studies run on these; ringside/cluster has those of nodes.
"""
