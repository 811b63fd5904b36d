"""Answering the calls of the lake itself from a kernel in this process, by what they are about."""
