"""Catalogue of the trained agents in the folder zoo of a clone, and the one that a wheel holds. Read catalogue."""
