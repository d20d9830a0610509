"""Settings from files: those that a user writes, those of another run, and those tuned for a game.

Read config_file. tuned.toml holds the settings by game.
"""
