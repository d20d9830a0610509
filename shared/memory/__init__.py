"""The shared region of a run.

Read shared/README.md first, then region/, board and run_memory. Then follow a lane: lane_memory, ring, mailbox,
snapshot. The rest are process_table, publication, evaluation_queue, boundary, wait and memory_need.
"""
