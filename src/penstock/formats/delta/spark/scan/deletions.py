"""Deletion vectors for Spark: which rows of files are meant, as a DataFrame to join with.

Words of bitmaps become numbers of rows on Spark's executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.formats.delta.rows.deletion_words import BROADCAST_MAX_ROWS, WORD_ROWS, Words
from penstock.formats.rows.arrow_types import pa, pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_START: Final = "start"
_WORD: Final = "word"


def named_rows(spark: SparkSession, found: Mapping[int, Words], file: str, row: str) -> DataFrame:
    """The rows that words name, as two columns: the number of the words, and that of the row.

    Spark is told how to join them: few are sent everywhere.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    held = pa.table(
        {
            file: pa.concat_arrays(
                [pa.repeat(_int32(at), len(deletions.words)) for at, deletions in found.items()]
            ),
            _START: pc.multiply(
                pa.concat_arrays([deletions.numbers for deletions in found.values()]), WORD_ROWS
            ),
            _WORD: pa.concat_arrays([deletions.words for deletions in found.values()]),
        }
    )
    bits = F.filter(F.sequence(F.lit(0), F.lit(WORD_ROWS - 1)), lambda bit: F.getbit(_WORD, bit) == 1)
    rows = spark.createDataFrame(held).select(file, _START, F.explode(bits).alias(row))
    numbers = rows.select(file, (F.col(_START) + F.col(row)).alias(row))
    is_few = sum(deletions.rows for deletions in found.values()) <= BROADCAST_MAX_ROWS
    return numbers.hint("broadcast" if is_few else "merge")


def _int32(number: int) -> Any:
    return pa.scalar(number, pa.int32())
