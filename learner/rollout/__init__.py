"""The rollout: the steps of the newest round, for on-policy methods.

Read on_policy_method first, then step_reader, rollout_source, sequence_source, advantages, action_values and
actor_critic.
"""
