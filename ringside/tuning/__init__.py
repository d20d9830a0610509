"""Search for settings with Optuna: the space, and the study with its trials, each a run of its own.

Read space, then study. Optuna comes with the extra `tune`.
"""
