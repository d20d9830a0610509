"""`bench model`: service times of this machine, speeds by the performance model, and runs that check it.

Read predicted_runs first; part_times measures, published_scaling holds figures of others, cores_picture draws.
"""
