"""Failures of Lance itself, said as its namespaces say them.

A conflict has a class of its own in Lance. Its other exceptions are of few classes; their texts begin with
the kind of error that Lance's core, or the library behind its storage, has raised, and that decides. What
storage failed at is never taken for a conflict or for a mistake of the caller, nor is what nobody knows. The
places in Lance's source code that a text names are left out. What the namespace refused in the course of an
operation is told as it was: Lance only knows that something was refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from lance_namespace import (
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    LanceNamespace,
    LanceNamespaceError,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    from_error_code,
)
from lance_namespace.errors import ErrorCode

MESSAGE_MAX_CHARS: Final = 500

Asked = TypeVar("Asked")
Told = TypeVar("Told")

_SOURCE: Final = re.compile(r"(, location:|,)? *[\w./-]*\.rs:\d+:\d+")
_PREFIX: Final = re.compile(
    r"(Invalid user input|LanceError\(\w+\)|Wrapped error|Namespace error|External error): "
)
_SCHEMA: Final = re.compile(r"( in schema)?:\s*Schema \{.*", re.DOTALL)
"""A schema as Lance dumps it, page after page."""
_CONFLICT: Final = re.compile(
    r"((External|Wrapped|Execution) error: )*"
    r"((Retryable c|C)ommit conflict for version|Too many concurrent writers|Incompatible transaction)"
)
"""How Lance's core begins what it says of a conflict, where no class tells."""
_STORAGE: Final = re.compile(
    r"LanceError\(IO\): (?!Internal error: Function |Error during planning: )"
    r"|Generic [\w/]+ error: |\(os error \d+\)|The operation lacked "
)
"""What Lance, the library of its storage and the system write if storage does not do what it is asked for."""
_ABSENT: Final = re.compile(r"\b[Nn]ot found: ")
"""What they write of a file that is not there: storage has answered then."""
_NO_RIGHT: Final = re.compile(
    r"The operation lacked |\(os error (1|13|30)\)|\b40[13] (Forbidden|Unauthorized)|status code: 40[13]"
    r"|<Code>(ExpiredToken|InvalidToken|TokenRefreshRequired|RequestTimeTooSkewed)</Code>"
)
_NO_ROOM: Final = re.compile(r"\(os error (28|122)\)|\b507 Insufficient|XMinioStorageFull|QuotaExceeded")
_NETWORK: Final = re.compile(r"Generic (\w+) error: ")
_FILE: Final = re.compile(r"not found: .*?((data|_deletions|_indices)/[\w./-]+)", re.IGNORECASE)
"""A file of a table that is not there."""

_TEXTS: Final = {
    ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR: ("different schema", "fields did not match"),
    ErrorCode.TABLE_INDEX_NOT_FOUND: ("index not found", 'index ".*" not found'),
    ErrorCode.TABLE_INDEX_ALREADY_EXISTS: ("index name .* already exists",),
    ErrorCode.TABLE_COLUMN_NOT_FOUND: (
        *("no field named", "column .* does not exist", "field .* not found", "field .* does not exist"),
        *("not found in schema", "is not in the dataset", "fieldnotfound", "does not contain child"),
    ),
    ErrorCode.TABLE_BRANCH_NOT_FOUND: (
        *("branch .*not found", "branch .* does not exist", "has no branch"),
        "not found: .*/tree/.*/_versions",
    ),
    ErrorCode.TABLE_TAG_NOT_FOUND: ("tag .* does not exist", "ref not found"),
    ErrorCode.TABLE_VERSION_NOT_FOUND: ("version .* not found", "has no version", "manifest was not found"),
    ErrorCode.INVALID_TABLE_STATE: ("dataset at path .* was not found",),
    ErrorCode.UNSUPPORTED: ("not supported", "unsupported", "not implemented"),
    ErrorCode.INVALID_INPUT: (
        *("invalid user input", "invalid argument", "cast error", "parser error", "cannot cast"),
        *("duplicate field name", "divide by zero", "overflow", "resources exhausted"),
        *("regular expression", "regex", "error applying filter expression"),
        *("execution error", "error during planning", "can't set tokenizer", "field .* cannot contain"),
    ),
}
"""What Lance writes, and what it means; of several that match, the first."""

_MEANINGS: Final = [
    (re.compile("|".join(texts), re.IGNORECASE | re.DOTALL), code) for code, texts in _TEXTS.items()
]

_PASSING: Final = frozenset((ErrorCode.TABLE_VERSION_NOT_FOUND, ErrorCode.TABLE_BRANCH_NOT_FOUND))
"""What Lance asks for to see whether it is there."""


class WatchedNamespace(LanceNamespace):
    """A namespace as Lance is given it for one operation, which remembers what it refused."""

    def __init__(self, namespace: LanceNamespace) -> None:
        self._namespace = namespace
        self._write: LanceNamespaceError | None = None
        self._read: LanceNamespaceError | None = None

    @property
    def last_refusal(self) -> LanceNamespaceError | None:
        """The last refusal. A refused version comes first, because Lance reads again after it."""
        return self._write or self._read

    def namespace_id(self) -> str:
        return self._namespace.namespace_id()

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        return self._read_with_errors(self._namespace.describe_table, request)

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        return self._read_with_errors(self._namespace.list_table_versions, request)

    def describe_table_version(self, request: DescribeTableVersionRequest) -> DescribeTableVersionResponse:
        return self._read_with_errors(self._namespace.describe_table_version, request)

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        return self._read_with_errors(self._namespace.declare_table, request)

    def create_table_version(self, request: CreateTableVersionRequest) -> CreateTableVersionResponse:
        try:
            return self._namespace.create_table_version(request)
        except LanceNamespaceError as error:
            self._write = error
            raise

    def _read_with_errors(self, ask: Callable[[Asked], Told], request: Asked) -> Told:
        try:
            return ask(request)
        except LanceNamespaceError as error:
            if error.code not in _PASSING:
                self._read = error
            raise


