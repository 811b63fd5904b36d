"""Every error Penstock raises, grouped by what the caller should do about it.

::

    PenstockError
    ├── RequestError                change the request
    │   ├── InvalidKey              an invalid key: empty, too long, or with control characters
    │   ├── InvalidName             an invalid reference name or revision
    │   ├── InvalidContent          a content that cannot be stored as given
    │   ├── InvalidRequest          a request that contradicts itself or exceeds a limit
    │   │   └── FormatUnavailable   a table is of a format that is not installed, or cannot be loaded
    │   ├── IdempotencyKeyReused    the key was used before, for another request
    │   ├── LocationRefused         a location outside the lake's roots, or another table's
    │   ├── HistoryExpired          the commit is older than the history that the lake keeps
    │   ├── LakeMoved               the lake is moving to another location, or has moved; write there
    │   ├── TooLarge                a request's body is larger than the server accepts
    │   ├── WorkTooLarge            work on rows needs more memory or time than the server allows
    │   ├── UnsupportedMediaType    a request's body is of a type that the server does not read
    │   ├── MethodNotAllowed        the address exists, but does not support this method
    │   ├── UnsupportedFeature      a table uses something that Penstock does not read, or not write
    │   ├── MalformedAction         a line of a Delta commit is not an action
    │   ├── InvalidManifest         a manifest that cannot be a version of the Lance table
    │   ├── CheckFailed             a check that a program added to its transaction failed
    │   ├── ChecksFailed            a branch is not published: some of its checks failed
    │   ├── NotManaged              a table that this lake does not manage
    │   │   └── ManagedElsewhere    a table that another owner manages
    │   └── NotFound
    │       ├── ReferenceNotFound
    │       ├── CommitNotFound
    │       ├── KeyNotFound
    │       ├── TokenNotFound
    │       ├── JobNotFound         there is no such job, or it no longer exists
    │       ├── FileNotFound        the table of files has no file at that path
    │       ├── RouteNotFound       the server has no such address
    │       ├── TableNotFound       there is no table at that location
    │       ├── VersionNotFound     the table has no such version, or it no longer exists
    │       ├── TransactionNotFound there is no such transaction, or it no longer exists
    │       ├── OwnRefNotFound      the Lance table has no branch or tag of its own with that name
    │       └── LakeNotFound
    ├── ConflictError               look at what changed, then decide
    │   ├── CommitConflict          keys changed since the base the writer read
    │   │   ├── MergeConflict       both sides changed the same keys
    │   │   └── TableConflict       a table has newer versions than its writer read
    │   ├── CommitVetoed            a check of the branch rejected the change
    │   ├── JobOver                 a job that was aborted, superseded or timed out cannot commit
    │   ├── TransactionOver         the transaction was already committed or aborted, or has timed out
    │   ├── TableExists             the key is already in use
    │   ├── VersionTaken            another writer of the Lance table committed first
    │   ├── OwnRefExists            the Lance table already has a branch or tag of its own with that name
    │   ├── TableStateRefused       the table's state does not allow the operation
    │   ├── EraseRefused            tags, branches, forks or transactions still hold the rows
    │   ├── ReferenceExists
    │   ├── ReferenceChanged        a reference is not at the commit that the caller expected
    │   └── LakeExists
    ├── TryAgainError               nothing was changed; the same request may work later
    │   ├── Unavailable             the store does not answer
    │   │   └── StorageFull         the disk or the database is full
    │   ├── RetriesExhausted        the branch moved faster than the request could be applied
    │   ├── Throttled               too many requests are waiting
    │   ├── WorkerLost              the process that handled the request's rows ended
    │   └── TimedOut                the request took longer than the server allows
    ├── OutcomeUnknown              find out what happened: repeat with the same key, or look it up
    └── AdministratorError          an administrator must act
        ├── Unauthenticated         no token, or an unknown or expired one
        ├── Denied
        │   └── StorageRefused      the storage refuses access to this process
        ├── Damaged                 stored bytes are not what was written
        ├── InvalidLog              a table's log breaks Delta's protocol
        │   ├── LogGap              a commit is missing from the middle of it
        │   └── InvalidTable        what a table's log says about its owner contradicts itself
        ├── ForeignCommit           the log of a managed table has a file of another writer
        ├── OutOfSync               a table has versions that the lake does not know
        └── UnsupportedFormat       the lake was written by a newer Penstock

``code`` is stable and meant for programs, ``details`` hold the structured facts, ``exit_code`` and
``http_status`` are the other two faces of the same error. ``request_id`` leads to it in a server's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.conflicts import Conflict


class PenstockError(Exception):
    """The root of the tree; never raised itself."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.request_id = ""
        """Of an error that a server told: the request, as the server's log names it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_error, (type(self), self.message, self.details, self.request_id))


def _rebuild_error(
    kind: type[PenstockError], message: str, details: dict[str, Any], request_id: str
) -> PenstockError:
    error = kind.__new__(kind)
    PenstockError.__init__(error, message, **details)
    error.request_id = request_id
    return error


class RequestError(PenstockError):
    """The request is invalid, or names something that does not exist. Nothing was changed."""

    code = "request"
    http_status = 400


class InvalidKey(RequestError):
    """A key is empty, too long, has too many elements or contains control characters."""

    code = "invalid_key"


class InvalidName(RequestError):
    """A reference name or revision (``main~3``) is malformed."""

    code = "invalid_name"


class InvalidContent(RequestError):
    """A content is malformed, too large, or carries an id it must not have."""

    code = "invalid_content"


class InvalidRequest(RequestError):
    """A request contradicts itself, names a key twice, or exceeds a limit."""

    code = "invalid_request"


class FormatUnavailable(InvalidRequest):
    """A table is of a format that is not installed here, or whose package cannot be loaded."""

    code = "format_unavailable"


class IdempotencyKeyReused(RequestError):
    """The idempotency key was used before, for a different request."""

    code = "idempotency_key_reused"
    http_status = 409


class LocationRefused(RequestError):
    """A location lies outside the roots that the lake is configured for, or belongs to another table."""

    code = "location_refused"


class HistoryExpired(RequestError):
    """The commit is older than the history that the lake keeps, and has been removed."""

    code = "history_expired"
    exit_code = 4
    http_status = 410


class LakeMoved(RequestError):
    """The lake is moving to another location (``details["target"]``), or has moved. This one is read-only."""

    code = "lake_moved"
    http_status = 410


class TooLarge(RequestError):
    """The request's body is larger than the server accepts."""

    code = "too_large"
    http_status = 413


