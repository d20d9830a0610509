"""Files that are whole or absent, and the rules for reading and writing them."""
