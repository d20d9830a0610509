"""Trained agents outside of training: load, query, play, show.

Read stored_weights first, then agent and evaluation_policy. Then read player, scene, picture and the outputs: window,
terminal and video.
"""
