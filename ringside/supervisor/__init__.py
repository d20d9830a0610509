"""The supervisor: starts, watches, restarts and ends the processes of a run.

Read supervisor first, then children, spawning, deaths and hang_detector; then lane_balance.
"""
