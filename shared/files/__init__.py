"""Files that are whole or absent, and the rules for reading and writing them.

Read atomic first, then plain_files, strict_json, lock, disk_trouble, result_files and run_file_names.
"""
