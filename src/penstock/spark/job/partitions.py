"""Partition values on their way through the names of directories.

Spark tells in which partition a file is by the directory that it wrote it to, with values as SQL shows them:
a timestamp in the session's zone, where the hour that autumn repeats has two meanings. So timestamps are
given to Spark's writer in UTC, and come back from there as they were.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata, Values
from penstock.formats.delta.protocol.partition_values import parse_value
from penstock.formats.delta.protocol.schema import Field, StructType, parse_schema
from penstock.formats.delta.rows.writing import NULL_FOLDER, partition_text
from penstock.spark.scan.columns import quoted
from penstock.spark.writes.refusals import refusal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")


def partition_fields(schema: StructType, names: Sequence[str]) -> tuple[Field, ...]:
    """The columns that a table is partitioned by. ``InvalidRequest`` if it cannot be written in Spark so."""
    found = []
    for name in names:
        field = schema.field(name)
        if field is None:
            raise InvalidRequest(f"the table is partitioned by '{name}', and has no such column", column=name)
        if not isinstance(field.type, str) or field.type == "binary":
            raise InvalidRequest(
                f"a table cannot be partitioned by '{name}', which is of the type {field.type}", column=name
            )
        found.append(field)
    if len(found) == len(schema.fields):
        raise InvalidRequest("the table has no columns besides those that it is partitioned by")
    return tuple(found)


def named_for_directories(df: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """Rows whose partition columns Spark can turn into names of directories and nothing is lost.

    The job fails at a row of which that is not possible: with the name that stands for null as a value.
    """
    from pyspark.sql import functions as f

    for field in fields:
        column = f.col(quoted(field.name))
        if field.type == "timestamp":
            df = df.withColumn(field.name, _in_utc(column))
        elif field.type == "string":
            said = f"the column '{field.name}' has the value {NULL_FOLDER}, which stands for null"
            df = df.withColumn(field.name, f.when(column == NULL_FOLDER, refusal(said)).otherwise(column))
    return df


def values_of(directory: str, fields: Sequence[Field]) -> Values:
    """The partition values that a directory stands for, as the log spells them.

    ``InvalidRequest`` names a column with a value that no log can hold, or a null where none may be.
    """
    steps = directory.split("/") if directory else []
    assert len(steps) == len(fields), f"{directory} is not a partition by {[one.name for one in fields]}"
    return {
        field.name: _value(field, step.partition("=")[2]) for field, step in zip(fields, steps, strict=True)
    }


def fields_of(metadata: Metadata) -> tuple[Field, ...]:
    """The columns that a table is partitioned by."""
    return partition_fields(parse_schema(metadata.schema_string), metadata.partition_columns)


def _in_utc(column: Column) -> Column:
    """The moment as a time without a zone: what clocks show in UTC, whatever the session's zone is."""
    from pyspark.sql import functions as f

    zero = f.lit(0)
    seconds = f.unix_micros(column).cast("decimal(20,0)") / f.lit(1_000_000).cast("decimal(7,0)")
    since = f.make_dt_interval(zero, zero, zero, seconds.cast("decimal(18,6)"))
    return f.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + since


def _value(field: Field, spelled: str) -> str | None:
    text = None if spelled == NULL_FOLDER else _ESCAPE.sub(lambda found: chr(int(found[1], 16)), spelled)
    kind = str(field.type)
    try:
        value = parse_value(kind, text)
    except ValueError as problem:
        raise InvalidRequest(
            f"the column '{field.name}' has a value that no partition can have, {text!r}: {problem}",
            column=field.name,
        ) from None
    if value is None and not field.nullable:
        raise InvalidRequest(
            f"the column '{field.name}' is not nullable, and the data has nulls or empty texts there",
            column=field.name,
        )
    return partition_text(kind, value)
