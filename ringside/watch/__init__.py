"""Observers of a run: its status, live displays, and a page in the browser. Read status first."""
