"""Commits: Nessie's rules for the ids of contents, checked where the writer looked, then one commit.

A new content has no id yet, an existing one is put with its own, and a content that is deleted and put
elsewhere in the same commit is renamed. The rules are checked at the expected hash. The lake then refuses
the commit if any of its keys changed since, so that they hold where the commit lands as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from penstock.errors import InvalidRequest
from penstock.lake import calls
from penstock.lake.catalogue import Catalogue
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.operations import Delete, Operation, Put, Unchanged
from penstock.server.limits import Limits
from penstock.server.nessie import json_types
from penstock.server.nessie.commits import make_commit_description
from penstock.server.nessie.contents import (
    get_sent_type_name,
    get_type_name,
    parse_identity,
    parse_nessie_content,
)
from penstock.server.nessie.keys import quote_key
from penstock.server.nessie.revisions import ResolvedRevision, parse_path, resolve_target
from penstock.server.nessie.violations import find_bad_path, find_empty, find_null, raise_violations
from penstock.server.routes import RouteRequest
from penstock.wire.requests import KEY_HEADER

KEY: Final = {
    KEY_HEADER: "At most 200 characters. Makes it safe to repeat the request when no response arrived."
}
"""The header of writes that Nessie does not know, but Penstock does."""


def handle_commit(ask: RouteRequest) -> json_types.CommitResponse:
    raise_violations(
        find_body_violation(ask.body), find_bad_path(ask.path["branch"], "commitMultipleOperations.branch")
    )
    body: json_types.Operations = ask.body
    revision = parse_path(ask.path["branch"], ask.catalogue, "commitMultipleOperations.branch")
    about = make_commit_description(body.commit_meta, ask.headers)
    operations = body.operations or ()
    check_count(operations, ask.limits)
    target = resolve_target(ask.catalogue, revision, "Reference to commit into")
    made, added = commit_operations(
        ask.catalogue, target, operations, about, ask.headers.get("idempotency-key")
    )
    return json_types.CommitResponse(
        target_branch=json_types.NessieBranch(name=target.name or "", hash=made.id),
        added_contents=added or None,
    )


def find_body_violation(body: json_types.Operations | None) -> str | None:
    """What is wrong with a commit as a whole: that there is none, or nothing in it."""
    if body is None:
        return find_null(body, "commitMultipleOperations.operations")
    return find_empty(body.operations, "commitMultipleOperations.operations.operations")


def check_count(operations: Sequence[json_types.AnyOperation], limits: Limits) -> None:
    """Refuse a commit with too many operations."""
    if len(operations) > limits.operations_max:
        raise InvalidRequest(
            f"a commit can have at most {limits.operations_max} operations, got {len(operations)}"
        )


def commit_operations(
    catalogue: Catalogue,
    target: ResolvedRevision,
    operations: Sequence[json_types.AnyOperation],
    about: calls.CommitDescription,
    idempotency_key: str | None = None,
) -> tuple[Commit, tuple[json_types.AddedContent, ...]]:
    """Commit to a branch what was decided at one of its commits; also give the ids of what is new."""
    keys = _require_unique_keys(operations)
    read = catalogue.do(calls.GetContents(at=target.commit, via=target.name, key=keys))
    held = {entry.key: entry.content for entry in read}
    planned = _CommitPlan(held, operations)
    planned_operations = tuple(map(planned.make_operation, operations, keys))
    made_commit = catalogue.do(
        calls.CommitOperations(
            branch=target.name,
            operations=planned_operations,
            said=about,
            base=target.commit,
            idempotency_key=idempotency_key,
        )
    )
    return made_commit, _list_added_contents(catalogue, target, made_commit, planned.added)


class _CommitPlan:
    """What each operation of a commit means, given what its keys held."""

    def __init__(self, held: dict[Key, AnyContent], operations: Iterable[json_types.AnyOperation]) -> None:
        self._held = held
        self._deleted = {
            Key(*operation.key.elements)
            for operation in operations
            if isinstance(operation, json_types.DeleteOperation)
        }
        self._freed: dict[UUID | None, AnyContent] = {
            held[key].id: held[key] for key in self._deleted if key in held
        }
        self.added: list[Key] = []
        """Keys of contents that are new."""

    def make_operation(self, operation: json_types.AnyOperation, key: Key) -> Operation:
        if isinstance(operation, json_types.DeleteOperation):
            return Delete(key)
        if isinstance(operation, json_types.UnchangedOperation):
            return Unchanged(key)
        return Put(key, self._make_content(key, operation.content))

    def _make_content(self, key: Key, content: json_types.AnyContent) -> AnyContent:
        identity = parse_identity(content)
        before = self._read_previous_content(key, identity)
        if before is None:
            if identity is not None:
                raise InvalidRequest(f"New value for key '{quote_key(key)}' must not have a content ID")
            self.added.append(key)
            return parse_nessie_content(key, content)
        if identity is None:
            raise InvalidRequest(f"New value to update existing key '{quote_key(key)}' has no content ID")
        if identity != before.id:
            raise InvalidRequest(
                f"Key '{quote_key(key)}' already exists with content ID {before.id}, which is different from "
                f"the content ID {content.id} in the operation"
            )
        if get_sent_type_name(content) != get_type_name(before):
            raise InvalidRequest(
                f"Key '{quote_key(key)}' cannot hold the content with ID {before.id} as "
                f"{get_sent_type_name(content)}: it is of type {get_type_name(before)}, "
                "and a content keeps its type"
            )
        return parse_nessie_content(key, content, before)

    def _read_previous_content(self, key: Key, identity: UUID | None) -> AnyContent | None:
        """The content that a put goes on with; none if it is a new one."""
        existing = self._held.get(key)
        if existing is None:
            return self._freed.pop(identity, None) if identity is not None else None
        is_created_anew = identity is None and key in self._deleted
        return None if is_created_anew else existing


def _require_unique_keys(operations: Iterable[json_types.AnyOperation]) -> tuple[Key, ...]:
    """The keys of operations. None may stand there twice, except to be deleted and then created anew."""
    seen: dict[Key, json_types.AnyOperation] = {}
    keys: list[Key] = []
    for operation in operations:
        key = Key(*operation.key.elements)
        previous = seen.get(key)
        is_created_anew = (
            isinstance(previous, json_types.DeleteOperation)
            and isinstance(operation, json_types.PutOperation)
            and operation.content.id is None
        )
        if previous is not None and not is_created_anew:
            raise InvalidRequest(f"Duplicate key in commit operations: {quote_key(key)}")
        seen[key] = operation
        keys.append(key)
    return tuple(keys)


def _list_added_contents(
    catalogue: Catalogue, target: ResolvedRevision, commit: Commit, keys: list[Key]
) -> tuple[json_types.AddedContent, ...]:
    if not keys:
        return ()
    entries = catalogue.do(calls.GetContents(at=commit.id, via=target.name, key=tuple(keys)))
    return tuple(
        json_types.AddedContent(
            key=json_types.ContentKey(elements=tuple(entry.key)), content_id=str(entry.content.id)
        )
        for entry in entries
    )
