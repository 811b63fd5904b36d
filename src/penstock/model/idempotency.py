"""Idempotency keys: what callers name their requests by, and whose a key is.

A key that a token used is stored with a mark of the token's name, so that every token has keys of its own.
Whoever asks the store itself, or a server without tokens, has keys without a mark.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import InvalidRequest
from penstock.model.encoding import digest

KEY_MAX_CHARS: Final = 200
MARK_DIGITS: Final = 32

_MARKED: Final = re.compile(rf"(?s:(.+))~[0-9a-f]{{{MARK_DIGITS}}}")


def owned_key(key: str, owner: str) -> str:
    """The key as it is stored for the token of a name."""
    return f"{key}~{digest('owner of a key', owner).hex()[:MARK_DIGITS]}"


def given_key(stored: str) -> str:
    """The key as the caller gave it."""
    match = _MARKED.fullmatch(stored)
    return match[1] if match is not None else stored


def check_key(key: str) -> str:
    """``InvalidRequest`` if a key cannot be stored."""
    if not isinstance(key, str) or not 0 < len(given_key(key)) <= KEY_MAX_CHARS or not key.isprintable():
        raise InvalidRequest(f"an idempotency key must have 1 to {KEY_MAX_CHARS} printable characters")
    return key
