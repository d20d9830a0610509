"""TD targets and losses, in the symbols of the papers.

Read method first, then td_learning, scalar_loss and distributional_loss.
"""
