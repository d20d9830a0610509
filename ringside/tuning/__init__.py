"""Search for settings with Optuna: the space, the study, its trials as runs of their own, and its plots.

Read space, then study, study_plots and search. Optuna comes with the extra `tune`.
"""
