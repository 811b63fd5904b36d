"""ALTER TABLE: the changes of a statement, carried out by the calls that alter Delta tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.model.decoders import get_json_decoder

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.sql_catalog.requests import StatementChange
    from penstock.model.keys import Key

RESERVED: Final = frozenset({"location", "provider", "external", "is_managed_location"})
"""What Spark sets as a property and is none of the table's: ``SET LOCATION``, for one."""


def alter_table(lake: Lake, key: Key, branch: str | None, changes: Sequence[StatementChange]) -> None:
    """Carry out a statement, by one commit. ``InvalidRequest`` for one that would take several."""
    if not changes:
        raise InvalidRequest(f"the request contains no change of '{key}'")
    kind, first = changes[0].kind, changes[0]
    if any(change.kind != kind for change in changes):
        raise InvalidRequest(f"change '{key}' by several statements, with one change in each")
    tables = lake.delta
    match kind:
        case "SetProperty" if [change.name for change in changes] == ["comment"]:
            tables.set_description(key, first.value, branch=branch)
        case "SetProperty":
            properties = {change.name: change.value for change in changes}
            if reserved := sorted(RESERVED & set(properties)):
                raise InvalidRequest(
                    f"'{reserved[0]}' of '{key}' cannot be set: the lake chooses the location and the format"
                )
            tables.set_properties(key, properties, branch=branch)
        case "RemoveProperty":
            names = [change.name for change in changes]
            tables.unset_properties(key, names, if_exists=True, branch=branch)
        case "AddColumn":
            fields = [_make_new_field(key, change) for change in changes]
            schema = msgspec.json.encode({"type": "struct", "fields": fields}).decode()
            tables.add_columns(key, schema, branch=branch)
        case "RenameColumn" if len(changes) == 1:
            tables.rename_column(key, first.column, first.name, branch=branch)
        case "DeleteColumn" if len(changes) == 1:
            tables.drop_column(key, first.column, branch=branch)
        case "UpdateColumnComment" if len(changes) == 1:
            tables.comment_column(key, first.column, first.comment, branch=branch)
        case "UpdateColumnNullability" if len(changes) == 1 and first.is_nullable:
            tables.drop_not_null(key, first.column, branch=branch)
        case "UpdateColumnNullability" if len(changes) == 1:
            tables.set_not_null(key, first.column, branch=branch)
        case _:
            raise InvalidRequest(f"SQL cannot make this change to '{key}'; lake.delta has further calls")


def _make_new_field(key: Key, change: StatementChange) -> dict[str, Any]:
    if len(change.column) > 1 or change.position or change.default or not change.is_nullable:
        raise InvalidRequest(
            f"columns are added to '{key}' at the end, without NOT NULL and DEFAULT; lake.delta has further "
            "calls"
        )
    name = "".join(change.column)
    comment = {"comment": change.comment} if change.comment else {}
    try:
        kind = get_json_decoder(Any).decode(change.type)
    except msgspec.MsgspecError:
        raise InvalidRequest(f"the column '{name}' of '{key}' has a type that cannot be parsed") from None
    return {"name": name, "type": kind, "nullable": True, "metadata": comment}