class WorkTooLarge(RequestError):
    """Work on rows needed more memory or time than the server allows a request: ``details["limit"]`` is the
    option that sets the limit."""

    code = "work_too_large"
    http_status = 422


class UnsupportedMediaType(RequestError):
    """The request's body is of a type that the server does not read."""

    code = "unsupported_media_type"
    http_status = 415


class MethodNotAllowed(RequestError):
    """The address exists, but does not support this method."""

    code = "method_not_allowed"
    http_status = 405


class UnsupportedFeature(RequestError):
    """A table uses a feature (``details["feature"]``) that Penstock does not read, or does not write."""

    code = "unsupported_feature"


class MalformedAction(RequestError):
    """A line of a Delta commit (``details["line"]``, from 1) is not an action: ``details["reason"]``."""

    code = "malformed_action"


class InvalidManifest(RequestError):
    """A manifest of a Lance table is missing, differs from its description, or cannot be a version."""

    code = "invalid_manifest"


class CheckFailed(RequestError):
    """A check (``details["check"]``) that a transaction carries failed: ``details["reason"]``."""

    code = "check_failed"


class ChecksFailed(RequestError):
    """A branch was checked, and not published: ``details["failed"]`` has every failed check, with the reason
    and rows that it found."""

    code = "checks_failed"


class NotManaged(RequestError):
    """The lake does not manage that table: other engines commit to its log directly."""

    code = "not_managed"


class ManagedElsewhere(NotManaged):
    """Another owner (``details["owner"]``) manages that table."""

    code = "managed_elsewhere"


class NotFound(RequestError):
    """Something the request names does not exist."""

    code = "not_found"
    exit_code = 4
    http_status = 404


class ReferenceNotFound(NotFound):
    """There is no branch or tag of that name."""

    code = "reference_not_found"


class CommitNotFound(NotFound):
    """There is no such commit, or the reference named with it does not contain it."""

    code = "commit_not_found"


class KeyNotFound(NotFound):
    """There is nothing at the key at that commit."""

    code = "key_not_found"


class TokenNotFound(NotFound):
    """There is no token with that id."""

    code = "token_not_found"


