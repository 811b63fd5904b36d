"""Errors of a lake in the words of Lance's namespaces: each has a number that all clients know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

from lance_namespace import errors as lance_errors
from lance_namespace.errors import LanceNamespaceError
from pydantic import BaseModel

from penstock import errors
from penstock.errors import CommitConflict, PenstockError
from penstock.formats.lance.lake.data_requests import read_request
from penstock.model.conflicts import ConflictKind

CODES: Final[Mapping[type[PenstockError], type[LanceNamespaceError]]] = {
    errors.RequestError: lance_errors.InvalidInputError,
    errors.UnsupportedFeature: lance_errors.UnsupportedOperationError,
    errors.NotFound: lance_errors.TableNotFoundError,
    errors.NotManaged: lance_errors.TableNotFoundError,
    errors.ManagedElsewhere: lance_errors.InvalidTableStateError,
    errors.ReferenceNotFound: lance_errors.NamespaceNotFoundError,
    errors.CommitNotFound: lance_errors.NamespaceNotFoundError,
    errors.HistoryExpired: lance_errors.NamespaceNotFoundError,
    errors.VersionNotFound: lance_errors.TableVersionNotFoundError,
    errors.TransactionNotFound: lance_errors.TransactionNotFoundError,
    errors.ConflictError: lance_errors.ConcurrentModificationError,
    errors.TableExists: lance_errors.TableAlreadyExistsError,
    errors.TableStateRefused: lance_errors.InvalidTableStateError,
    errors.TransactionOver: lance_errors.InvalidTableStateError,
    errors.CommitVetoed: lance_errors.PermissionDeniedError,
    errors.TryAgainError: lance_errors.ServiceUnavailableError,
    errors.Throttled: lance_errors.ThrottlingError,
    errors.OutcomeUnknown: lance_errors.ServiceUnavailableError,
    errors.LakeMoved: lance_errors.ServiceUnavailableError,
    errors.Unauthenticated: lance_errors.UnauthenticatedError,
    errors.Denied: lance_errors.PermissionDeniedError,
    errors.OutOfSync: lance_errors.InvalidTableStateError,
    errors.InvalidTable: lance_errors.InvalidInputError,
    errors.PenstockError: lance_errors.InternalError,
}
"""What each error becomes. One that is not named here becomes what its parent does."""

_CONFLICTS: Final = {
    ConflictKind.NAMESPACE_ABSENT: lance_errors.NamespaceNotFoundError,
    ConflictKind.NOT_A_NAMESPACE: lance_errors.NamespaceNotFoundError,
    ConflictKind.NAMESPACE_NOT_EMPTY: lance_errors.NamespaceNotEmptyError,
}

S = TypeVar("S")
R = TypeVar("R")
M = TypeVar("M", bound=BaseModel)


def to_lance_error(problem: PenstockError, *, in_batch: bool = False) -> LanceNamespaceError:
    """An error in Lance's words. In a batch it says which operation it is about, counted from zero."""
    kind = _find_error_class(problem)
    number = problem.details.get("operation") if in_batch else None
    text = _format_message(problem)
    return kind(text if number is None else f"operation {number}: {text}")


def _format_message(problem: PenstockError) -> str:
    """What happened, for who asks as Lance's clients do."""
    if isinstance(problem, CommitConflict):
        for conflict in problem.conflicts:
            if conflict.kind is ConflictKind.NAMESPACE_ABSENT:
                return f"there is no namespace '{conflict.key}': create it first (create_namespace)"
    return problem.message


def _find_error_class(problem: PenstockError) -> type[LanceNamespaceError]:
    if isinstance(problem, errors.OwnRefNotFound | errors.OwnRefExists):
        is_tag, is_there = "tag" in problem.details, isinstance(problem, errors.OwnRefExists)
        if is_there:
            return (
                lance_errors.TableTagAlreadyExistsError
                if is_tag
                else lance_errors.TableBranchAlreadyExistsError
            )
        return lance_errors.TableTagNotFoundError if is_tag else lance_errors.TableBranchNotFoundError
    if isinstance(problem, errors.HistoryExpired) and "key" in problem.details:
        return lance_errors.TableVersionNotFoundError  # of a table that was erased
    if isinstance(problem, CommitConflict):
        for conflict in problem.conflicts:
            if conflict.kind in _CONFLICTS:
                return _CONFLICTS[conflict.kind]
    return next(CODES[error_type] for error_type in type(problem).__mro__ if error_type in CODES)


def declare_operation(
    kind: type[M], *, in_batch: bool = False
) -> Callable[[Callable[[S, M], R]], Callable[[S, Any], R]]:
    """An operation of a namespace: it takes a request as a model, or as a dictionary of the same, and raises
    no errors but Lance's."""

    def decorate_method(work: Callable[[S, M], R]) -> Callable[[S, Any], R]:
        @wraps(work)
        def run_operation(self: S, request: Any) -> R:
            try:
                return work(self, read_request(kind, request))
            except PenstockError as problem:
                raise to_lance_error(problem, in_batch=in_batch) from problem

        return run_operation

    return decorate_method
