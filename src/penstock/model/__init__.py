"""Frozen values that the whole of Penstock speaks: keys, contents, operations, commits, references."""
