"""The shared region of a run.

Read shared/README.md first, then region/ and parts/: what a region is made of, and the fields of this one. plan says
how large they are and which process does what. run_memory binds them, also for the owner of a lane. The rest are
process_table, wait, boundary and memory_need.
"""