@contextmanager
def watch_lance_work(
    namespace: LanceNamespace, table: list[str], branch: str | None = None
) -> Iterator[WatchedNamespace]:
    """Work that Lance does on a table, or one of Lance's own branches of it, through a namespace.

    What fails is told as namespaces do.
    """
    watched = WatchedNamespace(namespace)
    try:
        yield watched
    except (LanceNamespaceError, MemoryError):
        raise
    except Exception as error:
        raise _translate_error(error, watched, table, branch) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _make_error(ErrorCode.UNSUPPORTED, table, _BUG) from error


def _translate_error(
    error: Exception, watched: WatchedNamespace, table: list[str], branch: str | None
) -> LanceNamespaceError:
    if watched.last_refusal is not None:
        return watched.last_refusal
    text = (
        str(error.args[0]) if isinstance(error, KeyError | NotImplementedError) and error.args else str(error)
    )
    if text == _PANIC:
        return _make_error(ErrorCode.UNSUPPORTED, table, _BUG)
    if lost := _FILE.search(text):
        return _make_error(ErrorCode.INVALID_TABLE_STATE, table, _LOST.format(file=lost[1]))
    if type(error).__name__ == "CommitConflictError" or _CONFLICT.match(text):
        return _make_error(ErrorCode.CONCURRENT_MODIFICATION, table, text)
    if _STORAGE.search(text) and not _ABSENT.search(text):
        return _storage_error(text, table)
    for pattern, code in _MEANINGS:
        if pattern.search(text):
            return _make_error(code, table, _choose_error_text(code, text, watched, table, branch))
    is_of_python = not _SOURCE.search(text)  # of the library's wrapper, which looks at what it is given
    if is_of_python and isinstance(error, ValueError | TypeError | LookupError | OverflowError):
        return _make_error(ErrorCode.INVALID_INPUT, table, text)
    return _make_error(ErrorCode.INTERNAL, table, text)


def _storage_error(text: str, table: list[str]) -> LanceNamespaceError:
    """What storage did not do. Its own words name hosts and buckets, and are left to those who run it."""
    if _NO_RIGHT.search(text):
        return _make_error(
            ErrorCode.PERMISSION_DENIED, table, "access to the storage of this table is denied"
        )
    if is_storage_full(text):
        storage_full = "the storage of this table has no room left: free space there, then try again"
        return _make_error(ErrorCode.SERVICE_UNAVAILABLE, table, storage_full)
    kind = _NETWORK.search(text)
    which = f" ({kind[1]})" if kind and kind[1] != "LocalFileSystem" else ""
    storage_full = f"the storage of this table{which} cannot be used at the moment"
    return _make_error(ErrorCode.SERVICE_UNAVAILABLE, table, storage_full)


def is_storage_full(text: str) -> bool:
    """Whether Lance says that storage has no room left."""
    return _NO_ROOM.search(text) is not None


_LOST: Final = (
    "a file of this version is missing, {file}: another program, or the clean-up of Lance itself, removed "
    "it. Restore it from a backup. Versions that do not need it can still be read, and one of them restored"
)
_PANIC: Final = "Task was aborted"
"""What Lance says of a panic in a thread of its own."""
_BUG: Final = "Lance failed because of a bug in Lance itself. Try to express the request differently"
"""A panic of its core, which a caller can cause by an expression alone."""
_DECLARED: Final = (
    "it is declared, but has no version yet: the first write creates one (create_table, or write_dataset "
    "with the mode 'overwrite')"
)


def _choose_error_text(
    code: ErrorCode, text: str, watched: WatchedNamespace, table: list[str], branch: str | None
) -> str:
    """Lance's message, or a better one where more is known here."""
    if code is ErrorCode.TABLE_BRANCH_NOT_FOUND and branch:
        return (
            f"the Lance table itself has no branch '{branch}'; to use a branch of the lake, put its name "
            "in the address"
        )
    if code is ErrorCode.INVALID_TABLE_STATE and _is_only_declared(watched, table):
        return _DECLARED
    return text


def _is_only_declared(watched: WatchedNamespace, table: list[str]) -> bool:
    try:
        target_table = watched.describe_table(DescribeTableRequest(id=table, check_declared=True))
    except LanceNamespaceError:
        return False
    return bool(target_table.is_only_declared)


def _make_error(code: ErrorCode, table: list[str], text: str) -> LanceNamespaceError:
    error: Any = from_error_code(code, f"{format_table_name(table)}: {shorten_message(text)}")
    assert isinstance(error, LanceNamespaceError)
    return error


def format_table_name(table: list[str]) -> str:
    """The name of a table for messages."""
    return ".".join(table)


def shorten_message(text: str) -> str:
    """A message of Lance without source locations, cut to a readable length."""
    text = _PREFIX.sub("", _SCHEMA.sub("", _SOURCE.sub("", text))).strip().rstrip(",.")
    return text if len(text) <= MESSAGE_MAX_CHARS else f"{text[:MESSAGE_MAX_CHARS]}…"
