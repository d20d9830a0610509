"""The parts that actors, learner and product share. They never load torch.

Read README.md first, then memory/ and config/; then process/, checkpoint/, files/ and machine/. The modules errors,
network_spec, network_parameters, prng and text serve all of them.
"""
