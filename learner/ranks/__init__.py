"""A learner of several processes, its ranks, which share every minibatch: one for each GPU, or several on a CPU.

Read rank_group, then rank. Passes in shards are in learner/networks/sharded.py.
"""
