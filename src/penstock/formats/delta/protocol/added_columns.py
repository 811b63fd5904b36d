"""Columns that were added to a table: when they change nothing for writers that do not know of them, and what
a table has to which two writers added some.

A file without a column has null in it. So a commit of files that lack a new column goes on top of the commit
that added it, as long as the column may be null and asks nothing else of writers. Parts of structs are like
columns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.mapping import (
    ID,
    MAX_ID,
    PHYSICAL_NAME,
    Mapping,
    mapping_of,
    max_id,
    renumber_columns,
    stored_name,
)
from penstock.formats.rows.schema import (
    ArrayType,
    Field,
    MapType,
    StructType,
    Type,
    parse_schema,
    write_schema,
)

_BINDING: Final = ("delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT")
"""How the names of those notes of a column begin that ask something of writers: expressions, identities,
invariants, defaults."""


@lru_cache(maxsize=64)
def only_adds(before: str, after: str) -> bool:
    """Whether a schema is another one with new columns that may be null, or the same.

    ``MalformedAction`` if one of the two cannot be understood.
    """
    return before == after or _extends(parse_schema(after), parse_schema(before))


def can_hold(schema_string: str, written: str) -> bool:
    """Whether files that were written for a schema can be part of a table with another one.

    They can if every column in them is there, of the same type, and whatever else there is may be null.
    """
    return schema_string == written or _holds(parse_schema(schema_string), parse_schema(written))


def missing_columns(schema_string: str, written: str) -> tuple[str, ...]:
    """The columns of files that a table with a schema does not have so."""
    there = {stored_name(one): one for one in parse_schema(schema_string).fields}
    return tuple(
        field.name
        for field in parse_schema(written).fields
        if (found := there.get(stored_name(field))) is None or not _holds_field(found, field)
    )


def unite(before: Metadata, ours: Metadata, theirs: Metadata) -> Metadata | None:
    """Our metadata with the columns that they added to what was before; ``None`` if they did not only add
    columns, or such as do not go together with ours.

    Ids that both sides have given to new columns are given anew where readers go by physical names; where
    they go by ids, files have them already, and the columns do not go together.
    """
    if _but_columns(before) != _but_columns(theirs):
        return None
    if not only_adds(before.schema_string, theirs.schema_string):
        return None
    was, mine, wanted = (parse_schema(one.schema_string) for one in (before, ours, theirs))
    if mapping_of(ours) is not Mapping.NONE and max_id(ours) != max_id(before) != max_id(theirs):
        if mapping_of(ours) is Mapping.ID:
            return None
        wanted, last = renumber_columns(was, wanted, max_id(ours))
        ours = msgspec.structs.replace(ours, configuration={**ours.configuration, MAX_ID: str(last)})
        theirs = msgspec.structs.replace(theirs, schema_string=write_schema(wanted))
    elif max_id(theirs) > max_id(ours):
        configuration = {**ours.configuration, MAX_ID: str(max_id(theirs))}
        ours = msgspec.structs.replace(ours, configuration=configuration)
    united = _brought(was, mine, wanted)
    if not isinstance(united, StructType):
        return None
    for one, metadata in ((mine, ours), (wanted, theirs)):
        if united == one and _but_schema(metadata) == _but_schema(ours):
            return metadata  # as it is spelled
    return msgspec.structs.replace(ours, schema_string=write_schema(united))


def _but_schema(metadata: Metadata) -> Metadata:
    return msgspec.structs.replace(metadata, schema_string="")


def _but_columns(metadata: Metadata) -> Metadata:
    """What metadata says beside its columns and how many ids these have had."""
    left = {name: text for name, text in metadata.configuration.items() if name != MAX_ID}
    return msgspec.structs.replace(metadata, schema_string="", configuration=left)


def _named(struct: StructType, field: Field) -> Field | None:
    """The field of the same name; names that differ by their case alone are no two fields."""
    return struct.field(field.name)


def _extends(after: Type, before: Type) -> bool:
    """Whether a type is another one, and any further fields of structs in it may be added."""
    match before, after:
        case StructType(), StructType():
            known = [(field, _named(after, field)) for field in before.fields]
            new = (field for field in after.fields if _named(before, field) is None)
            return all(found is not None and _extends_field(found, field) for field, found in known) and all(
                map(_may_be_added, new)
            )
        case ArrayType(), ArrayType():
            is_same = after.contains_null == before.contains_null
            return is_same and _extends(after.element_type, before.element_type)
        case MapType(), MapType():
            is_same = after.value_contains_null == before.value_contains_null
            keys = _extends(after.key_type, before.key_type)
            return is_same and keys and _extends(after.value_type, before.value_type)
        case _:
            return after == before


def _extends_field(after: Field, before: Field) -> bool:
    return (
        after.name == before.name
        and after.nullable == before.nullable
        and _notes(after) == _notes(before)
        and _extends(after.type, before.type)
    )


def _may_be_added(field: Field) -> bool:
    """Whether files may lack a column, and writers need not know of it."""
    parts = (field, *StructType((field,)).walk())
    return all(one.nullable and not any(map(_is_binding, one.metadata)) for one in parts)


def _is_binding(note: str) -> bool:
    return note.startswith(_BINDING) and note not in (ID, PHYSICAL_NAME)


def _brought(before: Type, ours: Type, theirs: Type) -> Type | None:
    """Our type with the fields of structs that theirs has and the one before has not."""
    match before, ours, theirs:
        case StructType(), StructType(), StructType():
            return _with_fields(before, ours, theirs)
        case ArrayType(), ArrayType(), ArrayType():
            element = _brought(before.element_type, ours.element_type, theirs.element_type)
            return None if element is None else msgspec.structs.replace(ours, element_type=element)
        case MapType(), MapType(), MapType():
            key = _brought(before.key_type, ours.key_type, theirs.key_type)
            value = _brought(before.value_type, ours.value_type, theirs.value_type)
            if key is None or value is None:
                return None
            return msgspec.structs.replace(ours, key_type=key, value_type=value)
        case _:
            return ours if before == theirs else None


def _with_fields(before: StructType, ours: StructType, theirs: StructType) -> StructType | None:
    fields = {field.name: field for field in ours.fields}
    for field in theirs.fields:
        was, mine = _named(before, field), _named(ours, field)
        if mine is None:
            if was is None:
                fields[field.name] = field
            elif was.type != field.type:
                return None  # a part of a column that is gone here
            continue
        kind = _both_added(mine, field) if was is None else _brought(was.type, mine.type, field.type)
        if kind is None:
            return None
        fields[mine.name] = msgspec.structs.replace(mine, type=kind)
    return StructType(tuple(fields.values()))


def _both_added(mine: Field, field: Field) -> Type | None:
    """The type of a column that both sides added: one column, with the parts of both, if they agree on it."""
    is_alike = (mine.name, mine.nullable, _notes(mine)) == (field.name, field.nullable, _notes(field))
    if not is_alike:
        return None
    if isinstance(mine.type, StructType) and isinstance(field.type, StructType):
        return _with_fields(StructType(()), mine.type, field.type)
    return mine.type if mine.type == field.type else None


def _notes(field: Field) -> dict[str, object]:
    """What is noted of a column, but for its comment: that is for people."""
    return {name: value for name, value in field.metadata.items() if name != "comment"}


def _holds(there: Type, written: Type) -> bool:
    match there, written:
        case StructType(), StructType():
            wrote = {stored_name(field): field for field in written.fields}
            fields = {stored_name(field): field for field in there.fields}
            return wrote.keys() <= fields.keys() and all(
                _holds_field(field, wrote[name]) if name in wrote else field.nullable
                for name, field in fields.items()
            )
        case ArrayType(), ArrayType():
            may_be_null = there.contains_null or not written.contains_null
            return may_be_null and _holds(there.element_type, written.element_type)
        case MapType(), MapType():
            may_be_null = there.value_contains_null or not written.value_contains_null
            keys = _holds(there.key_type, written.key_type)
            return may_be_null and keys and _holds(there.value_type, written.value_type)
        case _:
            return there == written


def _holds_field(there: Field, written: Field) -> bool:
    is_named = stored_name(there) == stored_name(written)
    return is_named and (there.nullable or not written.nullable) and _holds(there.type, written.type)
