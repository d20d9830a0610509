"""Workers: play, compute gradients, and apply them to shared parameters. No other package has torch and an emulator.

Read worker first, then gradients, newest_steps and versions.
"""
