"""Names of many files in memory: each by a short hash."""

from __future__ import annotations

from hashlib import blake2b


def hash_name(name: str) -> bytes:
    """By which a file's name is known. No two names have the same by chance."""
    return blake2b(name.encode(errors="surrogateescape"), digest_size=16).digest()
