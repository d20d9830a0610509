"""Networks: parameters, forward and backward passes, and policies.

Read model first, then make_model, fused, autograd and linear; then policy, categorical and acting_noise; then
arithmetic_check and pooling.
"""
