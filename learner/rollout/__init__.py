"""The data of a round for on-policy methods: all steps of the round itself. Read on_policy_method first."""
