"""Settings of a run: the user's values, the values derived from them, and validation.

Read sections and settings first, then method_declaration, presets and protocols; then resolve, run_schedule and digest;
then checks; then trust and other_libraries.
"""
