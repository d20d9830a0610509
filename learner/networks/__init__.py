"""Networks: parameters, forward and backward passes, and policies.

Read model first, then models, fused, autograd and linear; then policy, categorical and acting_noise; then pooling.
"""
