"""The built-in methods; shared/config/method_declaration.py declares them.

Read dqn first, then c51, qr_dqn and iqn. Of the on-policy methods read a2c first, then ppo, a3c, vtrace, pqn and
worker_values.
"""
