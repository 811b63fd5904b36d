"""Delta: the log of a table, read to a snapshot, and the rules for adding to it."""
