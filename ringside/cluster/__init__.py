"""Work on the nodes of a Ray cluster. This package alone imports ray, and only where `--ray` was said.

Ray places processes on nodes, carries calls to them and says when one died. Everything else is ours and is tested
without Ray. Read node_object first, then connection and ray_hosts, which are what Ray does.

*Many runs at once*: placed_programs runs programs on nodes, those of suites and studies; placing chooses where.

*One run with more actors*: a *gateway* takes an actor's place on the board. It owns lanes, and alone writes them, but
has a *group* on a node play them: a small region of its own with an inference server and actors. In each round the
gateway sends the parameters, and the group returns what it played in *parcels*. Read gateway, then
remote_lanes, parcel and group_host.
"""
