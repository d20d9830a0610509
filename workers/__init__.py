"""Workers: play, compute gradients, and apply them to shared parameters. No other room has torch and an emulator.

Read worker first, then gradients and versions.
"""
