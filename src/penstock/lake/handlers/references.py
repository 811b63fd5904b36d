"""Answering calls about branches and tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.errors import InvalidRequest
from penstock.kernel.checks import assign_checked
from penstock.lake import calls
from penstock.lake.answers import LogLine
from penstock.lake.call import request_digest, take_first
from penstock.lake.recovered_answers import make_reference_as_written
from penstock.model.references import Kind, Reference

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


class ReferenceHandlers:
    """Answers the calls about references."""

    def __init__(self, lake: Embedded) -> None:
        self._lake, self._kernel = lake, lake.kernel
        self.by_call: dict[type[calls.Call[Any]], Callable[[Any], Any]] = {
            calls.ListReferences: self._list_references,
            calls.GetReference: self._get_reference,
            calls.GetReferenceLog: self._list_reference_log,
            calls.CreateReference: self._create_reference,
            calls.AssignReference: self._assign_reference,
            calls.DeleteReference: self._delete_reference,
        }

    def _list_references(self, call: calls.ListReferences) -> tuple[Reference, ...]:
        if call.kind not in (Kind.BRANCH, Kind.TAG, Kind.DELETED):
            raise InvalidRequest(f"unknown kind of reference '{call.kind}'")
        references = self._kernel.references
        if call.limit is None:
            return tuple(references.list_all_references(call.kind, call.prefix, call.after))
        return tuple(references.list_references(call.kind, call.prefix, call.after, call.limit))

    def _get_reference(self, call: calls.GetReference) -> Reference:
        return self._kernel.references.get_reference(call.name)

    def _list_reference_log(self, call: calls.GetReferenceLog) -> tuple[LogLine, ...]:
        entries = (entry for _, entry in self._kernel.references.walk_log(call.name, call.before))
        return tuple(LogLine.from_entry(entry) for entry in take_first(entries, call.limit))

    def _create_reference(self, call: calls.CreateReference) -> Reference:
        reference = self._kernel.references.create_reference(
            call.name,
            call.kind,
            self._lake.resolve_reachable(call.at),
            who=call.who,
            **_make_request_key(call),
        )
        return make_reference_as_written(reference)

    def _assign_reference(self, call: calls.AssignReference) -> Reference:
        moved = assign_checked(
            self._kernel,
            call.name,
            self._lake.resolve_reachable(call.to),
            kind=call.kind,
            expected=self._lake.resolve_optional(call.expected),
            who=call.who,
            **_make_request_key(call),
        )
        return make_reference_as_written(moved)

    def _delete_reference(self, call: calls.DeleteReference) -> Reference:
        deleted = self._kernel.references.delete_reference(
            call.name,
            kind=call.kind,
            expected=self._lake.resolve_optional(call.expected),
            who=call.who,
            **_make_request_key(call),
        )
        return make_reference_as_written(deleted, is_deleted=True)


def _make_request_key(call: calls.WriteCall[Any]) -> _RequestKey:
    """What a reference is told of the key of a request."""
    if call.idempotency_key is None:
        return {}
    return {"key": call.idempotency_key, "asked": request_digest(call)}


class _RequestKey(TypedDict, total=False):
    key: str
    asked: bytes
