"""Ids of new columns of a table whose files hold them: reserved for all branches before files are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.formats.delta.lake.calls import ReserveColumnIds
from penstock.formats.delta.protocol.column_mapping import (
    MAX_ID,
    ColumnMapping,
    get_column_mapping,
    get_max_column_id,
    has_ids_in_files,
    renumber_columns,
)
from penstock.formats.rows.schema import parse_schema, write_schema

if TYPE_CHECKING:
    from penstock.formats.delta.protocol.actions import Metadata
    from penstock.lake.lake import Lake
    from penstock.model.keys import Key


def reserve_column_ids(lake: Lake, key: Key, branch: str, before: Metadata, after: Metadata) -> Metadata:
    """What a table is to become, in which new columns have ids that no other branch gives to a column.

    Where readers go by names, a merge gives ids anew, and none has to be reserved; nor for a table whose
    columns become mapped, which no other branch can do beside it.
    """
    count = get_max_column_id(after) - get_max_column_id(before)
    if count <= 0 or get_column_mapping(before) is ColumnMapping.NONE or not has_ids_in_files(after):
        return after
    last = lake.do(ReserveColumnIds(key=key, branch=branch, count=count)).last
    if last == get_max_column_id(after):
        return after
    known_columns, columns = parse_schema(before.schema_string), parse_schema(after.schema_string)
    numbered, _ = renumber_columns(known_columns, columns, last - count)
    configuration = {**after.configuration, MAX_ID: str(max(last, get_max_column_id(after)))}
    return replace(after, schema_string=write_schema(numbered), configuration=configuration)
