"""Rows of a Parquet file in batches: however large the file, its row groups and its rows, only some MiB of it
are in memory.

Arrow would fetch all that is to be read of a file before the first batch, and keep it until the last one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from penstock.formats.rows.arrow_types import pq

PART_BYTES: Final = 16 * 1024 * 1024
"""How much of a file is fetched at once: row groups up to this size together."""
GROUP_MAX_BYTES: Final = 64 * 1024 * 1024
"""A row group beyond this size is not fetched at once, but each column of it little by little."""
COLUMN_BYTES: Final = 256 * 1024
"""The least that is fetched of a column then."""
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 16 * 1024 * 1024
"""About how large a batch is at most, by what the file says of the size of its columns."""


class _FilePart(NamedTuple):
    """Row groups that are fetched together, or one that is not fetched at once."""

    groups: list[int]
    batch_rows: int
    is_large: bool


def open_parquet(source: Any, **options: Any) -> Any:
    """A file whose row groups are fetched before they are read."""
    return pq.ParquetFile(source, pre_buffer=True, coerce_int96_timestamp_unit="us", **options)


def read_batches(source: Any, parquet: Any, columns: Sequence[str], *, is_near: bool) -> Iterator[Any]:
    """Rows of a file that ``open_parquet`` opened from ``source``, with some of its columns.

    Of a file that ``is_near`` nothing is fetched at once: to ask again costs nothing.
    """
    for part in _divide_row_groups(parquet.metadata, columns):
        is_whole = not (is_near or part.is_large)
        file = parquet if is_whole else _open_column_by_column(source, parquet, columns)
        yield from file.iter_batches(part.batch_rows, part.groups, columns=columns, use_threads=False)


def _open_column_by_column(source: Any, parquet: Any, columns: Collection[str]) -> Any:
    return pq.ParquetFile(
        source,
        metadata=parquet.metadata,
        buffer_size=max(COLUMN_BYTES, PART_BYTES // max(1, len(columns))),
        pre_buffer=False,
        coerce_int96_timestamp_unit="us",
    )


def _divide_row_groups(metadata: Any, columns: Collection[str]) -> Iterator[_FilePart]:
    groups: list[int] = []
    size, batch_rows = 0, BATCH_ROWS
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        stored_bytes, decoded_bytes = _measure_row_group(group, columns)
        rows = max(1, min(BATCH_ROWS, group.num_rows * BATCH_BYTES // max(1, decoded_bytes)))
        is_large = stored_bytes > GROUP_MAX_BYTES
        if groups and (is_large or size + stored_bytes > PART_BYTES):
            yield _FilePart(groups, batch_rows, is_large=False)
            groups, size, batch_rows = [], 0, BATCH_ROWS
        if is_large:
            yield _FilePart([number], rows, is_large=True)
            continue
        groups.append(number)
        size, batch_rows = size + stored_bytes, min(batch_rows, rows)
    if groups:
        yield _FilePart(groups, batch_rows, is_large=False)


def _measure_row_group(group: Any, columns: Collection[str]) -> tuple[int, int]:
    """How many bytes columns of a row group have in the file, and about how many without compression."""
    if group.total_byte_size <= BATCH_BYTES:  # of all columns: no need to look at each
        return group.total_byte_size, group.total_byte_size
    chunks = [group.column(number) for number in range(group.num_columns)]
    chosen = [chunk for chunk in chunks if _is_of(chunk.path_in_schema, columns)]
    return (
        sum(chunk.total_compressed_size for chunk in chosen),
        sum(chunk.total_uncompressed_size for chunk in chosen),
    )


def _is_of(path: str, columns: Collection[str]) -> bool:
    """Whether a column of values is one of these columns, or a part of one."""
    return any(path == name or path.startswith(f"{name}.") for name in columns)
