"""Implementations of the built-in methods, a file each; shared/config/method_declaration.py declares them."""
