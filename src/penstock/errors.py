"""Every error Penstock raises, grouped by what the caller should do about it.

::

    PenstockError
    ├── RequestError                change the request
    │   ├── InvalidKey              a key that cannot be: empty, control characters, too long
    │   ├── InvalidName             a reference name or revision that cannot be
    │   ├── InvalidContent          a content that cannot be stored as given
    │   ├── InvalidRequest          a request that contradicts itself or exceeds a limit
    │   ├── IdempotencyKeyReused    the key was used before, for another request
    │   ├── LocationRefused         a location outside the lake's configured roots
    │   ├── HistoryExpired          the commit lies behind the history horizon
    │   ├── LakeMoved               the lake is moving to another place, or has moved; write there
    │   ├── TooLarge                a request's body is larger than the server takes
    │   ├── UnsupportedMediaType    a request's body is of a type that the server does not read
    │   ├── MethodNotAllowed        there is such an address, but not for this method
    │   └── NotFound
    │       ├── ReferenceNotFound
    │       ├── CommitNotFound
    │       ├── KeyNotFound
    │       ├── TokenNotFound
    │       ├── RouteNotFound       the server has no such address
    │       └── LakeNotFound
    ├── ConflictError               look at what changed, then decide
    │   ├── CommitConflict          keys changed since the base the writer read
    │   │   └── MergeConflict       both sides changed the same keys
    │   ├── ReferenceExists
    │   ├── ReferenceChanged        a reference is not where the caller expected it
    │   └── LakeExists
    ├── TryAgainError               nothing was changed; the same request may work later
    │   ├── Unavailable             the store does not answer
    │   ├── RetriesExhausted        the branch moved faster than the request could be applied
    │   ├── Throttled               too much waits already
    │   └── TimedOut                the server took longer than a request may
    ├── OutcomeUnknown              find out what happened: repeat with the same key, or look it up
    └── AdministratorError          somebody with more rights must act
        ├── Unauthenticated         no token, or none that is known
        ├── Denied
        ├── Damaged                 stored bytes are not what was written
        └── UnsupportedFormat       the lake was written by a newer Penstock

``code`` is stable and meant for programs, ``details`` hold the structured facts, ``exit_code`` and
``http_status`` are the other two faces of the same error. ``request_id`` leads to it in a server's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

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
        return (_rebuild, (type(self), self.message, self.details, self.request_id))


def _rebuild(
    kind: type[PenstockError], message: str, details: dict[str, Any], request_id: str
) -> PenstockError:
    error = kind.__new__(kind)
    PenstockError.__init__(error, message, **details)
    error.request_id = request_id
    return error


class RequestError(PenstockError):
    """The request cannot be carried out as it stands. Nothing was changed."""

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


class IdempotencyKeyReused(RequestError):
    """The idempotency key was used before, for a different request."""

    code = "idempotency_key_reused"
    http_status = 409


class LocationRefused(RequestError):
    """A location lies outside the roots that the lake is configured for."""

    code = "location_refused"


class HistoryExpired(RequestError):
    """The commit lies behind the history horizon and has been removed."""

    code = "history_expired"
    exit_code = 4
    http_status = 410


class LakeMoved(RequestError):
    """The lake is moving to another place (``details["target"]``), or has moved. Here it only takes reads."""

    code = "lake_moved"
    http_status = 410


class TooLarge(RequestError):
    """The request's body is larger than the server takes."""

    code = "too_large"
    http_status = 413


class UnsupportedMediaType(RequestError):
    """The request's body is of a type that the server does not read."""

    code = "unsupported_media_type"
    http_status = 415


class MethodNotAllowed(RequestError):
    """The server has such an address, but not for this method."""

    code = "method_not_allowed"
    http_status = 405


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
    """The key holds nothing at that commit."""

    code = "key_not_found"


class TokenNotFound(NotFound):
    """There is no token with that id."""

    code = "token_not_found"


class RouteNotFound(NotFound):
    """The server has no such address."""

    code = "route_not_found"


class LakeNotFound(NotFound):
    """There is no lake at that place."""

    code = "lake_not_found"


class ConflictError(PenstockError):
    """The request met a state that it does not fit. Nothing was changed."""

    code = "conflict"
    exit_code = 3
    http_status = 409


class CommitConflict(ConflictError):
    """Keys of the request changed since the base that its writer read.

    ``conflicts`` names every one of them, with what was expected and what was found.
    """

    code = "commit_conflict"

    def __init__(self, conflicts: Sequence[Conflict], message: str | None = None) -> None:
        super().__init__(message or _describe("cannot commit", conflicts), conflicts=tuple(conflicts))

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        found: tuple[Conflict, ...] = self.details["conflicts"]
        return found


class MergeConflict(CommitConflict):
    """Both sides of a merge, transplant or revert changed the same keys."""

    code = "merge_conflict"

    def __init__(self, conflicts: Sequence[Conflict], message: str | None = None) -> None:
        super().__init__(conflicts, message or _describe("cannot merge", conflicts))


class ReferenceExists(ConflictError):
    """A branch or tag of that name exists already."""

    code = "reference_exists"


class ReferenceChanged(ConflictError):
    """A reference is not at the commit that the caller expected, or was re-created since."""

    code = "reference_changed"


class LakeExists(ConflictError):
    """There is a lake at that place already."""

    code = "lake_exists"


class TryAgainError(PenstockError):
    """Nothing was changed; the same request may succeed later."""

    code = "try_again"
    exit_code = 5
    http_status = 503


class Unavailable(TryAgainError):
    """The store could not be reached, or is busy for longer than the configured wait."""

    code = "unavailable"


class RetriesExhausted(TryAgainError):
    """The branch kept moving: the request lost every try within its bounds."""

    code = "retries_exhausted"


class Throttled(TryAgainError):
    """Too much waits already; slow down and try again."""

    code = "throttled"
    http_status = 429


class TimedOut(TryAgainError):
    """The server took longer than a request may. A write may still be applied: repeat it with its key."""

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
    """Only somebody with access to the lake's store or settings can mend this."""

    code = "administrator"


class Unauthenticated(AdministratorError):
    """The caller gave no token, or none that is known and still holds."""

    code = "unauthenticated"
    exit_code = 6
    http_status = 401


class Denied(AdministratorError):
    """The caller may not do this."""

    code = "denied"
    exit_code = 6
    http_status = 403


class Damaged(AdministratorError):
    """Stored bytes are missing or are not what was written. ``penstock fsck`` lists all of them."""

    code = "damaged"


class UnsupportedFormat(AdministratorError):
    """The lake was written in a format that this version of Penstock does not know."""

    code = "unsupported_format"


def _describe(what: str, conflicts: Sequence[Conflict]) -> str:
    lines = [f"{what}: {len(conflicts)} conflict{'s' if len(conflicts) != 1 else ''}"]
    lines += [f"  {conflict}" for conflict in conflicts[:20]]
    if len(conflicts) > 20:
        lines.append(f"  … and {len(conflicts) - 20} more")
    return "\n".join(lines)
