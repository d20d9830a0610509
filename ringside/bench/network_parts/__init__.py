"""Benchmarks of updates and inference, each against its limit.

Read update first, then passes, products, draws and shares; then learner_alone, inference_alone and beside. plain_update
is the reference.
"""
