"""A run from a configuration to its end: plan, start, watch, restart and stop its processes.

Read planning first, then training and supervisor; then children, hang_detector and lane_balance.
config_file and train_settings read what a user wrote. checks examines machine and env before the start;
scope puts a run into a systemd scope.
"""
