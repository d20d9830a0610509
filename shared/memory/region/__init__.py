"""The mapped region: its table of fields, its views and its publishing counters.

Read layout first, then sequence and arena.
"""
