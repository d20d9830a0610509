"""The classical tables of faster DQN. Read rungs first; serial is the whole of DQN in one process."""
