"""Settings of a run: the user's values, the values derived from them, and checks.

Read sections and settings first, then method_declaration, presets and protocols; then resolve and run_schedule;
then the checks: field_checks and validate; then trust.
"""
