"""Environments: Atari games, any Gymnasium environment, and their shared parts.

Read atari first, then gymnasium_env and action_log; then preprocessed, which training does not use.
"""