class JobNotFound(NotFound):
    """There is no job with that id, or it no longer exists."""

    code = "job_not_found"


class FileNotFound(NotFound):
    """The table of files has no file at that path."""

    code = "file_not_found"


class RouteNotFound(NotFound):
    """The server has no such address."""

    code = "route_not_found"


class TableNotFound(NotFound):
    """There is no Delta log at that location."""

    code = "table_not_found"


class VersionNotFound(NotFound):
    """The table has no such version, or its log no longer reaches back to it."""

    code = "version_not_found"


class TransactionNotFound(NotFound):
    """There is no such transaction, or it no longer exists."""

    code = "transaction_not_found"


class OwnRefNotFound(NotFound):
    """The Lance table has no branch or tag of its own with that name."""

    code = "own_ref_not_found"


class LakeNotFound(NotFound):
    """There is no lake at that location."""

    code = "lake_not_found"


class ConflictError(PenstockError):
    """The request does not fit the present state of the lake. Nothing was changed."""

    code = "conflict"
    exit_code = 3
    http_status = 409


class CommitConflict(ConflictError):
    """Keys of the request changed since the base that its writer read.

    ``conflicts`` names every one of them, with what was expected and what was found.
    """

    code = "commit_conflict"

    def _repr_html_(self) -> str:
        """For notebooks that show the error as a value."""
        from html import escape

        return f"<pre><strong>{type(self).__name__}</strong>: {escape(self.message)}</pre>"

    def __init__(self, conflicts: Sequence[Conflict], message: str | None = None) -> None:
        lines = [[str(conflict)] for conflict in conflicts[:_SHOWN]]
        super().__init__(
            message or _describe_conflicts("cannot commit", conflicts, lines), conflicts=tuple(conflicts)
        )

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        conflicts: tuple[Conflict, ...] = self.details["conflicts"]
        return conflicts


class MergeConflict(CommitConflict):
    """Both sides of a merge, transplant or revert changed the same keys, or a restore is not possible.

    Its message says what was tried: to merge, transplant, rebase, revert or restore.
    """

    code = "merge_conflict"

    def __init__(
        self, conflicts: Sequence[Conflict], message: str | None = None, *, subject: str = "cannot merge"
    ) -> None:
        is_revert = subject == "cannot revert"
        lines = [
            conflict.describe_in_revert() if is_revert else conflict.describe_in_merge()
            for conflict in conflicts[:_SHOWN]
        ]
        super().__init__(conflicts, message or _describe_conflicts(subject, conflicts, lines))


class TableConflict(CommitConflict):
    """A table has newer versions than its writer read, and they conflict with what it wrote.

    ``details["winners"]`` tells, by the key of each table, its latest version and the commits since the one
    that was read, so that a writer can redo its work without asking again.
    """

    code = "table_conflict"

    def __init__(self, conflicts: Sequence[Conflict], message: str | None = None, **details: Any) -> None:
        super().__init__(conflicts, message)
        self.details |= details


class CommitVetoed(ConflictError):
    """A check of the branch (``details["check"]``) rejected the change: ``details["reason"]``."""

    code = "commit_vetoed"


class JobOver(ConflictError):
    """A job was aborted, superseded by a newer attempt, or timed out: it cannot commit any more."""

    code = "job_over"


class TransactionOver(ConflictError):
    """A transaction has ended: it was committed or aborted, or its lease ran out."""

    code = "transaction_over"


class TableExists(ConflictError):
    """The key is already in use."""

    code = "table_exists"


class VersionTaken(ConflictError):
    """Another writer committed first: a version of a Lance table is no longer the next one."""

    code = "version_taken"


class OwnRefExists(ConflictError):
    """The Lance table already has a branch or tag of its own with that name."""

    code = "own_ref_exists"


class TableStateRefused(ConflictError):
    """The table's state does not allow the operation."""

    code = "table_state_refused"


class EraseRefused(ConflictError):
    """Other references, forks or open transactions still hold rows that an erase is to make unrecoverable."""

    code = "erase_refused"


class ReferenceExists(ConflictError):
    """A branch or tag of that name already exists."""

    code = "reference_exists"


class ReferenceChanged(ConflictError):
    """A reference is not at the commit that the caller expected, or was re-created since."""

    code = "reference_changed"


class LakeExists(ConflictError):
    """There is already a lake at that location."""

    code = "lake_exists"


