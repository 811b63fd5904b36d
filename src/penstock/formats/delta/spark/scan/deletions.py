"""Rows of files, as words of bitmaps, for Spark: as a DataFrame to join with, and back.

A word stands for 64 rows of a file. Rows find theirs by a single number, and a word is sent once for all of
its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.formats.delta.rows.deletion_words import (
    BROADCAST_MAX_WORDS,
    WORD_ROWS,
    BitmapWords,
)
from penstock.formats.rows.arrow_types import pa, pc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KEY: Final = "__penstock_key"
_WORD: Final = "__penstock_word"
_WORD_BITS: Final = 6
"""The low bits of a row number: the position of the row in its word."""
_FILE_SHIFT: Final = 34
"""By how many bits the number of a file is before that of a word: no file has so many."""


def are_few(words_by_file: Mapping[int, BitmapWords]) -> bool:
    """Whether every executor can hold them."""
    return sum(len(words.words) for words in words_by_file.values()) <= BROADCAST_MAX_WORDS


def join_rows(
    spark: SparkSession,
    df: DataFrame,
    found: Mapping[int, BitmapWords],
    file: str,
    row: str,
    *,
    is_inverse: bool,
) -> DataFrame:
    """Those of rows that words name, or the others. The words of a file are found by its number."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    words = _to_frame(spark, found).hint("broadcast" if are_few(found) else "merge")
    place = F.col(row).bitwiseAND(F.lit(WORD_ROWS - 1)).cast("int")
    is_named = (_make_row_key(F.col(file), F.col(row)) == F.col(_KEY)) & (F.getbit(F.col(_WORD), place) == 1)
    return df.join(words, is_named, "left_anti" if is_inverse else "left_semi")


def make_word_number(row: str) -> Column:
    """The number of the word that a row belongs to."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    return F.shiftright(F.col(row), _WORD_BITS)


def make_word_bits(row: str) -> Column:
    """A word that names a row alone."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    place = F.col(row).bitwiseAND(F.lit(WORD_ROWS - 1)).cast("int")
    return F.call_function("shiftleft", F.lit(1).cast("long"), place)


def merge_words(files: Any, numbers: Any, words: Any) -> dict[int, BitmapWords]:
    """Words of several files by file number, each word once, without zeros."""
    table = pa.table({"file": files, "number": numbers, "word": words})
    table = table.filter(pc.not_equal(table["word"], 0)).sort_by(
        [("file", "ascending"), ("number", "ascending")]
    )
    result: dict[int, BitmapWords] = {}
    start = 0
    for counted in pc.value_counts(table["file"].combine_chunks()).to_pylist():
        count = counted["counts"]
        part = table.slice(start, count)
        result[counted["values"]] = BitmapWords.from_numbered_words(
            part["number"].combine_chunks(), part["word"].combine_chunks()
        )
        start += count
    return result


def _make_row_key(file: Column, row: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    return F.shiftleft(file.cast("long"), _FILE_SHIFT).bitwiseOR(F.shiftright(row, _WORD_BITS))


def _to_frame(spark: SparkSession, found: Mapping[int, BitmapWords]) -> DataFrame:
    keys = [
        pc.add(words.numbers, pa.scalar(file << _FILE_SHIFT, pa.int64())) for file, words in found.items()
    ]
    words = [words.words for words in found.values()]
    return spark.createDataFrame(pa.table({_KEY: pa.concat_arrays(keys), _WORD: pa.concat_arrays(words)}))
