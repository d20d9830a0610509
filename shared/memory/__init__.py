"""The shared region of a run.

Read shared/README.md first, then layout, sequence and arena: the mapped region. board, ring, mailbox, snapshot,
publication, evaluation_queue and shared_parameters are its parts. plan says how large they are and which process does
what; run_memory binds them. The rest are process_table, wait, boundary and memory_need.
"""
