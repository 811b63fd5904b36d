"""Rows that Spark writes to a table with identity columns: each gets a number of its own.

The rows are counted first, partition by partition, and so many numbers are reserved; then every row gets the
number of its place. So they are evaluated once, and kept until they are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from penstock.formats.delta.lake.identity_numbers import IdentityNumbers, ReservedNumbers
from penstock.formats.delta.protocol.actions import Metadata
from penstock.spark import jar
from penstock.spark.row_refusals import make_refusal_column, raise_refusals
from penstock.spark.schemas import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.formats.delta.spark.job.tables import JobTable

_PARTITION: Final = "__penstock_partition"
_ROW_BITS: Final = 33
"""How many bits of ``monotonically_increasing_id`` count the rows of a partition."""


@contextmanager
def number_rows(
    df: DataFrame, table: JobTable, metadata: Metadata, names: Collection[str]
) -> Iterator[tuple[DataFrame, IdentityNumbers]]:
    """Rows of a table with numbers in its identity columns, and what was given away by that.

    ``names`` are the columns that the rows came with, in lower case: their numbers stay.
    """
    numbers = ReservedNumbers(table.lake, table.key, table.branch, metadata)
    if not numbers.columns:
        yield df, numbers
        return
    with hold_rows(df) as held:
        yield _number_rows(held, numbers, names), numbers


@contextmanager
def hold_rows(df: DataFrame) -> Iterator[DataFrame]:
    """Rows that are the same at every look, as far as that is possible.

    Those that are deterministic are kept, and evaluated again if executors with parts of them are lost. Those
    that are not, as far as Spark can tell, are cut off from where they came from: then the job fails instead.
    """
    if jar.is_classic(df.sparkSession) and not df._jdf.queryExecution().analyzed().deterministic():
        yield df.localCheckpoint(eager=True)
        return
    level = df.storageLevel
    if level.useMemory or level.useDisk:
        yield df  # it is its owner's to release
        return
    held = df.persist()
    try:
        yield held
    finally:
        held.unpersist()


def _number_rows(held: DataFrame, numbers: IdentityNumbers, names: Collection[str]) -> DataFrame:
    from pyspark.sql import functions as f

    explicit = [name for name in numbers.columns if name.lower() in names]
    bounds: list[Any] = [bound(f.col(quote_name(name))) for name in explicit for bound in (f.min, f.max)]
    by_partition = held.withColumn(_PARTITION, f.spark_partition_id()).groupBy(_PARTITION)
    with raise_refusals():
        counted = by_partition.agg(f.count(f.lit(1)), *bounds).collect()
    for place, name in enumerate(explicit):
        for row in counted:
            for number in row[2 + 2 * place : 4 + 2 * place]:
                if number is not None:
                    numbers.note_number(name, number)
    numbers.keep_free()
    counts = {row[0]: row[1] for row in counted}
    total = sum(counts.values())
    for name, column in numbers.columns.items():
        if name not in explicit and total:
            first = numbers.take_numbers(name, total)
            held = held.withColumn(name, _make_row_numbers(counts, first, column.step))
    return held


def _make_row_numbers(counts: dict[int, int], first: int, step: int) -> Column:
    """The number of each row, by its place in its partition."""
    from pyspark.sql import functions as f

    sizes = [counts.get(partition, 0) for partition in range(max(counts) + 1)]
    before = [sum(sizes[:partition]) for partition in range(len(sizes))]
    partition = f.spark_partition_id() + 1
    row = f.monotonically_increasing_id().bitwiseAND(f.lit(2**_ROW_BITS - 1))
    error = make_refusal_column(
        "Spark evaluated the rows twice, with different results: write them once more"
    )
    number = f.lit(first) + f.lit(step) * (f.element_at(_make_long_array(before), partition) + row)
    return f.when(row < f.element_at(_make_long_array(sizes), partition), number).otherwise(error)


def _make_long_array(numbers: Sequence[int]) -> Column:
    from pyspark.sql import functions as f

    return f.array(*(f.lit(number).cast("long") for number in numbers))
