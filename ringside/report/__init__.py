"""Reports: runs beside one another, their curves and scores, on one page. Read comparison first."""
