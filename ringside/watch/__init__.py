"""Observers of a run: its status, live displays, and a page in the browser.

Read status and observer first, then attach and health; then display, screen, line and notebook; then the page: server,
source, pictures and live_curves.
"""
