"""Violations: all that is wrong with the parameters of a request, told in one message, as Nessie tells it.

Each function returns what to say of one parameter, or nothing if it can be. ``parameter`` is what Nessie
calls it.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from penstock.errors import InvalidRequest
from penstock.server.nessie.revisions import (
    HASH_RULE,
    NAME_RULE,
    PATH_RULE,
    is_hash,
    is_name,
    is_path,
    is_spec,
)

HASH_ONLY_RULE: Final = "Hash must consist of the hex representation of 4-32 bytes"
TYPE_RULE: Final = "Reference type name must be either 'branch' or 'tag'"
TYPES: Final = frozenset(("BRANCH", "branch", "TAG", "tag"))


def raise_violations(*violations: str | None) -> None:
    """Refuse a request if anything is wrong with it."""
    messages = [violation for violation in violations if violation is not None]
    if messages:
        raise InvalidRequest(", ".join(messages))


def find_null(value: object, parameter: str) -> str | None:
    return f"{parameter}: must not be null" if value is None else None


def find_empty(items: Sized | None, parameter: str) -> str | None:
    return None if items else f"{parameter}: size must be between 1 and 2147483647"


def find_bad_name(name: str | None, parameter: str) -> str | None:
    """A reference cannot have this name; whether it has to be given is another question."""
    return None if name is None or is_name(name) else f"{parameter}: {NAME_RULE}"


def find_bad_path(text: str, parameter: str) -> str | None:
    """It is not a reference with a commit and steps from there, as version 2 has them in paths."""
    return None if is_path(text) else f"{parameter}: {PATH_RULE}"


def find_bad_spec(text: str, parameter: str) -> str | None:
    """It is neither a hash, nor steps from one commit to another such as ``~2``, nor both."""
    return None if not text or is_spec(text) else f"{parameter}: {HASH_RULE}"


def find_bad_hash(text: str | None, parameter: str) -> str | None:
    """It cannot be a commit's hash; whether it has to be given is another question."""
    return None if text is None or is_hash(text) else f"{parameter}: {HASH_ONLY_RULE}"


def find_bad_type(text: str | None, parameter: str) -> str | None:
    return None if text is None or text in TYPES else f"{parameter}: {TYPE_RULE}"
