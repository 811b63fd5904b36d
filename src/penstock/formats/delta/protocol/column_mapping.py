"""Column mapping: which column of a data file is which column of the table.

Without mapping it is the name. With it, each column of the schema notes a physical name, which files,
partition values and statistics use, and an id, which the columns of files carry. Readers of a table in the
mode ``id`` go by the id alone, in the mode ``name`` by the physical name alone.

So a column can get another name, and go, without its files being written anew. Ids and physical names are
never given twice in the life of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeGuard
from uuid import uuid4

from msgspec.structs import replace

from penstock.formats.delta.errors import InvalidLog, MalformedAction
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.properties import MAPPING_MODE, complete_properties, iceberg_version
from penstock.formats.rows.schema import (
    ArrayType,
    Field,
    MapType,
    StructType,
    Type,
    parse_schema,
    write_schema,
)

MODE: Final = MAPPING_MODE
ID: Final = "delta.columnMapping.id"
_ID_DIGITS_MAX: Final = 18
MAX_ID: Final = "delta.columnMapping.maxColumnId"
"""The largest id that any column of the table has had."""
PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
NESTED_IDS: Final = "delta.columnMapping.nested.ids"
"""Ids of the elements of arrays, and of the keys and values of maps, in a column that a table has for
Iceberg: by paths that begin with the column's physical name."""
COLUMN_NOTES: Final = (ID, PHYSICAL_NAME, NESTED_IDS)
"""What a mapped column notes of itself."""
PARQUET_ID: Final = b"PARQUET:field_id"


class ColumnMapping(StrEnum):
    """How the columns of files are found."""

    NONE = "none"
    NAME = "name"
    ID = "id"

    def get_physical_name(self, field: Field) -> str:
        """The name of a column in files, partition values and statistics."""
        if self is ColumnMapping.NONE:
            return field.name
        return str(_require_field_metadata(field, PHYSICAL_NAME))

    def locate_fields(self, there: Iterable[Any], fields: Sequence[Field]) -> list[int | None]:
        """For each field its place among the Arrow fields of a file, ``None`` for one that is not there."""
        if self is ColumnMapping.ID:
            by_id = {_read_field_id(file_field): place for place, file_field in enumerate(there)}
            return [by_id.get(_read_id(field)) for field in fields]
        by_name = {file_field.name: place for place, file_field in enumerate(there)}
        return [by_name.get(self.get_physical_name(field)) for field in fields]

    def match_nested_fields(self, there: Any, kind: StructType, path: str) -> list[int | None]:  # noqa: ARG002
        """The same for the fields of a nested column, as ``arrow_types.reshape_array`` asks."""
        return self.locate_fields(there, kind.fields)


def get_column_mapping(metadata: Metadata) -> ColumnMapping:
    """The mapping of a table. ``InvalidLog`` if it is none that the protocol knows."""
    mode = metadata.configuration.get(MODE, "none").lower()
    try:
        return ColumnMapping(mode)
    except ValueError:
        raise InvalidLog(f"the property {MODE} must be 'none', 'name' or 'id', got {mode!r}") from None


def _require_field_metadata(field: Field, note: str) -> Any:
    value = field.metadata.get(note)
    if value is None:
        raise InvalidLog(f"the column '{field.name}' lacks '{note}', which column mapping needs")
    return value


def _read_id(field: Field) -> int:
    """The id of a column. ``InvalidLog`` if it has none, or what is none."""
    number = _require_field_metadata(field, ID)
    if not _is_id(number):
        raise InvalidLog(f"the column '{field.name}' has {number!r} as '{ID}', which is not a whole number")
    return number


def _is_id(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool)


def _read_field_id(field: Any) -> int | None:
    field_id = (field.metadata or {}).get(PARQUET_ID)
    return None if field_id is None else int(field_id)


def stored_name(field: Field) -> str:
    """The name of a column in files and in the log, as the column itself notes it: a table notes physical
    names only as long as its columns are mapped (``mapping_faults``)."""
    return str(field.metadata.get(PHYSICAL_NAME, field.name))


