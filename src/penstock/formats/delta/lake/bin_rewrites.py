"""Rows of a Delta table's files are written to others in this process: together, or along a curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Final

from penstock.formats.delta.lake.file_upkeep import FileBin, FileLayout, RewriteEngine
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.lake.written_files import list_added_names
from penstock.formats.delta.log.scan import read_rows_of_files
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.rows.file_writer import DataFileWriter
from penstock.formats.rows.arrow_types import pa, pc
from penstock.lake.job_files import remove_files

CURVE_BITS: Final = 62


def rewrite_bins(job: DeltaJob, bins: Sequence[FileBin], layout: FileLayout) -> list[Add]:
    """Write the rows of bins to new files. See ``RewriteEngine``."""
    added: list[Add] = []
    try:
        for each in bins:
            for file in _write_bin(job, each, layout):
                added.append(file)  # noqa: PERF402 - so that those before a failure are known
    except BaseException:
        remove_files(job.place, list_added_names(added))
        raise
    return added


def _write_bin(job: DeltaJob, each: FileBin, layout: FileLayout) -> Iterator[Add]:
    """Write the rows of files anew: as one file, or sorted and cut into files of the target size."""
    row_ids = job.final_row_ids(each.files)
    rows = read_rows_of_files(job.snapshot.log_snapshot, job.place, each.files, final_row_ids=row_ids)
    for batches in _sort_along_curve(rows, layout, layout.count_files(each)) if layout.sorted_by else [rows]:
        # What was packed to the target size may come out a little larger, and is still one file.
        output = DataFileWriter(
            job.place,
            job.metadata,
            prefix=job.data_folder,
            clustering=job.clustering,
            with_row_ids=True,
            target_file_bytes=2 * layout.target_bytes,
        )
        with output:
            for batch in batches:
                output.write_rows(batch, are_checked=True)
            written = output.finish_files()
        for action in written:
            assert isinstance(action, Add)
            yield action


def _sort_along_curve(rows: Any, layout: FileLayout, parts: int) -> Iterator[Any]:
    """The rows along the curve, in parts that become a file each."""
    table = rows.read_all().combine_chunks()
    if not table.num_rows:
        return
    columns = [_get_column_values(table, path) for path in layout.sorted_by]
    table = table.take(pc.sort_indices(curve_positions(columns))).combine_chunks()
    rows_each = -(-table.num_rows // parts)
    for start in range(0, table.num_rows, rows_each):
        yield table.slice(start, rows_each).to_batches(max_chunksize=65_536)


def curve_positions(columns: Sequence[Any]) -> Any:
    """Where rows lie on a Z-order curve of some columns: rows that are near each other there are near in each
    of them. Values are taken by their rank, so that it does not matter how they are spread."""
    if len(columns) == 1:
        return _rank_values(columns[0])
    bits = min(16, CURVE_BITS // len(columns))
    scaled = []
    for column in columns:
        ranks = _rank_values(column)
        largest = max(1, pc.max(ranks).as_py())
        # As far as there are more ranks than places on the curve, neighbours share one.
        step = max(1, -(-(largest + 1) // (1 << bits)))
        scaled.append(pc.divide(ranks, step))
    parts = [
        pc.shift_left(pc.bit_wise_and(pc.shift_right(ranks, bit), 1), bit * len(scaled) + at)
        for at, ranks in enumerate(scaled)
        for bit in range(bits)
    ]
    return reduce(pc.bit_wise_or, parts)


def _rank_values(column: Any) -> Any:
    """The place of each value among all of them; nulls come first."""
    values = pc.unique(column).drop_null()
    ordered = values.take(pc.sort_indices(values))
    return pc.add(pc.fill_null(pc.index_in(column, value_set=ordered).cast(pa.int64()), -1), 1)


def _get_column_values(table: Any, path: Sequence[str]) -> Any:
    column = table.column(path[0])
    for step in path[1:]:
        column = pc.struct_field(column, step)
    return pa.concat_arrays(column.chunks)


ARROW: Final = RewriteEngine(
    rewrite_bins, commit_bytes=1024 * 1024 * 1024, sorted_max_bytes=256 * 1024 * 1024
)
