"""TD targets and losses, in the symbols of the papers. Read method first."""
