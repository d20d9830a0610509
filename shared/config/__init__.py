"""Settings of a run: the user's values, the values derived from them, and checks.

Read sections and settings first, then method_declaration, presets and protocols; then resolve, run_schedule and digest;
then the checks: field_checks, validate, combinations and config_warnings; then trust and other_libraries.
"""
