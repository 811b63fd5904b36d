"""Deletion vectors for Spark: the numbers of rows of files, as a DataFrame to join with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.actions import Add, Remove
from penstock.formats.delta.rows.arrow_types import pa, pc, pq
from penstock.formats.delta.rows.inside import name_inside
from penstock.formats.delta.rows.vectors import deleted_rows
from penstock.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def deleted(place: Place, file: Add | Remove) -> bytes:
    """A bitmap of the rows that a file's deletion vector names; empty if it has none.

    ``InvalidLog`` if the vector is missing, or is not what the log says.
    """
    if file.deletion_vector is None:
        return b""
    try:
        count = _row_count(place, file)
        found = deleted_rows(
            file.deletion_vector, count, place.read_range, lambda path: name_inside(path, place.url)
        )
    except (pa.ArrowException, ValueError, OSError) as problem:
        raise InvalidLog(
            f"{file.path} of the table {place.url} cannot be read: {problem}", table=place.url, file=file.path
        ) from None
    return bytes(found)


def row_numbers(spark: SparkSession, bitmaps: Mapping[int, bytes], file: str, row: str) -> DataFrame:
    """The rows that bitmaps name, as two columns: the number of the bitmap, and that of the row."""
    parts = [_numbers(number, bitmap, file, row) for number, bitmap in bitmaps.items()]
    return spark.createDataFrame(pa.concat_tables(parts))


def _numbers(number: int, bitmap: bytes, file: str, row: str) -> Any:
    bits = pa.Array.from_buffers(pa.bool_(), 8 * len(bitmap), [None, pa.py_buffer(bitmap)])
    found = pc.indices_nonzero(bits).cast(pa.int64())
    return pa.table({file: pa.repeat(pa.scalar(number, pa.int32()), len(found)), row: found})


def _row_count(place: Place, file: Add | Remove) -> int:
    """How many rows a file has, deleted ones too: by its statistics, else by its footer."""
    stats = json.loads(file.stats or "{}")
    noted = stats.get("numRecords") if isinstance(stats, dict) else None
    if isinstance(noted, int) and noted >= 0:
        return noted
    name = name_inside(file.path, place.url)
    size = place.size(name) or 0
    end = place.read_range(name, max(0, size - 8), 8)
    if end is None or len(end) < 8:
        raise ValueError("there is no such file")
    footer_bytes = min(size, int.from_bytes(end[:4], "little") + 8)
    footer = place.read_range(name, size - footer_bytes, footer_bytes)
    return int(pq.read_metadata(pa.BufferReader(footer or b"")).num_rows)