def assign_columns(metadata: Metadata) -> Metadata:
    """Metadata in which every column that notes no id and physical name has new ones, if columns are mapped;
    without such notes, if they are not. So have elements of arrays and maps of a table that suits Iceberg,
    whose columns are always mapped."""
    metadata = replace(metadata, configuration=complete_properties(metadata.configuration))
    schema = parse_schema(metadata.schema_string)
    if metadata.configuration.get(MODE, "none").lower() not in tuple(ColumnMapping):
        return metadata  # which is refused for that
    if get_column_mapping(metadata) is ColumnMapping.NONE:
        plain = _change_fields(schema, _remove_notes)
        return metadata if plain == schema else replace(metadata, schema_string=write_schema(plain))
    last = max(
        [get_max_column_id(metadata), *(number for _, number in _list_column_ids(schema) if _is_id(number))]
    )

    def note_column(field: Field) -> Field:
        nonlocal last
        if ID in field.metadata and PHYSICAL_NAME in field.metadata:
            return field
        last += 1
        return replace(field, metadata={**field.metadata, ID: last, PHYSICAL_NAME: f"col-{uuid4()}"})

    def note_nested(field: Field) -> Field:
        nonlocal last
        paths = [path for path in nested_paths(field) if path not in nested_ids(field)]
        if not paths:
            return field
        new = dict(zip(paths, range(last + 1, last + 1 + len(paths)), strict=True))
        last += len(paths)
        return replace(field, metadata={**field.metadata, NESTED_IDS: {**nested_ids(field), **new}})

    assigned = _change_fields(schema, note_column)
    if has_nested_ids(metadata):
        assigned = _change_fields(assigned, note_nested)
    configuration = {**metadata.configuration, MAX_ID: str(last)}
    if assigned == schema and configuration == metadata.configuration:
        return metadata
    return replace(metadata, schema_string=write_schema(assigned), configuration=configuration)


def has_ids_in_files(metadata: Metadata) -> bool:
    """Whether readers of files go by the ids of columns: those of the table, or those of Iceberg."""
    return (
        get_column_mapping(metadata) is ColumnMapping.ID
        or iceberg_version(metadata.configuration) is not None
    )


def collect_column_ids(metadata: Metadata) -> dict[int, str]:
    """The ids of a table's columns, each with what has it: a physical name, or a path of a nested element."""
    fields = [*parse_schema(metadata.schema_string).walk()]
    ids = {number: stored_name(field) for field in fields if _is_id(number := field.metadata.get(ID))}
    return ids | {number: path for field in fields for path, number in nested_ids(field).items()}


def has_nested_ids(metadata: Metadata) -> bool:
    """Whether elements of arrays and maps have ids, too: in tables that suit Iceberg by its later rules."""
    return iceberg_version(metadata.configuration) in (2, 3)


def nested_ids(field: Field) -> dict[str, Any]:
    """The ids of elements, keys and values in a column, by their paths."""
    noted = field.metadata.get(NESTED_IDS)
    return noted if isinstance(noted, dict) else {}


def nested_paths(field: Field) -> Iterator[str]:
    """The paths of elements, keys and values in a column; those inside of structs belong to their fields."""
    return _list_paths_in(field.type, stored_name(field))


class ElementId(NamedTuple):
    """The id that files have for the elements of an array, or for the keys or values of a map."""

    path: tuple[str, ...]
    """By the names that files have: of columns, parts of structs, and ``element``, ``key`` or ``value``."""
    id: int


def element_ids(schema: StructType, path: tuple[str, ...] = ()) -> Iterator[ElementId]:
    """The ids of all elements, keys and values in columns, at any depth."""
    for field in schema.fields:
        name = stored_name(field)
        yield from _list_elements_in(field.type, (*path, name), nested_ids(field), name)


def _list_elements_in(
    kind: Type, path: tuple[str, ...], ids: dict[str, Any], noted: str
) -> Iterator[ElementId]:
    match kind:
        case StructType():
            yield from element_ids(kind, path)
            return
        case ArrayType():
            inside = {"element": kind.element_type}
        case MapType():
            inside = {"key": kind.key_type, "value": kind.value_type}
        case _:
            return
    for name, inner in inside.items():
        if _is_id(number := ids.get(f"{noted}.{name}")):
            yield ElementId((*path, name), number)
        yield from _list_elements_in(inner, (*path, name), ids, f"{noted}.{name}")


