"""Frames: from the emulator's screens to the frame in a ring slot.

Read frames first, then palette and bilinear.
"""
