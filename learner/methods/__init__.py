"""The built-in methods, a file each; shared/config/method_declaration.py declares them.

Read dqn first, then c51, qr_dqn and iqn; a2c is the on-policy method.
"""
