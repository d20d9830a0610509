"""`launch.py watch`: a living run as a page in the browser, served on loopback."""
