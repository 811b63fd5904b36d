"""Failures of Lance, said as Penstock says its own: for programs that asked Penstock, and not Lance.

What the lake itself refused in the course of it comes out as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lance_namespace import LanceNamespace, LanceNamespaceError
from lance_namespace.errors import ErrorCode

from penstock.errors import (
    CommitConflict,
    InvalidRequest,
    PenstockError,
    StorageRefused,
    Unavailable,
    UnsupportedFeature,
    VersionNotFound,
)
from penstock.formats.lance.lake.data_errors import Watched, is_full, lance_work, plain
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.storage.room import storage_full

_GONE: Final = re.compile(
    r"\.(manifest|lance)\b[^:]* was not found|not found: \S+\.(manifest|lance)\b", re.IGNORECASE
)
"""What Lance writes if a file is not there that a version has."""
_SOURCE: Final = re.compile(r"C Data interface error: (?:Unknown error: )?(.*?)(?:\. Detail:|$)", re.DOTALL)
"""What Lance writes if whoever gives the rows has failed."""
_REQUEST: Final = frozenset(
    {
        ErrorCode.INVALID_INPUT,
        ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR,
        ErrorCode.TABLE_COLUMN_NOT_FOUND,
    }
)


@contextmanager
def told(namespace: LanceNamespace, key: Key) -> Iterator[Watched]:
    """Work that Lance does on a table, by the namespace that is given here. What fails is one of ours."""
    try:
        with lance_work(namespace, [*key]) as watched:
            yield watched
    except LanceNamespaceError as problem:
        raise _ours(problem, key) from None


def _ours(problem: LanceNamespaceError, key: Key) -> PenstockError:
    cause = problem.__cause__
    if isinstance(cause, PenstockError):
        return cause
    text = str(problem).removeprefix(f"{'.'.join(key)}: ")
    if _GONE.search(str(cause)):
        return gone(key)
    if failed := _SOURCE.search(str(cause)):  # whatever words it has: to try again would miss rows
        return InvalidRequest(f"the rows for '{key}' could not be read: {plain(failed[1])}", table=str(key))
    if problem.code == ErrorCode.CONCURRENT_MODIFICATION:
        return conflict(key, text)
    if problem.code in _REQUEST:
        return InvalidRequest(f"'{key}': {text}", table=str(key))
    if problem.code in (ErrorCode.TABLE_VERSION_NOT_FOUND, ErrorCode.INVALID_TABLE_STATE):
        return VersionNotFound(f"'{key}': {text}", table=str(key))
    if problem.code == ErrorCode.UNSUPPORTED:
        return UnsupportedFeature(f"'{key}': {text}", feature="lance")
    if problem.code == ErrorCode.PERMISSION_DENIED:
        return StorageRefused(
            f"the storage of '{key}' refuses access: {plain(str(cause))}. Trying again does not help before "
            "its keys and rights are set right",
            table=str(key),
            part="storage",
        )
    if problem.code == ErrorCode.SERVICE_UNAVAILABLE and is_full(str(cause)):
        return storage_full(f"the storage of '{key}'", plain(str(cause)), part="storage")
    if problem.code == ErrorCode.SERVICE_UNAVAILABLE:
        return Unavailable(f"the storage of '{key}' cannot be used: {plain(str(cause))}", part="storage")
    return Unavailable(f"Lance could not do that to '{key}': {text}", part="storage")


def gone(key: Key) -> VersionNotFound:
    """For a version that commits of the lake name, and whose files are not there any more."""
    return VersionNotFound(
        f"files of this version of '{key}' are gone for good: Lance's own cleanup, or somebody else, has "
        "removed them\n"
        "  Name a newer commit or version. 'penstock sweep' removes only what no kept commit names.",
        table=str(key),
    )


def conflict(key: Key, why: str) -> CommitConflict:
    """For a change that does not go together with what others have changed."""
    told = f"was changed by another writer, and your rows are incompatible with that change: {why}"
    return CommitConflict([Conflict(ConflictKind.FORMAT, key, why=told)])
