"""Tables and namespaces by their names: what SHOW, DROP, RENAME and the statements about namespaces ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import CommitConflict, InvalidRequest
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.model.content import AnyContent, Namespace, SqlView
from penstock.model.keys import Key
from penstock.model.operations import Delete, Operation, Put

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

Answer: TypeAlias = dict[str, Any]


def list_tables(lake: Lake, request: CatalogRequest) -> Answer:
    """The names of the tables and of the views right in a namespace."""
    contents = dict(_list_entries(lake, request))
    if request.names and not contents:
        return {"is_absent": True}
    depth = len(request.names) + 1
    inside = {key.elements[-1]: content for key, content in contents.items() if len(key.elements) == depth}
    return {
        "tables": [name for name, content in inside.items() if _is_table(content)],
        "views": [name for name, content in inside.items() if isinstance(content, SqlView)],
    }


def list_namespaces(lake: Lake, request: CatalogRequest) -> Answer:
    """The names of the namespaces right in another, also of those that only their tables tell of."""
    contents = dict(_list_entries(lake, request))
    if request.names and not contents:
        return {"is_absent": True}
    depth = len(request.names)
    names = {
        key.elements[depth]
        for key, content in contents.items()
        if len(key.elements) > depth + 1
        or (len(key.elements) == depth + 1 and isinstance(content, Namespace))
    }
    return {"namespaces": sorted(names)}


def get_namespace(lake: Lake, request: CatalogRequest) -> Answer:
    """The properties of a namespace."""
    contents = dict(_list_entries(lake, request))
    if request.names and not contents:
        return {"is_absent": True}
    content = contents.get(Key(*request.names)) if request.names else None
    return {"properties": content.properties if isinstance(content, Namespace) else {}}


def create_namespace(lake: Lake, request: CatalogRequest) -> Answer:
    """Create a namespace, and those above it."""
    properties = {name: value for name, value in request.properties.items() if value is not None}
    try:
        lake.branch(request.branch).create_namespace(Key(*request.names), properties)
    except CommitConflict:
        return {"is_there": True}
    return {}


def alter_namespace(lake: Lake, request: CatalogRequest) -> Answer:
    """Set and remove properties of a namespace."""
    key = Key(*request.names)
    content = lake.at(request.branch).get(key)
    if not isinstance(content, Namespace):
        return {"is_absent": True}
    changed = content.properties | request.properties
    properties = {name: value for name, value in changed.items() if value is not None}
    namespace = Namespace(id=content.id, properties=properties)
    lake.branch(request.branch).put(key, namespace, message=f"set properties of {key}")
    return {}


def drop_namespace(lake: Lake, request: CatalogRequest) -> Answer:
    """Drop a namespace; with all that is in it if the statement says CASCADE, in one commit."""
    key = Key(*request.names)
    contents = dict(_list_entries(lake, request))
    if not contents:
        return {"is_absent": True}
    inside = [path for path in contents if path != key]
    if inside and not request.cascade:
        return {"is_filled": True}
    operations = [Delete(path) for path in sorted(contents, key=lambda path: -len(path.elements))]
    lake.branch(request.branch).commit(operations, message=f"drop namespace {key}")
    return {"is_done": True}


def drop_table(lake: Lake, request: CatalogRequest) -> Answer:
    """Drop a table or a view. Its rows stay reachable by earlier revisions."""
    key, branch = request.written_key
    if not _is_wanted(lake.at(branch).get(key), request):
        return {"is_done": False}
    lake.branch(branch).drop(key)
    return {"is_done": True}


def rename_table(lake: Lake, request: CatalogRequest) -> Answer:
    """Give a table or a view another name. It stays the same, and so does its place in storage."""
    key, branch = request.written_key
    new = Key(*request.to)
    if request.to[:1] == (request.catalog,) and len(request.to) > 1:
        new = Key(*request.to[1:])  # Spark passes on the name of the catalog
    snapshot = lake.at(branch)
    contents = snapshot.get_many([key, new])
    content = contents.get(key)
    if content is None or not _is_wanted(content, request):
        return {"is_absent": True}
    if new in contents:
        return {"is_there": True}
    operations: list[Operation] = [Delete(key), Put(new, content)]
    lake.branch(branch).commit(
        operations, message=f"rename {key} to {new}", base=snapshot.id, create_namespaces=True
    )
    return {}


def check_properties(properties: dict[str, str | None], known: frozenset[str]) -> dict[str, str]:
    """The properties of a table without those that Spark adds for itself. ``InvalidRequest`` for a place."""
    if "location" in properties:
        raise InvalidRequest(
            "LOCATION is not supported, because the lake chooses the location of a table: leave it out; an "
            "existing table is taken over by 'penstock delta adopt'"
        )
    return {name: value for name, value in properties.items() if name not in known and value is not None}


def _list_entries(lake: Lake, request: CatalogRequest) -> Iterator[tuple[Key, AnyContent]]:
    snapshot = lake.at(request.branch)
    return snapshot.entries(Key(*request.names) if request.names else None)


def _is_wanted(content: AnyContent | None, request: CatalogRequest) -> bool:
    """Whether an entry is what a statement is about."""
    return isinstance(content, SqlView) if request.is_view else _is_table(content)


def _is_table(content: AnyContent | None) -> bool:
    return content is not None and not isinstance(content, Namespace | SqlView)
