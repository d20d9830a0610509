"""Environments: Atari games, any Gymnasium environment, and what both share. Read atari first."""
