"""Observers of a run: its status, live displays, and a page in the browser.

Read status and observer first, then attach; then display; then the page: server and source.
"""
