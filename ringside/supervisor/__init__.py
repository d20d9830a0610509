"""The supervisor: starts, watches, restarts and ends the processes of a run.

Read supervisor first, then children, spawning, deaths, hang_detector and shutdown_timer; then lane_balance.
"""
