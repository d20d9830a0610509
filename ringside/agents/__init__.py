"""Trained agents outside of training: load, query, play, show.

Read agent first, then evaluation_policy, player, scene, picture and the outputs: window, terminal and video.
"""
