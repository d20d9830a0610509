"""Trained agents outside of training: load, query, play, show.

Read stored_weights first, then agent, evaluation_policy and player.
"""