class TryAgainError(PenstockError):
    """Nothing was changed; the same request may succeed later."""

    code = "try_again"
    exit_code = 5
    http_status = 503


class Unavailable(TryAgainError):
    """The store could not be reached, or is busy for longer than the configured wait.

    ``details["part"]`` is ``"database"`` or ``"storage"`` (of tables), where it is known which of them it is.
    """

    code = "unavailable"


class StorageFull(Unavailable):
    """The disk of the lake's database or of its tables is full: ``details["part"]``.

    Reads go on. Writes do again as soon as somebody has made room; no retry helps before that.
    """

    code = "storage_full"


class RetriesExhausted(TryAgainError):
    """Other processes moved the branch during every try, until the limit of tries or time was reached."""

    code = "retries_exhausted"


class Throttled(TryAgainError):
    """Too many requests are waiting; slow down and try again."""

    code = "throttled"
    http_status = 429


class WorkerLost(TryAgainError):
    """The process that handled the request's rows ended: it was killed, or crashed in a library."""

    code = "worker_lost"


class TimedOut(TryAgainError):
    """The request took too long for the server. A write may still be applied; repeat it with its key."""

    code = "timed_out"
    http_status = 408


class OutcomeUnknown(PenstockError):
    """The store did not say whether the request was applied.

    Repeating it with the same idempotency key (``details["key"]``) is safe and gives the truth.
    """

    code = "outcome_unknown"
    exit_code = 7
    http_status = 504


class AdministratorError(PenstockError):
    """Only an administrator with access to the lake's store or settings can fix this."""

    code = "administrator"


class Unauthenticated(AdministratorError):
    """The caller gave no token, or a token that is unknown or has expired."""

    code = "unauthenticated"
    exit_code = 6
    http_status = 401


class Denied(AdministratorError):
    """The caller may not do this."""

    code = "denied"
    exit_code = 6
    http_status = 403


class StorageRefused(Denied):
    """Storage refuses access to this process: its keys, permissions, clock or bucket are wrong.

    Nothing was changed, and no retry helps before somebody has mended that. Of buckets, ``details["url"]``
    says which, and ``details["right"]`` what was to be done: ``read``, ``write``, ``list`` or ``delete``.
    """

    code = "storage_refused"


class Damaged(AdministratorError):
    """Stored bytes are missing or are not what was written. ``penstock fsck`` lists all of them."""

    code = "damaged"


class InvalidLog(AdministratorError):
    """A table's log breaks Delta's protocol, or a file of it cannot be read. ``details`` name the file."""

    code = "invalid_log"


class LogGap(InvalidLog):
    """A commit (``details["version"]``) is missing from the middle of a table's log."""

    code = "log_gap"


class InvalidTable(InvalidLog):
    """What a table's log says about its owner contradicts itself."""

    code = "invalid_table"


class ForeignCommit(AdministratorError):
    """The log of a managed table has a file, at some version, that Penstock did not ratify.

    ``details`` name the table, the version and the file. It is never overwritten.
    """

    code = "foreign_commit"


class OutOfSync(AdministratorError):
    """A table's own log, or folder, has versions that the lake does not know, or that differ from the lake's.

    Commits to the table are refused, reads go on. ``details`` name the table, its location, the newest
    ``known`` version and the ``version`` that tells; ``penstock resync`` takes the versions over.
    """

    code = "out_of_sync"
    http_status = 409


class UnsupportedFormat(AdministratorError):
    """The lake was written in a format that this version of Penstock does not know."""

    code = "unsupported_format"


def _describe_conflicts(subject: str, conflicts: Sequence[Conflict], told: Sequence[Sequence[str]]) -> str:
    """All conflicts as one text. The first line of each tells what is in the way; what follows is told once
    where it is the same for several."""
    lines = [f"{subject}: {len(conflicts)} conflict{'s' if len(conflicts) != 1 else ''}"]
    for number, (first, *more) in enumerate(told):
        following = told[number + 1][1:] if number + 1 < len(told) else None
        lines += [f"  {first}", *(f"    {line}" for line in more if more != following)]
    if len(conflicts) > len(told):
        lines.append(f"  … and {len(conflicts) - len(told)} more")
    return "\n".join(lines)


_SHOWN: Final = 20
"""How many conflicts the text of an error tells; ``conflicts`` has all."""
