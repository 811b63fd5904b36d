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
from penstock.formats.lance.lake.data_errors import (
    WatchedNamespace,
    is_storage_full,
    shorten_message,
    watch_lance_work,
)
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.storage.disk_space import storage_full_error

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
def own_errors(namespace: LanceNamespace, key: Key) -> Iterator[WatchedNamespace]:
    """Run work of Lance on a table through a namespace. Errors of Lance are raised as Penstock errors."""
    try:
        with watch_lance_work(namespace, [*key]) as watched:
            yield watched
    except LanceNamespaceError as problem:
        raise _translate_error(problem, key) from None


def _translate_error(problem: LanceNamespaceError, key: Key) -> PenstockError:
    cause = problem.__cause__
    if isinstance(cause, PenstockError):
        return cause
    text = str(problem).removeprefix(f"{'.'.join(key)}: ")
    if _GONE.search(str(cause)):
        return files_missing_error(key)
    if failed := _SOURCE.search(str(cause)):  # whatever words it has: to try again would miss rows
        return InvalidRequest(
            f"the rows for '{key}' could not be read: {shorten_message(failed[1])}", table=str(key)
        )
    if problem.code == ErrorCode.CONCURRENT_MODIFICATION:
        return conflict_error(key, text)
    if problem.code in _REQUEST:
        return InvalidRequest(f"'{key}': {text}", table=str(key))
    if problem.code in (ErrorCode.TABLE_VERSION_NOT_FOUND, ErrorCode.INVALID_TABLE_STATE):
        return VersionNotFound(f"'{key}': {text}", table=str(key))
    if problem.code == ErrorCode.UNSUPPORTED:
        return UnsupportedFeature(f"'{key}': {text}", feature="lance")
    if problem.code == ErrorCode.PERMISSION_DENIED:
        return StorageRefused(
            f"the storage of '{key}' refuses access: {shorten_message(str(cause))}. Trying again does not "
            "help until its keys and permissions are corrected",
            table=str(key),
            part="storage",
        )
    if problem.code == ErrorCode.SERVICE_UNAVAILABLE and is_storage_full(str(cause)):
        return storage_full_error(f"the storage of '{key}'", shorten_message(str(cause)), part="storage")
    if problem.code == ErrorCode.SERVICE_UNAVAILABLE:
        return Unavailable(
            f"the storage of '{key}' cannot be used: {shorten_message(str(cause))}", part="storage"
        )
    return Unavailable(f"Lance failed on '{key}': {text}", part="storage")


def files_missing_error(key: Key) -> VersionNotFound:
    """The error for a version that a commit names and whose files no longer exist."""
    return VersionNotFound(
        f"files of this version of '{key}' no longer exist: Lance's own cleanup, or another program, "
        "removed them\n  Read a newer commit or version. 'penstock sweep' removes only files that no "
        "retained commit needs.",
        table=str(key),
    )


def conflict_error(key: Key, why: str) -> CommitConflict:
    """The error for a change that conflicts with another writer's."""
    reason = f"was changed by another writer, and your rows are incompatible with that change: {why}"
    return CommitConflict([Conflict(ConflictKind.FORMAT, key, why=reason)])
