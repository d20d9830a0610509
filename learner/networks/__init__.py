"""Networks: parameters, forward and backward passes, and policies.

Read model first, then make_model, frame_blocks, packed_layout, fused and autograd, with linear, lstm and pooling; then
policy, categorical and acting_noise; then sharded and arithmetic_check.
"""
