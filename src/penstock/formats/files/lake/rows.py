"""Rows of tables of files, without Spark: written and read by Arrow, in the formats that it knows.

A table of files says how its files are to be read: in which format, by which columns they are partitioned,
and which columns its last writer wrote. So what is written here is read by Spark, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound, RequestError
from penstock.formats.files.intents import WriteCondition
from penstock.formats.files.lake import save_job
from penstock.formats.files.lake.answers import FilesTableInfo, FilesWritten, TableLayout
from penstock.formats.files.lake.calls import GetFilesTable
from penstock.formats.files.lake.pending_changes import PendingFileChanges, commit_pending_changes
from penstock.formats.files.lake.save_job import FilesJob
from penstock.formats.rows.arrow_types import pa
from penstock.lake.call import CommitDescription
from penstock.lake.calls import GetChanges, GetCommit, GetOutcome, GetReference
from penstock.lake.row_input import open_row_reader, write_schema_text
from penstock.lake.write_jobs import SaveMode
from penstock.model.encoding import hash_parts
from penstock.model.similar_names import describe_names

if TYPE_CHECKING:
    from penstock.lake.table import Table
    from penstock.lake.table_writer import RowWrite

PARTITIONS_MAX: Final = 10_000
"""Rows of one write are in at most so many partitions."""
_WHEN: Final = {SaveMode.ERROR: WriteCondition.EMPTY, SaveMode.IGNORE: WriteCondition.IGNORE}


def choose_file_format(table: Table) -> str:
    """The format of a table's files, as its last writer said; nothing if none has."""
    about = _find_table(table)
    return "" if about is None else about.layout.format.lower()


def _find_table(table: Table) -> FilesTableInfo | None:
    try:
        return table.lake.do(GetFilesTable(key=table.key, at=table.ref))
    except KeyNotFound:
        return None


# -- writing -----------------------------------------------------------------------------------------------


def write_rows(table: Table, row_write: RowWrite, format: str) -> FilesWritten | None:  # noqa: A002
    """Write rows as files of a table, in one commit; ``None`` if that changes nothing."""
    mode, idempotency_key, by = row_write.mode, row_write.idempotency_key, row_write.partition_by
    if (earlier_write := _find_earlier_write(table, idempotency_key)) is not None:
        return earlier_write
    about, rows = _find_table(table), open_row_reader(row_write.data)
    by = by if by is not None else () if about is None else about.layout.partition_by
    layout = _make_layout(rows.schema, format, by)
    if about is not None:
        save_job.check_fits(FilesJob(key=table.key, mode=mode, layout=layout), about)
    stem = uuid4().hex if idempotency_key is None else _file_name_prefix(table, idempotency_key)
    with TemporaryDirectory(prefix="penstock-") as folder:
        _write_into(Path(folder), rows, layout, stem)
        written = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        puts = {path.relative_to(folder).as_posix(): path for path in written}
        if not puts and mode is SaveMode.APPEND and about is not None:
            return None
        changes = PendingFileChanges(
            puts=puts,
            replaced=("",) if mode is SaveMode.OVERWRITE else (),
            absent=tuple(puts) if mode is SaveMode.APPEND else (),  # no rows take the place of others
            when=_WHEN.get(mode, WriteCondition.ALWAYS),
            layout=layout,
        )
        files_written = commit_pending_changes(
            table, changes, _add_message(row_write.said, table, mode, len(puts)), idempotency_key
        )
    return None if files_written.commit is None else files_written


def _file_name_prefix(table: Table, idempotency_key: str) -> str:
    """What the names of files begin with that are written under a key.

    A key is a branch's own: a transaction, or a branch of the same name that was made anew, may have it too,
    for other rows.
    """
    incarnation = table.lake.do(GetReference(name=table.ref)).incarnation.hex()
    return hash_parts("files rows", idempotency_key, incarnation).hex()[:32]


def _make_layout(schema: Any, format: str, by: tuple[str, ...]) -> TableLayout:  # noqa: A002
    """How rows of an Arrow schema are to be read; ``InvalidRequest`` for columns that they have not."""
    absent = [name for name in by if name not in schema.names]
    if absent:
        raise InvalidRequest(
            f"there is no column '{absent[0]}' to partition by{describe_names(absent[0], schema.names)}"
        )
    if by and len(set(by)) == len(schema.names):
        raise InvalidRequest("the data has no columns besides the partition columns")
    try:
        columns = write_schema_text(pa.schema(schema))
    except RequestError:
        columns = ""  # of types that only Arrow has: readers look into the files
    options = {"header": "true"} if format == "csv" else {}
    return TableLayout(format=format, partition_by=by, schema=columns, options=options)


def _write_into(folder: Path, rows: Any, layout: TableLayout, stem: str) -> None:
    """Write rows as files of a directory; ``InvalidRequest`` for rows that the format cannot have."""
    import pyarrow.dataset as datasets  # type: ignore[import-untyped]

    columns = [name for name in rows.schema.names if name not in layout.partition_by]
    if layout.format == "csv" and len(columns) == 1:
        rows = pa.RecordBatchReader.from_batches(rows.schema, _without_empty_lines(rows, columns[0]))
    fields = pa.schema([rows.schema.field(name) for name in layout.partition_by])
    try:
        datasets.write_dataset(
            rows,
            folder,
            format=layout.format,
            basename_template=f"part-{stem}-{{i}}.{layout.format}",
            partitioning=datasets.partitioning(fields, flavor="hive") if layout.partition_by else None,
            use_threads=False,  # so that the same rows give the same files
            max_partitions=PARTITIONS_MAX,
            existing_data_behavior="overwrite_or_ignore",
        )
    except (pa.ArrowException, ValueError) as problem:
        raise InvalidRequest(f"the rows cannot be written as {layout.format}: {problem}") from None


def _without_empty_lines(rows: Any, name: str) -> Iterator[Any]:
    """``InvalidRequest`` for a null in the only column of a line: the line is empty then, and readers of CSV
    do not count such lines."""
    for batch in rows:
        if batch.column(name).null_count:
            raise InvalidRequest(
                f"csv with one column cannot store a null in '{name}': write parquet, or add a column"
            )
        yield batch


def _add_message(
    description: CommitDescription, table: Table, mode: SaveMode, files: int
) -> CommitDescription:
    if description.message is not None:
        return description
    count = f"{files:,} file{'' if files == 1 else 's'}"
    if mode is SaveMode.OVERWRITE:
        return msgspec.structs.replace(description, message=f"overwrite {table.key} with {count}")
    verb = "append" if mode is SaveMode.APPEND else "write"
    return msgspec.structs.replace(description, message=f"{verb} {count} to {table.key}")


def _find_earlier_write(table: Table, idempotency_key: str | None) -> FilesWritten | None:
    """The result of an earlier write with the same idempotency key, or ``None``."""
    if idempotency_key is None:
        return None
    landing = table.lake.do(GetOutcome(key=idempotency_key, branch=table.ref))
    if landing is None or not landing.commits:
        return None
    changes = table.lake.do(GetChanges(revision=landing.head, via=table.ref))
    if all(change.key != table.key for change in changes):
        return None  # the key was used for something else, and the write will be refused for that
    made = landing.commit or table.lake.do(GetCommit(revision=landing.head, via=table.ref))
    return FilesWritten(commit=made, head=landing.head)
