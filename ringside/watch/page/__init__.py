"""`launch.py watch`: a run as a page in the browser, served on loopback.

Read server first, then source, pictures, live_curves and ended; then budget and connections.
"""
