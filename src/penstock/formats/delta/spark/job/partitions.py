"""Partition values on their way through the names of directories.

Spark tells in which partition a file is by the directory that it wrote it to, with values as SQL shows them:
a timestamp in the session's zone, where the hour that autumn repeats has two meanings. So timestamps are
given to Spark's writer in UTC, and come back from there as they were.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.formats.delta.rows.file_writer import NULL_FOLDER
from penstock.formats.rows.schema import Field
from penstock.spark.row_refusals import make_refusal_column
from penstock.spark.schemas import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SHOWN_MAX_CHARS: Final = 40
"""How much of a value is told when it is refused."""
_ESCAPED: Final = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
"""The characters that Spark spells as such escapes; the pattern means the same to Java."""


def prepare_partition_columns(
    df: DataFrame, fields: Sequence[Field], name_max_bytes: int | None = None
) -> DataFrame:
    """Rows whose partition columns Spark can turn into names of directories and nothing is lost.

    The job fails at a row of which that is not possible: with the name that stands for null as a value, with
    the character NUL in it, or one that makes a longer name than the storage takes.
    """
    from pyspark.sql import functions as f

    for field in fields:
        column = f.col(quote_name(field.name))
        if field.type == "timestamp":
            df = df.withColumn(field.name, _convert_to_utc(column))
        elif field.type == "string":
            df = df.withColumn(field.name, _require_nameable(column, field.name, name_max_bytes))
    return df


def _require_nameable(column: Column, name: str, name_max_bytes: int | None) -> Column:
    """Text that can be part of a directory's name; any other ends the job."""
    from pyspark.sql import functions as f

    is_null = make_refusal_column(
        f"the column '{name}' has the value {NULL_FOLDER}, which is reserved for null"
    )
    begins = f.replace(f.substring(column, 1, SHOWN_MAX_CHARS), f.lit("\0"), f.lit("\\0"))
    has_nul = make_refusal_column(
        f"the value '{{}}' of the column '{name}' contains the character NUL, which a partition column "
        "does not support",
        begins,
    )
    checked = f.when(column == NULL_FOLDER, is_null).when(f.contains(column, f.lit("\0")), has_nul)
    if name_max_bytes is not None:
        left_bytes = name_max_bytes - len(_ESCAPED.sub("%00", name).encode()) - 1
        # Most values are so short that nobody needs to look which characters Spark escapes.
        is_longer = (f.octet_length(column) * 3 > left_bytes) & (
            f.octet_length(f.regexp_replace(column, _ESCAPED.pattern, "%00")) > left_bytes
        )
        too_long = make_refusal_column(
            f"the value '{{}}…' of the column '{name}' is too long for the name of a directory, which has "
            f"at most {name_max_bytes} bytes; partition the table by a column with shorter values",
            begins,
        )
        checked = checked.when(is_longer, too_long)
    return checked.otherwise(column)


def _convert_to_utc(column: Column) -> Column:
    """The moment as a time without a zone: what clocks show in UTC, whatever the session's zone is."""
    from pyspark.sql import functions as f

    zero = f.lit(0)
    seconds = f.unix_micros(column).cast("decimal(20,0)") / f.lit(1_000_000).cast("decimal(7,0)")
    since = f.make_dt_interval(zero, zero, zero, seconds.cast("decimal(18,6)"))
    return f.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + since
