"""Answering calls about branches and tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.errors import InvalidRequest
from penstock.kernel.checks import assign_checked
from penstock.lake import calls
from penstock.lake.answers import LogLine
from penstock.lake.call import first, request_digest
from penstock.lake.recovered_answers import as_left
from penstock.model.references import Kind, Reference

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


class ReferenceHandlers:
    """Answers the calls about references."""

    def __init__(self, lake: Embedded) -> None:
        self._lake, self._kernel = lake, lake.kernel
        self.by_call: dict[type[calls.Call[Any]], Callable[[Any], Any]] = {
            calls.ListReferences: self._references,
            calls.GetReference: self._reference,
            calls.GetReferenceLog: self._reference_log,
            calls.CreateReference: self._create,
            calls.AssignReference: self._assign,
            calls.DeleteReference: self._delete,
        }

    def _references(self, call: calls.ListReferences) -> tuple[Reference, ...]:
        if call.kind not in (Kind.BRANCH, Kind.TAG, Kind.DELETED):
            raise InvalidRequest(f"unknown kind of reference '{call.kind}'")
        references = self._kernel.references
        if call.limit is None:
            return tuple(references.all(call.kind, call.prefix, call.after))
        return tuple(references.list(call.kind, call.prefix, call.after, call.limit))

    def _reference(self, call: calls.GetReference) -> Reference:
        return self._kernel.references.get(call.name)

    def _reference_log(self, call: calls.GetReferenceLog) -> tuple[LogLine, ...]:
        entries = (entry for _, entry in self._kernel.references.log(call.name, call.before))
        return tuple(LogLine.of(entry) for entry in first(entries, call.limit))

    def _create(self, call: calls.CreateReference) -> Reference:
        reference = self._kernel.references.create(
            call.name, call.kind, self._lake.reachable(call.at), who=call.who, **_key_of(call)
        )
        return as_left(reference)

    def _assign(self, call: calls.AssignReference) -> Reference:
        moved = assign_checked(
            self._kernel,
            call.name,
            self._lake.reachable(call.to),
            kind=call.kind,
            expected=self._lake.resolve_optional(call.expected),
            who=call.who,
            **_key_of(call),
        )
        return as_left(moved)

    def _delete(self, call: calls.DeleteReference) -> Reference:
        deleted = self._kernel.references.delete(
            call.name,
            kind=call.kind,
            expected=self._lake.resolve_optional(call.expected),
            who=call.who,
            **_key_of(call),
        )
        return as_left(deleted, is_deleted=True)


def _key_of(call: calls.WriteCall[Any]) -> _Keyed:
    """What a reference is told of the key of a request."""
    if call.idempotency_key is None:
        return {}
    return {"key": call.idempotency_key, "asked": request_digest(call)}


class _Keyed(TypedDict, total=False):
    key: str
    asked: bytes
