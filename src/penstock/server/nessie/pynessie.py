"""Pynessie: the shapes of contents that this one client of version 1 can parse.

Pynessie fails on a namespace with properties, and on a view or a Delta table that lacks a text, also with
Nessie itself. It has no user agent of its own, only that of the library that makes its requests. A client
that reads a namespace, changes it and puts it back must see all properties, or the put removes the others.
So only a client with that user agent is shown a namespace without properties, and its puts keep what exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec
from msgspec import UNSET

from penstock.lake import calls
from penstock.lake.catalogue import Catalogue
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.server.nessie import json_types
from penstock.server.nessie.contents import parse_identity
from penstock.server.nessie.revisions import parse_path, resolve_target

_USER_AGENT: Final = "python-requests/"


def is_pynessie(headers: Mapping[str, str]) -> bool:
    """Whether a request may come from pynessie."""
    return headers.get("user-agent", "").lower().startswith(_USER_AGENT)


def make_content_view(content: json_types.AnyContent, headers: Mapping[str, str]) -> json_types.AnyContent:
    """A content as the client that sent the headers can parse it."""
    if not is_pynessie(headers):
        return content
    if isinstance(content, json_types.NessieNamespace):
        return msgspec.structs.replace(content, properties=UNSET)
    if isinstance(content, json_types.NessieIcebergView):
        return msgspec.structs.replace(
            content, sql_text=content.sql_text or "", dialect=content.dialect or ""
        )
    if isinstance(content, json_types.DeltaLakeTable):
        return msgspec.structs.replace(content, last_checkpoint=content.last_checkpoint or "")
    return content


def keep_properties(
    catalogue: Catalogue, path: str, operations: json_types.Operations
) -> json_types.Operations:
    """The operations of a client that is not shown a namespace's properties: existing ones stay.

    Properties that the client gives are set. It can remove none by a put, because it was shown none. ``path``
    names the branch and the commit that the client knows, as in version 2.
    """
    listed = operations.operations or ()
    if not any(_put_namespace(operation) for operation in listed):
        return operations
    revision = parse_path(path, catalogue, "commitMultipleOperations.branch")
    target = resolve_target(catalogue, revision, "Reference to commit into")
    keys = tuple({Key(*operation.key.elements) for operation in listed})
    entries = catalogue.do(calls.GetContents(at=target.commit, via=target.name, key=keys))
    namespaces = {
        entry.content.id: entry.content for entry in entries if isinstance(entry.content, Namespace)
    }
    return msgspec.structs.replace(
        operations, operations=tuple(_keep_properties(operation, namespaces) for operation in listed)
    )


def _put_namespace(operation: json_types.AnyOperation) -> json_types.NessieNamespace | None:
    """The namespace that an operation puts, if it is an existing one."""
    if not isinstance(operation, json_types.PutOperation) or not isinstance(
        operation.content, json_types.NessieNamespace
    ):
        return None
    return operation.content if operation.content.id is not None else None


def _keep_properties(
    operation: json_types.AnyOperation, namespaces: Mapping[UUID | None, Namespace]
) -> json_types.AnyOperation:
    namespace = _put_namespace(operation)
    before = namespaces.get(parse_identity(namespace)) if namespace is not None else None
    if namespace is None or before is None:
        return operation
    content = msgspec.structs.replace(namespace, properties=before.properties | (namespace.properties or {}))
    return msgspec.structs.replace(operation, content=content)
