"""The replay: transitions of many rounds, drawn from the ring, gathered and prefetched for the engine.

Read replay_source first, then chunk, sampling, replay_frames and returns. Then read prioritized, priorities
and sum_tree.
"""
