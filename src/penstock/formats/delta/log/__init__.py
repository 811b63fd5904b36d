"""The log of a table in its storage: read to a snapshot, written, kept short."""
