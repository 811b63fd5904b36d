"""The commit kernel: pure decisions over a store."""
