"""Files that are whole or absent, and the rules for reading and writing them.

Read atomic first, then lock, disk_trouble, toml_file, result_files and run_file_names.
"""
