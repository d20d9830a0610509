"""Frames: from the emulator's screens to the frame in a ring slot.

Read frames first, then palette, bilinear, table_shrinker and compilation.
"""
