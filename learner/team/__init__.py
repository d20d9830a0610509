"""The processes of a learner: members that share memory on a CPU, or ranks with a GPU each.

Read team, then shared_team, gpu_ranks and member. How passes are divided: learner/networks/divided.py.
"""
