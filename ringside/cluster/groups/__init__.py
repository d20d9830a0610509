"""Lanes of a run that are played on other nodes, with the weights of one machine.

A *gateway* takes an actor's place on the board. It owns lanes, and alone writes them, but has a *group* on a node play
them: a small region of its own with an inference server and actors. In each round the gateway sends the parameters, and
the group returns what it played in *parcels*. Read remote_lanes first, then node_place, audit and group_host; parcel,
lane_state and parameters are what travels; gateway and node_program are the processes.
"""
