"""The same training on many games and seeds, judged by its protocol.

Read suite_games, then suite_runner. Each run is a program of its own (ringside/programs), so that no state is
carried from one run to the next. Progress is read from the run directories alone, so a suite continues where it
stopped.
"""