def _list_paths_in(kind: Type, path: str) -> Iterator[str]:
    match kind:
        case ArrayType():
            yield f"{path}.element"
            yield from _list_paths_in(kind.element_type, f"{path}.element")
        case MapType():
            yield f"{path}.key"
            yield f"{path}.value"
            yield from _list_paths_in(kind.key_type, f"{path}.key")
            yield from _list_paths_in(kind.value_type, f"{path}.value")


def _list_column_ids(schema: StructType) -> Iterator[tuple[str, Any]]:
    """Every id that a schema notes, with what has it."""
    for field in schema.walk():
        if ID in field.metadata:
            yield field.name, field.metadata[ID]
        yield from nested_ids(field).items()


def map_columns(metadata: Metadata) -> Metadata:
    """Metadata of a table whose columns were not mapped, with each column mapped to its own name: files that
    are there know it by that."""
    last = 0

    def note_column(field: Field) -> Field:
        nonlocal last
        last += 1
        return replace(field, metadata={**field.metadata, ID: last, PHYSICAL_NAME: field.name})

    mapped = _change_fields(parse_schema(metadata.schema_string), note_column)
    configuration = {**metadata.configuration, MAX_ID: str(last)}
    return replace(metadata, schema_string=write_schema(mapped), configuration=configuration)


def renumber_columns(before: StructType, theirs: StructType, last: int) -> tuple[StructType, int]:
    """A schema in which the columns that it has and another has not get ids after one, and the last id."""
    known_ids = {field.metadata.get(ID) for field in before.walk()}

    def assign_id(field: Field) -> Field:
        nonlocal last
        if ID not in field.metadata or field.metadata[ID] in known_ids:
            return field
        last += 1
        notes = {**field.metadata, ID: last}
        if nested_ids(field):
            notes[NESTED_IDS] = {path: last + place for place, path in enumerate(nested_ids(field), 1)}
            last += len(nested_ids(field))
        return replace(field, metadata=notes)

    return _change_fields(theirs, assign_id), last


def get_max_column_id(metadata: Metadata) -> int:
    """The largest id that any column of a table has had, as far as it says."""
    text = metadata.configuration.get(MAX_ID, "0")
    return int(text) if text.isdecimal() and len(text) <= _ID_DIGITS_MAX else 0


def mapping_faults(metadata: Metadata, schema: StructType) -> Iterator[str]:
    """What is wrong with the mapping of a table's columns."""
    mode = metadata.configuration.get(MODE, "none").lower()
    if mode == ColumnMapping.NONE:
        for field in schema.walk():
            if stored_name(field) != field.name:
                yield f"the column '{field.name}' has a physical name, but '{MODE}' is not set"
    if mode not in (ColumnMapping.NAME, ColumnMapping.ID):
        return
    ids: dict[int, str] = {}
    for field in schema.walk():
        number, name = field.metadata.get(ID), field.metadata.get(PHYSICAL_NAME)
        if not _is_id(number) or not isinstance(name, str) or not name:
            yield f"the column '{field.name}' lacks '{ID}' or '{PHYSICAL_NAME}', which column mapping needs"
            continue
        if ids.setdefault(number, field.name) != field.name or number <= 0:
            yield (
                f"the column '{field.name}' has the id {number}, which is invalid or is also the id of "
                f"'{ids[number]}'"
            )
        elif number > get_max_column_id(metadata):
            yield (
                f"the column '{field.name}' has the id {number}, which is greater than '{MAX_ID}' "
                f"({get_max_column_id(metadata)})"
            )
        for path, nested in nested_ids(field).items():
            if (
                not _is_id(nested)
                or ids.setdefault(nested, path) != path
                or not 0 < nested <= get_max_column_id(metadata)
            ):
                yield f"'{path}' has the id {nested}, which another one has, or which is beyond '{MAX_ID}'"
    yield from _find_repeated_names(schema)


