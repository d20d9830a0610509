"""Benchmarks of updates and inference.

Read update first, then passes; then learner_alone, inference_alone and beside. plain_update is the reference.
"""
