"""The measurements that need a machine with a GPU, all by one command.

Read prove_gpu first, then stage.
"""
