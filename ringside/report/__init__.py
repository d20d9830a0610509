"""Reports: curves and scores of several runs on one page.

Read records first, then comparison, aggregate, rules and notes; then curve, figures, plots and report_page. published
holds the scores and curves of papers.
"""
