"""`launch.py watch`: a run as a page in the browser, served on loopback.

Read server first, then source, pictures and live_curves; then budget and connections.
"""
