"""What a job that writes a table says of its write, whatever the format: its mode, its id, its properties."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final
from uuid import uuid4

from penstock.errors import InvalidKey, InvalidRequest
from penstock.model.encoding import hash_parts
from penstock.model.jobs import ID
from penstock.model.keys import Key

OWN_PROPERTIES: Final = frozenset({
    "mode", "files", "bytes", "partition_overwrite", "partitions", "partition", "rows", "format", "read",
    "spark.application", "spark.application.name",
})  # fmt: skip
"""What a job's commit tells of it, beside what begins with `penstock.`."""
_NOT_IN_NEW_KEYS: Final = frozenset("/\\`")


class SaveMode(StrEnum):
    """What becomes of what a table has, its files or its rows, when a job commits."""

    APPEND = "append"
    """It stays."""
    OVERWRITE = "overwrite"
    """It goes, or some of it does."""
    ERROR = "error"
    """If there is anything, the job is refused."""
    IGNORE = "ignore"
    """If there is anything, nothing happens."""


def make_job_id(given: str | None, key: Key, branch: str) -> str:
    """The id of a job: a new one, the one that is given, or what a name stands for, of those that write a
    table on a branch. So others may use the same name for theirs."""
    if given is None:
        return uuid4().hex
    if not given:
        raise InvalidRequest("the id of a job must not be empty; leave it out, or give each job a unique id")
    plain = given.replace("-", "").lower()
    return plain if ID.fullmatch(plain) else hash_parts(str(key), branch, given).hex()[:32]


def check_properties(properties: Iterable[str]) -> None:
    """``InvalidRequest`` for a property of the user's that a job's commit tells itself."""
    for name in properties:
        if name in OWN_PROPERTIES or name.startswith("penstock."):
            raise InvalidRequest(f"the property '{name}' is reserved for the job itself; choose another name")


def check_new_key(key: Key) -> None:
    """``InvalidKey`` for a table that is to be created and whose key looks like a path, or quoted for SQL."""
    if any(_NOT_IN_NEW_KEYS & set(element) for element in key):
        raise InvalidKey(
            f"{str(key)!r} cannot be the name of a table: a name is like 'sales.orders', without backquotes, "
            "and not a path\n  The lake decides where the files are."
        )
