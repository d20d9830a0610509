"""Networks: parameters, forward and backward passes, and policies.

Read model first, then frame_blocks, packed_model, modules (with initial_values, linear, lstm and pooling),
own_torso, fused and module_model; then policy, categorical and acting_noise; then divided, units and
arithmetic_check.
"""
