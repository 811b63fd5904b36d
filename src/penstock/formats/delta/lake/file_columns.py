"""The columns of a table in its files: what Spark is told to read, and how the table's columns come of it.

With column mapping files have names of their own for columns, at every depth. They are read by these, or by
the ids that the files note, and shown by the names that the table has for them.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import ID, ColumnMapping, get_column_mapping
from penstock.formats.rows.arrow_types import allow_nulls
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type, parse_schema
from penstock.lake.scan_files import ColumnGuard, ScanColumn

FIELD_ID: Final = "parquet.field.id"
"""What Spark calls the id of a column that a Parquet file notes."""
READ_BY_ID: Final = {"spark.sql.parquet.fieldId.read.enabled": "true"}
_REAL: Final = ("float", "double")


class FileColumns:
    """The columns of a table, as its files hold them.

    ``partition_by`` are those that are not in the files, by their names there; the table's own unless given.
    """

    def __init__(self, metadata: Metadata, partition_by: frozenset[str] | None = None) -> None:
        self._mapping = get_column_mapping(metadata)
        self._schema = StructType(
            tuple(_strip_writer_metadata(field) for field in parse_schema(metadata.schema_string).fields)
        )
        self.partition_by = physical_partition_columns(metadata) if partition_by is None else partition_by
        stored = [
            (field, self._make_stored_field(field)) for field in self._schema.fields if field.type != "void"
        ]
        self.in_files = StructType(
            tuple(
                inside
                for field_of_table, inside in stored
                if self._mapping.get_physical_name(field_of_table) not in self.partition_by
            )
        )
        self.partition_fields = tuple(
            replace(field_of_table, name=name)
            for field_of_table, _ in stored
            if (name := self._mapping.get_physical_name(field_of_table)) in self.partition_by
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the table's columns, in its order."""
        return tuple(field.name for field in self._schema.fields)

    @property
    def options(self) -> dict[str, str]:
        """What Spark has to be told for reading."""
        return READ_BY_ID if self._mapping is ColumnMapping.ID else {}

    @property
    def shown_columns(self) -> tuple[ScanColumn, ...]:
        """The table's columns, in its order, made of those that were read."""
        return tuple(map(self._make_scan_column, self._schema.fields))

    def _make_scan_column(self, field: Field) -> ScanColumn:
        if field.type == "void":  # no file has it
            return ScanColumn(name=field.name)
        name = self._mapping.get_physical_name(field)
        if name in self.partition_by:
            return ScanColumn(name=field.name, source=name)
        # A cast gives the parts of a column other names. Those of the column itself cost nothing.
        is_renamed = self._mapping is not ColumnMapping.NONE and not isinstance(field.type, str)
        cast = field.type if is_renamed else None
        return ScanColumn(name=field.name, source=name, cast=cast, guard=_choose_guard(field.type))

    def _make_stored_field(self, field: Field) -> Field:
        """A column as files hold it."""
        name = self._mapping.get_physical_name(field)
        noted = {FIELD_ID: _get_field_id(field)} if self._mapping is ColumnMapping.ID else {}
        return Field(name=name, type=self._make_stored_type(field.type), nullable=True, metadata=noted)

    def _make_stored_type(self, kind: Type) -> Type:
        match kind:
            case StructType():
                return StructType(tuple(self._make_stored_field(field) for field in kind.fields))
            case ArrayType():
                return replace(kind, element_type=self._make_stored_type(kind.element_type))
            case MapType():
                key, value = self._make_stored_type(kind.key_type), self._make_stored_type(kind.value_type)
                return replace(kind, key_type=key, value_type=value)
            case _:
                return kind


def physical_partition_columns(metadata: Metadata) -> frozenset[str]:
    """The names that partition columns have in the log's values."""
    mapping, schema = get_column_mapping(metadata), parse_schema(metadata.schema_string)
    fields = (schema.field(name) for name in metadata.partition_columns)
    return frozenset(mapping.get_physical_name(field) for field in fields if field is not None)


def shown_schema(metadata: Metadata) -> StructType:
    """The columns of the rows that are read of a table, with what the table's makers said of them."""
    fields = parse_schema(metadata.schema_string).fields
    return StructType(tuple(map(_make_shown_field, fields)))


def _make_shown_field(field: Field) -> Field:
    comment = {"comment": field.metadata["comment"]} if "comment" in field.metadata else {}
    return replace(
        _strip_writer_metadata(field), type=_make_shown_type(allow_nulls(field.type)), metadata=comment
    )


def _make_shown_type(kind: Type) -> Type:
    """A type without the names that files have for its parts."""
    match kind:
        case StructType():
            return StructType(tuple(map(_make_shown_field, kind.fields)))
        case ArrayType():
            return replace(kind, element_type=_make_shown_type(kind.element_type))
        case MapType():
            key, value = _make_shown_type(kind.key_type), _make_shown_type(kind.value_type)
            return replace(kind, key_type=key, value_type=value)
        case _:
            return kind


def _get_field_id(field: Field) -> int:
    field_id = field.metadata.get(ID)
    if not isinstance(field_id, int):
        raise InvalidLog(f"the column '{field.name}' lacks '{ID}', which column mapping needs")
    return field_id


def _choose_guard(kind: Type) -> ColumnGuard:
    """How it is kept that no comparison of real numbers is pushed down to the files.

    To Spark NaN is larger than any number. Not all that write Parquet count it among the values whose bounds
    they note, so by these bounds rows would be left out for which a comparison is true.
    """
    if kind in _REAL:
        return ColumnGuard.REAL
    if isinstance(kind, StructType) and any(field.type in _REAL for field in kind.walk()):
        return ColumnGuard.STRUCT
    return ColumnGuard.NONE


def _strip_writer_metadata(field: Field) -> Field:
    """A column without what only writers need to know of it. Its ids and names in files stay."""
    return replace(field, type=allow_nulls(field.type), nullable=True)
