"""Checks: version 1 says which parameter is wrong, and requires an expected hash for every write."""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import InvalidRequest
from penstock.server.nessie.revisions import HASH_RULE, NAME_RULE, parse_body

HASH_ONLY_RULE: Final = "Hash must consist of the hex representation of 4-32 bytes"

_NAME: Final = re.compile(r"[A-Za-z](?:(?:(?![.][.])[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")
_HASH: Final = re.compile(r"[0-9a-fA-F]{8,64}")


def is_name(text: str) -> bool:
    """Whether a reference can have this name."""
    return _NAME.fullmatch(text) is not None


def is_spec(text: str) -> bool:
    """Whether it is a hash, steps from one commit to another such as ``~2``, or both."""
    try:
        parse_body(None, text)
    except InvalidRequest:
        return False
    return True


def check_name(name: str, parameter: str) -> str:
    """Return ``name`` if a reference can have it."""
    if not is_name(name):
        raise InvalidRequest(f"{parameter}: {NAME_RULE}", field=parameter)
    return name


def check_hash(text: str, message: str) -> str:
    """Return ``text`` if it can be a commit's hash."""
    if not _HASH.fullmatch(text):
        raise InvalidRequest(message)
    return text


def expected_path(name: str, expected_hash: str | None, operation: str, parameter: str) -> str:
    """A reference that is to be written and its expected hash, as version 2 has them in paths."""
    check_name(name, f"{operation}.{parameter}")
    if expected_hash is None:
        raise InvalidRequest(f"{operation}.expectedHash: must not be null", field="expectedHash")
    check_hash(expected_hash, f"{operation}.expectedHash: {HASH_ONLY_RULE}")
    return f"{name}@{expected_hash}"


def read_path(name: str | None, spec: str, parameters: tuple[str, str]) -> str:
    """A reference and a commit that are to be read, as version 2 has them in paths.

    Without a name the default branch is meant. ``parameters`` are what Nessie calls the two.
    """
    if name is not None:
        check_name(name, parameters[0])
    if spec and not is_spec(spec):
        raise InvalidRequest(f"{parameters[1]}: {HASH_RULE}", field=parameters[1])
    return f"{name or '-'}@{spec}" if spec else name or "-"