def find_forbidden_mapping_changes(before: Metadata, after: Metadata) -> Iterator[str]:
    """What a writer may not do to the mapping of a table's columns, as far as it can be understood: what is
    wrong with metadata in itself is told elsewhere."""
    try:
        old_mapping, becomes = get_column_mapping(before), get_column_mapping(after)
        if old_mapping is ColumnMapping.NONE and becomes is ColumnMapping.NONE:
            return
        old = {field.metadata.get(ID): field for field in parse_schema(before.schema_string).walk()}
        new = parse_schema(after.schema_string)
    except (InvalidLog, MalformedAction):
        return
    if old_mapping is not becomes and (
        old_mapping is not ColumnMapping.NONE or becomes is not ColumnMapping.NAME
    ):
        yield f"the property '{MODE}' cannot change from '{old_mapping}' to '{becomes}'"
        return
    if old_mapping is ColumnMapping.NONE:
        names = {field.name for field in parse_schema(before.schema_string).walk()}
        for field in new.walk():
            if field.name in names and stored_name(field) != field.name:
                yield f"the column '{field.name}' is called so in files that are there, and so it must note"
        return
    for old_name, new_name in renamed_partitions(before, after):
        yield f"the table is partitioned by '{old_name}', which cannot be renamed to '{new_name}'"
    if get_max_column_id(after) < get_max_column_id(before):
        yield f"the property '{MAX_ID}' is {get_max_column_id(before)}, and cannot decrease"
    for field in new.walk():
        number = field.metadata.get(ID)
        if number in old and stored_name(old[number]) != stored_name(field):
            yield (
                f"the column '{field.name}' has the physical name '{stored_name(old[number])}', which "
                "cannot change"
            )
        elif number not in old and isinstance(number, int) and number <= get_max_column_id(before):
            yield f"the column '{field.name}' has the id {number}, which an earlier column had"
        nested_before = nested_ids(old[number]) if number in old else {}
        for path, nested in nested_before.items():
            if nested_ids(field).get(path, nested) != nested:
                yield f"'{path}' has the id {nested}, which stays"


def renamed_partitions(before: Metadata, after: Metadata) -> Iterator[tuple[str, str]]:
    """The partition columns that have another name afterwards, although they are the same in the log."""
    old_names, becomes = (
        {
            stored_name(field): field.name
            for field in parse_schema(metadata.schema_string).fields
            if field.name in metadata.partition_columns
        }
        for metadata in (before, after)
    )
    for stored, name in old_names.items():
        if becomes.get(stored, name) != name:
            yield name, becomes[stored]


def _find_repeated_names(struct: StructType) -> Iterator[str]:
    names = [stored_name(field) for field in struct.fields]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two columns have the physical name '{name}'"
    for field in struct.fields:
        for inner in _list_nested_structs(field.type):
            yield from _find_repeated_names(inner)


def _list_nested_structs(kind: Type) -> Iterator[StructType]:
    match kind:
        case StructType():
            yield kind
        case ArrayType():
            yield from _list_nested_structs(kind.element_type)
        case MapType():
            yield from _list_nested_structs(kind.key_type)
            yield from _list_nested_structs(kind.value_type)


def _change_fields(schema: StructType, change: Callable[[Field], Field]) -> StructType:
    """A schema with each of its fields, at any depth, changed."""
    changed_type = _change_type(schema, change)
    assert isinstance(changed_type, StructType)  # as what it was made from
    return changed_type


def _change_type(kind: Type, change: Callable[[Field], Field]) -> Type:
    match kind:
        case StructType():
            changed = (change(field) for field in kind.fields)
            return StructType(
                tuple(replace(field, type=_change_type(field.type, change)) for field in changed)
            )
        case ArrayType():
            return replace(kind, element_type=_change_type(kind.element_type, change))
        case MapType():
            key, value = _change_type(kind.key_type, change), _change_type(kind.value_type, change)
            return replace(kind, key_type=key, value_type=value)
        case _:
            return kind


def stored_schema(fields: Iterable[Field], mapping: ColumnMapping) -> StructType:
    """Columns as files hold them: by their physical names, with the notes that they have."""
    return _change_fields(
        StructType(tuple(fields)), lambda one: replace(one, name=mapping.get_physical_name(one))
    )


def numbered_schema(schema: StructType, note: str) -> StructType:
    """Columns as files hold them, each with its id as a note of that name and no other."""
    return _change_fields(
        schema,
        lambda one: replace(one, name=stored_name(one), metadata={note: _read_id(one)}),
    )


def _remove_notes(field: Field) -> Field:
    if field.metadata.keys().isdisjoint(COLUMN_NOTES):
        return field
    remaining_metadata = {name: value for name, value in field.metadata.items() if name not in COLUMN_NOTES}
    return replace(field, metadata=remaining_metadata)
