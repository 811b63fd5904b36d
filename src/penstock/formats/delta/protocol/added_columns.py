"""Columns that were added to a table or widened: when that changes nothing for writers that do not know of
it, and what a table is that two writers changed.

A file without a column has null in it, and a file of a narrower type is read as the wider one. So a commit of
files that lack a new column goes on top of the commit that added it, as long as the column may be null and
asks nothing else of writers. Parts of structs are like columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from functools import lru_cache
from typing import Final, Literal, TypeVar

import msgspec

from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_changes import is_named
from penstock.formats.delta.protocol.column_mapping import (
    COLUMN_NOTES,
    MAX_ID,
    PHYSICAL_NAME,
    ColumnMapping,
    get_column_mapping,
    get_max_column_id,
    has_ids_in_files,
    renumber_columns,
    stored_name,
)
from penstock.formats.delta.protocol.column_rules import HIGH_WATER_MARK, IDENTITY_STEP
from penstock.formats.delta.protocol.wider_types import TYPE_CHANGES, is_wider
from penstock.formats.rows.schema import (
    ArrayType,
    Field,
    MapType,
    StructType,
    Type,
    parse_schema,
    write_schema,
)

_Value = TypeVar("_Value")
_BINDING: Final = ("delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT")
"""How the names of those notes of a column begin that ask something of writers: expressions, identities,
invariants, defaults."""


@lru_cache(maxsize=64)
def only_adds_columns(before: str, after: str) -> bool:
    """Whether a schema is another one with new columns that may be null, or the same.

    ``MalformedAction`` if one of the two cannot be understood.
    """
    return only_adds_or_renames_columns(before, after) and not _find_renamed_columns(before, after)


@lru_cache(maxsize=64)
def only_adds_or_renames_columns(before: str, after: str) -> bool:
    """The same, but that columns may have got other names, too: those in files have stayed."""
    return before == after or _is_extended_by(parse_schema(after), parse_schema(before))


def can_hold_files(schema_string: str, schema_to_write: str) -> bool:
    """Whether files that were written for a schema can be part of a table with another one.

    They can if every column in them is there, of the same type, and whatever else there is may be null.
    """
    return schema_string == schema_to_write or _can_hold_type(
        parse_schema(schema_string), parse_schema(schema_to_write)
    )


def missing_columns(schema_string: str, schema_to_write: str) -> tuple[str, ...]:
    """The columns of files that a table with a schema does not have so."""
    fields = {stored_name(item): item for item in parse_schema(schema_string).fields}
    return tuple(
        field.name
        for field in parse_schema(schema_to_write).fields
        if (fields_after := fields.get(stored_name(field))) is None
        or not _can_hold_field(fields_after, field)
    )


def merge_metadata(before: Metadata, ours: Metadata, theirs: Metadata) -> Metadata | None:
    """Our metadata with everything that they changed of what was before; ``None`` if that does not go
    together.

    Ids that both sides have given to new columns are given anew where readers go by physical names. Where
    they go by ids, as Iceberg does, files have them already, and columns of the same id do not go together.
    """
    is_given_on_both = get_max_column_id(ours) != get_max_column_id(before) != get_max_column_id(theirs)
    if get_column_mapping(ours) is not ColumnMapping.NONE and is_given_on_both and not has_ids_in_files(ours):
        before_field, theirs_field = parse_schema(before.schema_string), parse_schema(theirs.schema_string)
        renumbered, last = renumber_columns(before_field, theirs_field, get_max_column_id(ours))
        configuration = {**theirs.configuration, MAX_ID: str(last)}
        theirs = msgspec.structs.replace(
            theirs, schema_string=write_schema(renumbered), configuration=configuration
        )
    return _merge_metadata(before, ours, theirs)


def has_their_changes(before: Metadata, ours: Metadata, theirs: Metadata) -> bool:
    """Whether our metadata has everything that they changed of what was before."""
    fields_after = _merge_metadata(before, ours, theirs)
    return fields_after is not None and _parse_metadata(fields_after) == _parse_metadata(ours)


def _parse_metadata(metadata: Metadata) -> tuple[Metadata, StructType]:
    return msgspec.structs.replace(metadata, schema_string=""), parse_schema(metadata.schema_string)


def _merge_metadata(before: Metadata, ours: Metadata, theirs: Metadata) -> Metadata | None:
    names = before.configuration.keys() | ours.configuration.keys() | theirs.configuration.keys()
    configuration: dict[str, str] = {}
    for name in sorted(names, key=[*ours.configuration, *theirs.configuration, *before.configuration].index):
        old, mine, new = (side.configuration.get(name) for side in (before, ours, theirs))
        choice = (
            str(max(get_max_column_id(ours), get_max_column_id(theirs)))
            if name == MAX_ID
            else _choose_value(old, mine, new)
        )
        if choice is _CLASH:
            return None
        if isinstance(choice, str):
            configuration[name] = choice
    others: dict[str, object] = {}
    for name in ("id", "partition_columns", "format", "name", "description", "created_time"):
        others[name] = _choose_value(*(getattr(item, name) for item in (before, ours, theirs)))
        if others[name] is _CLASH:
            return None
    united = _merge_type(*(parse_schema(item.schema_string) for item in (before, ours, theirs)))
    if not isinstance(united, StructType):
        return None
    # As it is spelled, where it is the same.
    spelled = (item.schema_string for item in (ours, theirs) if parse_schema(item.schema_string) == united)
    schema_string = next(spelled, None) or write_schema(united)
    metadata = msgspec.structs.replace(
        ours, schema_string=schema_string, configuration=configuration, **others
    )
    renamed = _find_renamed_columns(before.schema_string, schema_string)
    return None if any(is_named(metadata, [name]) for name in renamed) else metadata


class _ValueClash(Enum):
    """That two sides changed something in two ways."""

    CLASH = auto()


_CLASH: Final = _ValueClash.CLASH


def _choose_value(before: _Value, ours: _Value, theirs: _Value) -> _Value | Literal[_ValueClash.CLASH]:
    """What both sides make of a value."""
    if theirs in (before, ours):
        return ours
    return theirs if ours == before else _CLASH


def _find_field(struct: StructType, field: Field) -> Field | None:
    """The field of the same name, ignoring case."""
    return struct.field(field.name)


def _is_extended_by(after: Type, before: Type) -> bool:
    """Whether a type is another one, and any further fields of structs in it may be added."""
    match before, after:
        case StructType(), StructType():
            pairs = [(field, _find_same_field(after, field)) for field in before.fields]
            new = (field for field in after.fields if _find_same_field(before, field) is None)
            return all(
                fields_after is not None and _is_field_extended(fields_after, field)
                for field, fields_after in pairs
            ) and all(map(_may_be_added, new))
        case ArrayType(), ArrayType():
            is_same = after.contains_null == before.contains_null
            return is_same and _is_extended_by(after.element_type, before.element_type)
        case MapType(), MapType():
            is_same = after.value_contains_null == before.value_contains_null
            keys = _is_extended_by(after.key_type, before.key_type)
            return is_same and keys and _is_extended_by(after.value_type, before.value_type)
        case str(), str():
            return after == before or is_wider(after, before)
        case _:
            return after == before


def _is_field_extended(after: Field, before: Field) -> bool:
    return (
        (after.name == before.name or PHYSICAL_NAME in before.metadata)
        and after.nullable == before.nullable
        and _select_metadata_binding_rows(after) == _select_metadata_binding_rows(before)
        and choose_furthest_mark(after, before) == after.metadata.get(HIGH_WATER_MARK)
        and _is_extended_by(after.type, before.type)
    )


def _may_be_added(field: Field) -> bool:
    """Whether files may lack a column, and writers need not know of it."""
    parts = (field, *StructType((field,)).walk())
    return all(item.nullable and not any(map(_is_binding, item.metadata)) for item in parts)


def _is_binding(note: str) -> bool:
    return note.startswith(_BINDING) and note not in COLUMN_NOTES


def _merge_type(before: Type, ours: Type, theirs: Type) -> Type | None:
    """Our type with what they made of the one before: fields of structs, wider types."""
    match before, ours, theirs:
        case StructType(), StructType(), StructType():
            return _merge_fields(before, ours, theirs)
        case ArrayType(), ArrayType(), ArrayType():
            element = _merge_type(before.element_type, ours.element_type, theirs.element_type)
            may_be_null = _choose_value(before.contains_null, ours.contains_null, theirs.contains_null)
            if element is None or may_be_null is _CLASH:
                return None
            return ArrayType(element_type=element, contains_null=may_be_null)
        case MapType(), MapType(), MapType():
            key = _merge_type(before.key_type, ours.key_type, theirs.key_type)
            value = _merge_type(before.value_type, ours.value_type, theirs.value_type)
            if key is None or value is None:
                return None
            return msgspec.structs.replace(ours, key_type=key, value_type=value)
        case _:
            choice = _choose_value(before, ours, theirs)
            return None if choice is _CLASH else choice


def _merge_fields(before: StructType, ours: StructType, theirs: StructType) -> StructType | None:
    fields = {stored_name(field): field for field in ours.fields}
    for before_field in before.fields:
        mine, theirs_field = _find_same_field(ours, before_field), _find_same_field(theirs, before_field)
        if mine is None or theirs_field is None:
            if (mine or theirs_field or before_field) != before_field:
                return None  # dropped here, and changed there
            if mine is not None:
                del fields[stored_name(mine)]
            continue
        field = _unite_field(before_field, mine, theirs_field)
        if field is None:
            return None
        fields[stored_name(mine)] = field
    for theirs_field in theirs.fields:
        if _find_same_field(before, theirs_field) is not None:
            continue
        mine = _find_field(ours, theirs_field)
        if mine is not None and _find_same_field(before, mine) is not None:
            mine = None  # which has another name by now, or the two do not go together
        if mine is not None:
            kind = _merge_added_types(mine, theirs_field)
            if kind is None:
                return None
            theirs_field = msgspec.structs.replace(mine, type=kind)
        fields[stored_name(theirs_field if mine is None else mine)] = theirs_field
    fields_after = tuple(fields.values())
    if len({item.name.lower() for item in fields_after}) < len(fields_after):
        return None
    return StructType(_order_merged_fields(fields_after, before, ours, theirs))


def _find_same_field(struct: StructType, field: Field) -> Field | None:
    """The same field in another struct: by its physical name, if it has one, whatever it is called."""
    stored = field.metadata.get(PHYSICAL_NAME)
    if stored is None:
        return _find_field(struct, field)
    by_stored = next((item for item in struct.fields if item.metadata.get(PHYSICAL_NAME) == stored), None)
    if by_stored is not None:
        return by_stored
    named = _find_field(struct, field)
    return named if named is not None and PHYSICAL_NAME not in named.metadata else None


@lru_cache(maxsize=64)
def _find_renamed_columns(before: str, after: str) -> tuple[str, ...]:
    """The names of columns, and of parts of some, that have other ones afterwards."""
    return () if before == after else tuple(_list_renamed_in(parse_schema(before), parse_schema(after)))


def _list_renamed_in(before: Type, after: Type) -> Iterator[str]:
    match before, after:
        case StructType(), StructType():
            for field in before.fields:
                if (field_after := _find_same_field(after, field)) is not None:
                    if field_after.name != field.name:
                        yield field.name
                    yield from _list_renamed_in(field.type, field_after.type)
        case ArrayType(), ArrayType():
            yield from _list_renamed_in(before.element_type, after.element_type)
        case MapType(), MapType():
            yield from _list_renamed_in(before.key_type, after.key_type)
            yield from _list_renamed_in(before.value_type, after.value_type)


def _unite_field(before: Field, ours: Field, theirs: Field) -> Field | None:
    """A field that both sides have, with what each made of it."""
    kind = _merge_type(before.type, ours.type, theirs.type)
    name = _choose_value(before.name, ours.name, theirs.name)
    nullable = _choose_value(before.nullable, ours.nullable, theirs.nullable)
    if kind is None or name is _CLASH or nullable is _CLASH:
        return None
    notes: dict[str, object] = {}
    for note in {**ours.metadata, **theirs.metadata}:
        if note == HIGH_WATER_MARK:
            notes[note] = choose_furthest_mark(ours, theirs)
            continue
        choice = _choose_value(*(item.metadata.get(note) for item in (before, ours, theirs)))
        if choice is _CLASH:
            return None
        if choice is not None:
            notes[note] = choice
    return Field(name=name, type=kind, nullable=nullable, metadata=notes)


def _order_merged_fields(
    fields: tuple[Field, ...], before: StructType, ours: StructType, theirs: StructType
) -> tuple[Field, ...]:
    """Fields in our order; in theirs, if only they changed it."""
    if _is_moved(before, ours) or not _is_moved(before, theirs):
        return fields
    places = {stored_name(field): place for place, field in enumerate(theirs.fields)}
    return tuple(sorted(fields, key=lambda field: places.get(stored_name(field), len(places))))


def _is_moved(before: StructType, after: StructType) -> bool:
    """Whether the fields that both have stand in another order."""
    old, new = ([stored_name(field) for field in struct.fields] for struct in (before, after))
    return [name for name in old if name in new] != [name for name in new if name in old]


def _merge_added_types(mine: Field, field: Field) -> Type | None:
    """The type of a column that both sides added: one column, with the parts of both, if they agree on it."""
    is_alike = (mine.name, mine.nullable, _select_metadata_binding_rows(mine)) == (
        field.name,
        field.nullable,
        _select_metadata_binding_rows(field),
    )
    if not is_alike:
        return None
    if isinstance(mine.type, StructType) and isinstance(field.type, StructType):
        return _merge_fields(StructType(()), mine.type, field.type)
    return mine.type if mine.type == field.type else None


def choose_furthest_mark(field: Field, other: Field) -> object:
    """The high-water mark of an identity column that has two: the one further in its direction."""
    marks = [mark for each in (field, other) if isinstance(mark := each.metadata.get(HIGH_WATER_MARK), int)]
    if not marks:
        return None
    step = field.metadata.get(IDENTITY_STEP)
    return min(marks) if isinstance(step, int) and step < 0 else max(marks)


_NOT_BINDING: Final = ("comment", TYPE_CHANGES, HIGH_WATER_MARK)


def _select_metadata_binding_rows(field: Field) -> dict[str, object]:
    """What is noted of a column, but for what does not matter to its rows: a comment, narrower types that it
    had, and which identities were given away."""
    return {name: value for name, value in field.metadata.items() if name not in _NOT_BINDING}


def _can_hold_type(kind: Type, schema_to_write: Type) -> bool:
    match kind, schema_to_write:
        case StructType(), StructType():
            wrote = {stored_name(field): field for field in schema_to_write.fields}
            fields = {stored_name(field): field for field in kind.fields}
            return wrote.keys() <= fields.keys() and all(
                _can_hold_field(field, wrote[name]) if name in wrote else field.nullable
                for name, field in fields.items()
            )
        case ArrayType(), ArrayType():
            may_be_null = kind.contains_null or not schema_to_write.contains_null
            return may_be_null and _can_hold_type(kind.element_type, schema_to_write.element_type)
        case MapType(), MapType():
            may_be_null = kind.value_contains_null or not schema_to_write.value_contains_null
            keys = _can_hold_type(kind.key_type, schema_to_write.key_type)
            return may_be_null and keys and _can_hold_type(kind.value_type, schema_to_write.value_type)
        case str(), str():
            return kind == schema_to_write or is_wider(kind, schema_to_write)
        case _:
            return kind == schema_to_write


def _can_hold_field(field: Field, schema_to_write: Field) -> bool:
    is_named = stored_name(field) == stored_name(schema_to_write)
    return (
        is_named
        and (field.nullable or not schema_to_write.nullable)
        and _can_hold_type(field.type, schema_to_write.type)
    )
