"""The rows of a table: data files, written and read."""
