"""Reports: curves and scores of several runs on one page.

Read records first, then comparison, aggregate and notes; then plots, report_page and writing. published holds the
scores and curves of papers.
"""
