"""Handlers about namespaces, which version 2 treats as contents like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.errors import CommitConflict, InvalidRequest, ReferenceNotFound
from penstock.lake import calls
from penstock.model.content import AnyContent, Namespace
from penstock.model.decoders import get_json_decoder
from penstock.model.keys import Key
from penstock.model.operations import Delete, Operation, Put
from penstock.model.references import Kind
from penstock.server.nessie import json_types, v1_json_types
from penstock.server.nessie.commits import make_commit_description
from penstock.server.nessie.contents import make_nessie_content
from penstock.server.nessie.errors import NessieRefusal, make_error_answer
from penstock.server.nessie.keys import quote_key, read_key
from penstock.server.nessie.pages import BATCH
from penstock.server.nessie.revisions import NessieRevision, ResolvedRevision, is_hash, resolve_revision
from penstock.server.routes import RouteRequest

_HASH_WRONG: Final = "Hash must consist of the hex representation of 4-32 bytes - but was: {}"


class NamespaceQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where to read."""

    hash_on_ref: str = ""


class NamespacesQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which namespaces to list, and where."""

    name: str = ""
    """Only this one and those below it."""
    hash_on_ref: str = ""


def get_namespaces(ask: RouteRequest) -> v1_json_types.GetNamespacesResponse:
    query: NamespacesQuery = ask.query
    place = _resolve_revision(ask, query.hash_on_ref)
    prefix = read_key(query.name) if query.name else None
    namespaces = _list_below(ask, place, prefix)
    return v1_json_types.GetNamespacesResponse(
        namespaces=tuple(
            _shape_namespace(key, held) for key, held in namespaces if isinstance(held, Namespace)
        )
    )


def get_namespace(ask: RouteRequest) -> json_types.NessieNamespace:
    key = read_key(ask.path["name"])
    return _shape_namespace(key, _require_namespace(ask, _resolve_revision(ask, ask.query.hash_on_ref), key))


def create_namespace(ask: RouteRequest) -> json_types.NessieNamespace:
    body: json_types.NessieNamespace | None = ask.body
    if body is None:
        raise InvalidRequest("createNamespace.namespace: must not be null")
    if not body.elements:
        raise InvalidRequest("Namespace name must not be empty")
    key = Key(*body.elements)
    if body.id is not None:
        raise InvalidRequest(f"New value for key '{quote_key(key)}' must not have a content ID")
    place = _resolve_target_branch(ask)
    held = _read_content_at(ask, place, key)
    if held is not None:
        is_same = isinstance(held, Namespace)
        what = (
            f"Namespace '{quote_key(key)}'"
            if is_same
            else f"Another content object with name '{quote_key(key)}'"
        )
        raise NessieRefusal("NAMESPACE_ALREADY_EXISTS", f"{what} already exists")
    namespace = Namespace(properties=body.properties or {})
    after = _commit_namespace(ask, place, f"create namespace '{quote_key(key)}'", Put(key, namespace))
    return _shape_namespace(key, _require_namespace(ask, after, key))


def update_namespace(ask: RouteRequest) -> None:
    body: v1_json_types.NamespaceUpdate | None = ask.body
    if body is None:
        raise InvalidRequest("updateProperties.namespaceUpdate: must not be null")
    key = read_key(ask.path["name"])
    place = _resolve_target_branch(ask)
    held = _require_namespace(ask, place, key)
    removed = frozenset(body.property_removals or ())
    properties = {name: value for name, value in held.properties.items() if name not in removed}
    changed = msgspec.structs.replace(held, properties=properties | (body.property_updates or {}))
    _commit_namespace(ask, place, f"update properties for namespace '{quote_key(key)}'", Put(key, changed))


def delete_namespace(ask: RouteRequest) -> None:
    key = read_key(ask.path["name"])
    place = _resolve_target_branch(ask)
    _require_namespace(ask, place, key)
    if any(not isinstance(held, Namespace) for _, held in _list_below(ask, place, key)):
        raise NessieRefusal("NAMESPACE_NOT_EMPTY", f"Namespace '{quote_key(key)}' is not empty")
    _commit_namespace(ask, place, f"delete namespace '{quote_key(key)}'", Delete(key))


# -- the parts ---------------------------------------------------------------------------------------------


def _resolve_revision(ask: RouteRequest, commit: str) -> ResolvedRevision:
    if commit and not is_hash(commit):
        raise InvalidRequest(_HASH_WRONG.format(commit))
    return resolve_revision(
        ask.catalogue, NessieRevision(name=ask.path["ref"], commit=commit.lower() or None)
    )


def _resolve_target_branch(ask: RouteRequest) -> ResolvedRevision:
    """The branch that is written to, as it is now."""
    place = resolve_revision(ask.catalogue, NessieRevision(name=ask.path["ref"]))
    if place.reference is None or place.reference.kind is Kind.TAG:
        raise ReferenceNotFound(f"there is no branch '{ask.path['ref']}'", name=ask.path["ref"])
    return place


def _read_content_at(ask: RouteRequest, resolved: ResolvedRevision, key: Key) -> AnyContent | None:
    entries = ask.catalogue.do(calls.GetContents(at=resolved.commit, via=resolved.name, key=(key,)))
    return entries[0].content if entries else None


def _require_namespace(ask: RouteRequest, resolved: ResolvedRevision, key: Key) -> Namespace:
    held = _read_content_at(ask, resolved, key)
    if not isinstance(held, Namespace):
        raise NessieRefusal(
            "NAMESPACE_NOT_FOUND", f"Namespace '{quote_key(key)}' does not exist", missing=key
        )
    return held


def _list_below(
    ask: RouteRequest, resolved: ResolvedRevision, prefix: Key | None
) -> Iterator[tuple[Key, AnyContent]]:
    """A key and everything below it, read page by page."""
    after: Key | None = None
    while entries := ask.catalogue.do(
        calls.ListEntries(at=resolved.commit, via=resolved.name, prefix=prefix, after=after, limit=BATCH)
    ):
        yield from ((entry.key, entry.content) for entry in entries)
        after = entries[-1].key


def _commit_namespace(
    ask: RouteRequest, resolved: ResolvedRevision, message: str, operation: Operation
) -> ResolvedRevision:
    """The branch after a commit. What changed since it was read is refused as Nessie refuses it here."""
    try:
        commit = ask.catalogue.do(
            calls.CommitOperations(
                branch=resolved.name,
                operations=(operation,),
                base=resolved.commit,
                said=make_commit_description(None, ask.headers, message),
                idempotency_key=ask.headers.get("idempotency-key"),
            )
        )
    except CommitConflict as conflict:
        error = get_json_decoder(json_types.NessieError).decode(make_error_answer(conflict, {}).body)
        raise NessieRefusal("REFERENCE_NOT_FOUND", error.message) from None
    return ResolvedRevision(reference=resolved.reference, commit=commit.id)


def _shape_namespace(key: Key, held: Namespace) -> json_types.NessieNamespace:
    content = make_nessie_content(key, held)
    assert isinstance(content, json_types.NessieNamespace)
    return content
