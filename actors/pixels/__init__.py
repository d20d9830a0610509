"""Frames: from the emulator's screens to the 84x84 frame in a ring slot.

Read frames first, then palette, bilinear and compilation.
"""
