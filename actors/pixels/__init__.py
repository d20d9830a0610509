"""From the emulator's screen to the 84x84 frame in its ring slot."""
