"""The command line: options from dataclasses, read and shown by argparse. Read option.

The dataclasses themselves stand with the tasks and in `shared.config.sections`.
"""
