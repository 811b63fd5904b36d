"""Rows that a Spark job marks as deleted: Spark finds them, and returns them as words of bitmaps.

The changed rows of a file that stays are read a second time and written to other files. The bitmaps decide
which rows these are, so that a condition that depends on the time cannot choose other rows then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.formats.delta.lake.file_changes import count_rows
from penstock.formats.delta.lake.marked_files import FileDeletionMarks, mark_beside
from penstock.formats.delta.lake.scan_plan import FILE
from penstock.formats.delta.protocol.actions import Action, Add
from penstock.formats.delta.rows import deletion_words
from penstock.formats.delta.rows.deletion_words import BitmapWords
from penstock.formats.delta.spark.scan.deletions import make_word_number, merge_words
from penstock.formats.delta.spark.scan.scans import ROW
from penstock.formats.rows.arrow_types import pa, pc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.formats.delta.spark.job.tables import JobTable

ROWS_AT_ONCE: Final = 1 << 29
"""Of how many rows the words come at once: at most some two hundred megabytes."""
ROWS_UNKNOWN: Final = 1 << 23
"""How many rows a file is taken to have whose statistics do not tell."""
WORD: Final = "__penstock_word"


def group_by_word(numbered: DataFrame, *values: Column) -> DataFrame:
    """Numbered rows by the words that they belong to, with values of each word."""
    return numbered.groupBy(FILE, make_word_number(ROW).alias(WORD)).agg(*values)


def collect_words(files: Sequence[Add], ask: Callable[[Sequence[Add]], DataFrame]) -> Any | None:
    """The words of files that Spark found, as an Arrow table in which the files are numbered.

    ``ask`` computes the words of some files. ``None`` if there are too many for the driver's memory.
    """
    parts: list[Any] = []
    for first, part in split_files(files):
        words = ask(part).toArrow()
        parts.append(words.set_column(0, FILE, pc.add(words[FILE], pa.scalar(first, pa.int32()))))
        if sum(collected.num_rows for collected in parts) > deletion_words.WORDS_MAX:
            return None
    return pa.concat_tables(parts)


def collect_rows(words: Any, name: str) -> dict[int, BitmapWords]:
    """The rows that a column of collected words names, by the numbers of their files."""
    return merge_words(words[FILE], words[WORD], words[name])


def split_files(files: Sequence[Add]) -> Iterator[tuple[int, Sequence[Add]]]:
    """Files in parts of ``ROWS_AT_ONCE``, each with the number of its first file."""
    start, count = 0, 0
    for number, file in enumerate(files):
        rows = count_rows(file)
        count += ROWS_UNKNOWN if rows is None else rows
        if count > ROWS_AT_ONCE and number > start:
            yield start, files[start:number]
            start, count = number, 0
    if start < len(files):
        yield start, files[start:]


def mark_files(
    table: JobTable, files: Sequence[Add], found: Mapping[int, BitmapWords], written: Iterable[Action]
) -> list[Add]:
    """Name files again with rows deleted, beside files that were written for the same change."""
    return mark_beside(
        table, (FileDeletionMarks(files[at], words.bits) for at, words in found.items()), written
    )
