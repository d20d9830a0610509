"""Programs that measure other packages, each in a separate virtual environment.

Read peer_comparison first, then peer_environment, peer_dqn and peer_envs.
"""
