"""Settings of a run: the user's values, the values derived from them, and validation.

Read settings first, then method_declaration, presets and protocols; then resolve and run_schedule; then field_checks,
validate, combinations and config_warnings; then trust, renamed_settings and other_libraries.
"""
