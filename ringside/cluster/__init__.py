"""Work on the nodes of a Ray cluster. This package alone imports ray, and only where `--ray` was said.

Ray places processes on nodes, carries calls to them and says when one died. Everything else is ours and is tested
without Ray. Read hosts first, then program_host and placed_programs, which run the programs of suites and studies.
fingerprint compares the software of two machines; connection, ray_hosts, exchange and learner_place are what Ray does.
"""
