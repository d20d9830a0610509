"""The classical sequences of DQN speed-ups, rebuilt from Ringside's parts.

Read rungs first, then serial (the whole of DQN in one process), wrapped and solve.
"""
