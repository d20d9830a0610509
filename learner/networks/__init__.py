"""Networks: parameters, forward and backward passes, and policies.

Read model first, then make_model, frame_blocks, packed_model, modules (with initial_values, linear, lstm and pooling),
module_model and fused; then policy, categorical and acting_noise; then divided, units and arithmetic_check.
"""
