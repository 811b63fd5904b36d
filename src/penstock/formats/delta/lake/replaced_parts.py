"""The parts of a Delta table that a write replaces, as programs name them: by values, or by a condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.replacements import undecided_error
from penstock.formats.delta.lake.calls import TablePart
from penstock.formats.delta.protocol.actions import Action, Add, Metadata
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.delta.protocol.partition_conditions import check_condition, condition_columns
from penstock.formats.delta.protocol.transaction import PartitionFilter, PartitionRegion
from penstock.formats.rows.partition_values import parse_value
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.formats.rows.spark_conditions import has_same_meaning_in_spark

Values: TypeAlias = Mapping[str, Any]
"""Values of partition columns; several for one column as a list."""


def make_replaced_parts(
    metadata: Metadata, partitions: Sequence[Values] | None, where: str | None = None
) -> tuple[TablePart, ...]:
    """What is replaced in a table: what both the values and the condition say. Nothing said is all of it.

    ``InvalidRequest`` if a column is none that the table is partitioned by, or a value none of its column.
    """
    if where is not None:
        check_condition(where, metadata.schema_string, metadata.partition_columns)
    parts = tuple(_make_part(metadata, partition, where) for partition in partitions or ())
    return parts or (() if where is None else (TablePart(where=where),))


def check_inside(metadata: Metadata, parts: Sequence[TablePart], adds: Sequence[Add]) -> None:
    """``InvalidRequest`` if rows lie outside the parts that they are to replace.

    The rule is the one by which files are removed (``ReplacedFiles``), so that both sides mean the same rows.
    """
    region = PartitionRegion(
        metadata.schema_string, tuple(PartitionFilter(part.values, part.where) for part in parts)
    )
    for add in adds if parts else ():
        if not (region.may_hold_file(add.partition) and region.is_decided(add.partition)):
            where = ", ".join(f"{name}={value}" for name, value in add.partition_values.items())
            raise InvalidRequest(
                f"the data has rows of {where}, which is not one of the partitions to be overwritten"
            )


def derive_replaced_parts(
    metadata: Metadata, files: Sequence[Action], where: str | None, *, is_dynamic: bool
) -> tuple[TablePart, ...] | None:
    """What an overwrite by files removes at its turn: parts of the table, all that there is, or nothing."""
    added = [file for file in files if isinstance(file, Add)]
    if where is not None:
        parts = make_replaced_parts(metadata, None, where)
        check_inside(metadata, parts, added)
        return parts
    if not is_dynamic or not metadata.partition_columns:
        return ()
    partitions = {tuple(add.partition.items()): add.partition for add in added}
    if not partitions:
        return None  # an empty tuple would be the whole table
    names = {stored_name(field): field.name for field in parse_schema(metadata.schema_string).fields}
    return tuple(
        TablePart(values={names[name]: (text,) for name, text in values.items()})
        for values in partitions.values()
    )


def replaced_files(metadata: Metadata, parts: Sequence[TablePart], files: Iterable[Add]) -> list[Add]:
    """Of the files of a table, those in the parts that an overwrite replaces; all files for no part.

    ``InvalidRequest`` if a file's partition values do not tell whether it is in one of them.
    """
    region = PartitionRegion(
        metadata.schema_string,
        tuple(PartitionFilter(part.values, part.where) for part in parts) or (PartitionFilter(),),
    )
    chosen = [file for file in files if region.may_hold_file(file.partition_values)]
    for file in chosen:
        if not region.is_decided(file.partition_values):
            raise undecided_error("the table", file.partition_values)
    return chosen


def is_decided_by_partitions(metadata: Metadata, where: str, time_zone: str | None) -> bool:
    """Whether the lake can tell by partition values, and means the same as Spark, where a condition is
    true."""
    columns = condition_columns(where, metadata.schema_string)
    if not columns or not columns <= {name.lower() for name in metadata.partition_columns}:
        return False
    return has_same_meaning_in_spark(where, parse_schema(metadata.schema_string), time_zone)


def _make_part(metadata: Metadata, values: Values, where: str | None) -> TablePart:
    """Values of partition columns as the log spells them."""
    by_name = {name.lower(): name for name in metadata.partition_columns}
    schema = parse_schema(metadata.schema_string)
    spelled: dict[str, tuple[str | None, ...]] = {}
    for name, value_or_values in values.items():
        column = by_name.get(name.lower())
        if column is None:
            partition_columns = ", ".join(metadata.partition_columns) or "none"
            raise InvalidRequest(
                f"'{name}' is not a partition column of the table; the partition columns are "
                f"{partition_columns}"
            )
        several = (
            value_or_values
            if isinstance(value_or_values, list | tuple | set | frozenset)
            else (value_or_values,)
        )
        spelled[column] = tuple(_partition_value(schema, column, value) for value in several)
    return TablePart(values=spelled, where=where)


def _partition_value(schema: StructType, column: str, value: Any) -> str | None:
    """A partition value as the log writes it; text may be in that form already."""
    from penstock.formats.delta.rows.file_writer import partition_text

    field = schema.field(column)
    kind = field.type if field is not None and isinstance(field.type, str) else "string"
    try:
        text = (value or None) if isinstance(value, str) else partition_text(kind, value)
        parse_value(kind, text)
    except (AttributeError, TypeError, ValueError):
        raise InvalidRequest(
            f"{value!r} is not a value of the partition column '{column}' ({kind})"
        ) from None
    return text
