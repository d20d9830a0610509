"""Reports: curves and scores of several runs on one page.

Read records first, then comparison; then plots and report_page.
"""
