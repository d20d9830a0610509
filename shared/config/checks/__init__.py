"""Checks of settings, before anything starts. A refusal is a `ConfigError` of one sentence.

Read field_checks first, then validate, combinations and config_warnings.
"""
