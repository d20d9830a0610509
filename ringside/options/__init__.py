"""The command line: options from dataclasses, their values from words, their help and their completion.

Read option first, then values, help_page and shell_completion. The dataclasses themselves stand with the tasks and in
`shared.config.sections`.
"""
