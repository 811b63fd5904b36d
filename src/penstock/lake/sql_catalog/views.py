"""Views of a catalog: what statements say of them, and how a lake keeps them.

A view is an entry of the lake, of the type ``SqlView``. The engine makes it of a statement and expands it
when it is read; the lake keeps it, with its history, on branches. What the view reads is looked up at the
commit that the view itself is read at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.lake.sql_catalog.entries import check_properties
from penstock.lake.sql_catalog.requests import CatalogRequest, ViewDefinition
from penstock.model.content import SqlView
from penstock.model.operations import Put

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.model.keys import Key

DIALECT: Final = "spark"
_RESERVED: Final = frozenset({"owner", "comment", "table_type", "collation"})
"""Properties by which Spark says what has a place of its own, or is not for the lake."""
_PLAIN_TYPE: Final = "VIEW"
_PLAIN_COLLATION: Final = "UTF8_BINARY"
_OWN_SETTINGS: Final = "penstock."
"""How settings begin by which a catalog tells itself where a view was read."""
_VERBS: Final = {"create": "CREATE VIEW", "replace": "ALTER VIEW", "upsert": "CREATE OR REPLACE VIEW"}


def write_view(lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Create a view, or replace one, in one commit.

    ``CommitConflict`` if somebody changed the entry after it was looked at: by this statement, or by the
    engine where the statement changes a part of the view only.
    """
    key, branch = request.written_key
    definition = _check_definition(key, request)
    snapshot = lake.at(branch)
    existing = snapshot.get(key)
    if existing is not None and not isinstance(existing, SqlView):
        return {"is_absent": True} if request.mode == "replace" else {"is_there": True}
    if existing is not None and request.mode == "create":
        return {"is_there": True}
    if existing is None and request.mode == "replace":
        return {"is_absent": True}
    view = SqlView(
        id=existing.id if existing is not None else None,
        sql_text=definition.text,
        dialect=DIALECT,
        columns=definition.columns,
        query_columns=definition.query_columns,
        catalog="" if definition.catalog == request.catalog else definition.catalog,
        namespace=definition.namespace,
        settings={
            name: value for name, value in definition.settings.items() if not name.startswith(_OWN_SETTINGS)
        },
        schema_mode=definition.schema_mode,
        comment=request.properties.get("comment") or "",
        properties=check_properties(request.properties, _RESERVED),
    )
    lake.branch(branch).commit(
        [Put(key, view)],
        message=f"{_VERBS[request.mode]} {key}",
        base=definition.base or snapshot.id,
        create_namespaces=True,
    )
    return {}


def find_view(table: Table) -> SqlView | None:
    """The view that an entry is; ``None`` for anything else. In a transaction, a view counts as read."""
    content = table.outside_read_set.content
    if not isinstance(content, SqlView):
        return None
    table.note_read()
    return content


def is_view(lake: Lake, key: Key, branch: str | None) -> bool:
    """Whether an entry is a view. It counts as no read."""
    try:
        return isinstance(lake.table(key, branch).outside_read_set.content, SqlView)
    except KeyNotFound:
        return False


def describe_view(key: Key, view: SqlView, request: CatalogRequest) -> ViewDefinition:
    """A view as its engine needs it. ``InvalidRequest`` for one of another engine."""
    if view.dialect != DIALECT:
        raise InvalidRequest(f"'{key}' is a view in the dialect '{view.dialect}', which Spark cannot read")
    return ViewDefinition(
        text=view.sql_text,
        columns=view.columns,
        query_columns=view.query_columns,
        catalog=view.catalog or request.catalog,
        namespace=view.namespace,
        settings=view.settings,
        schema_mode=view.schema_mode,
    )


def _check_definition(key: Key, request: CatalogRequest) -> ViewDefinition:
    if request.view is None or request.mode not in _VERBS:
        raise InvalidRequest("the request lacks the field 'view', or says no way to write it in 'mode'")
    if (kind := request.properties.get("table_type")) not in (None, _PLAIN_TYPE):
        raise InvalidRequest(f"'{key}' cannot be a view of the type {kind}: a lake has plain views only")
    if (collation := request.properties.get("collation")) not in (None, "", _PLAIN_COLLATION):
        raise InvalidRequest(
            f"'{key}' is declared with the collation {collation}, and a lake keeps no collations of its own: "
            "leave it out, and compare texts by COLLATE in the view"
        )
    return request.view
