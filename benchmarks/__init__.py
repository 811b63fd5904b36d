"""Benchmarks: one file a question. ``python -m benchmarks`` asks them all; see README.md beside this file."""
