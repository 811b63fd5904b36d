"""Rows of tables of files, without Spark: written and read by Arrow, in the formats that it knows.

A table of files says how its files are to be read: in which format, by which columns they are partitioned,
and which columns its last writer wrote. So what is written here is read by Spark, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound, RequestError
from penstock.formats.files.intents import When
from penstock.formats.files.lake import saving
from penstock.formats.files.lake.answers import FilesAbout, FilesWritten, TableLayout
from penstock.formats.files.lake.calls import GetFilesTable, ListFiles
from penstock.formats.files.lake.data_files import is_data
from penstock.formats.files.lake.reader import TableBytes
from penstock.formats.files.lake.rows_reading import DataFile, read_rows
from penstock.formats.files.lake.saving import FilesJob
from penstock.formats.files.lake.writing import PendingFileChanges, commit
from penstock.formats.rows.arrow_types import pa
from penstock.lake.call import Said
from penstock.lake.calls import GetChanges, GetCommit, GetOutcome, GetReference, Resolve
from penstock.lake.row_input import rows_of, schema_text
from penstock.lake.write_jobs import SaveMode
from penstock.model.encoding import digest

if TYPE_CHECKING:
    from penstock.lake.table import Table
    from penstock.lake.table_writing import RowWrite

PARTITIONS_MAX: Final = 10_000
"""Rows of one write are in at most so many partitions."""
_WHEN: Final = {SaveMode.ERROR: When.EMPTY, SaveMode.IGNORE: When.IGNORE}


def to_arrow(table: Table, columns: Sequence[str] | None, where: str | None) -> Any:
    """The rows of a table of files as a ``pyarrow.Table``, all of one commit.

    ``where`` is a condition as for Delta tables. ``InvalidRequest`` if Arrow does not read its format, or
    nobody has said which that is.
    """
    lake = table.lake
    found = lake.do(Resolve(revision=table.ref))
    at: dict[str, Any] = {"key": table.key, "at": found.commit, "via": table.via or found.name}
    about = lake.do(GetFilesTable(**at))
    entries = lake.pages(ListFiles(**at), None, lambda last: {"after": last.path})
    contents = TableBytes(lake.places, lake.warehouse, table.key)
    files = [
        DataFile(one.path, partial(contents.open, one)) for one in entries if one.size and is_data(one.path)
    ]
    return read_rows(str(table.key), about.layout, files, columns, where)


def format_of(table: Table) -> str:
    """The format of a table's files, as its last writer said; nothing if none has."""
    about = _found(table)
    return "" if about is None else about.layout.format.lower()


def _found(table: Table) -> FilesAbout | None:
    try:
        return table.lake.do(GetFilesTable(key=table.key, at=table.ref))
    except KeyNotFound:
        return None


# -- writing -----------------------------------------------------------------------------------------------


def write(table: Table, wanted: RowWrite, format: str) -> FilesWritten | None:  # noqa: A002
    """Write rows as files of a table, in one commit; ``None`` if that changes nothing."""
    mode, idempotency_key, by = wanted.mode, wanted.idempotency_key, wanted.partition_by
    if (known := _done_before(table, idempotency_key)) is not None:
        return known
    about, rows = _found(table), rows_of(wanted.data)
    by = by if by is not None else () if about is None else about.layout.partition_by
    layout = _layout(rows.schema, format, by)
    if about is not None:
        saving.check_fits(FilesJob(key=table.key, mode=mode, layout=layout), about)
    stem = uuid4().hex if idempotency_key is None else _stem(table, idempotency_key)
    with TemporaryDirectory(prefix="penstock-") as folder:
        _write_into(Path(folder), rows, layout, stem)
        written = sorted(one for one in Path(folder).rglob("*") if one.is_file())
        puts = {one.relative_to(folder).as_posix(): one for one in written}
        if not puts and mode is SaveMode.APPEND and about is not None:
            return None
        changes = PendingFileChanges(
            puts=puts,
            replaced=("",) if mode is SaveMode.OVERWRITE else (),
            absent=tuple(puts) if mode is SaveMode.APPEND else (),  # no rows take the place of others
            when=_WHEN.get(mode, When.ALWAYS),
            layout=layout,
        )
        done = commit(table, changes, _told(wanted.said, table, mode, len(puts)), idempotency_key)
    return None if done.commit is None else done


def _stem(table: Table, idempotency_key: str) -> str:
    """What the names of files begin with that are written under a key.

    A key is a branch's own: a transaction, or a branch of the same name that was made anew, may have it too,
    for other rows.
    """
    incarnation = table.lake.do(GetReference(name=table.ref)).incarnation.hex()
    return digest("files rows", idempotency_key, incarnation).hex()[:32]


def _layout(schema: Any, format: str, by: tuple[str, ...]) -> TableLayout:  # noqa: A002
    """How rows of an Arrow schema are to be read; ``InvalidRequest`` for columns that they have not."""
    absent = [name for name in by if name not in schema.names]
    if absent:
        raise InvalidRequest(
            f"there is no column '{absent[0]}' to partition by; there are {', '.join(schema.names)}"
        )
    if by and len(set(by)) == len(schema.names):
        raise InvalidRequest("the data has no columns besides those that it is to be partitioned by")
    try:
        columns = schema_text(pa.schema(schema))
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
                f"csv of one column cannot say that a row has no '{name}': write parquet, or one more column"
            )
        yield batch


def _told(said: Said, table: Table, mode: SaveMode, files: int) -> Said:
    if said.message is not None:
        return said
    count = f"{files:,} file{'' if files == 1 else 's'}"
    if mode is SaveMode.OVERWRITE:
        return msgspec.structs.replace(said, message=f"overwrite {table.key} with {count}")
    verb = "append" if mode is SaveMode.APPEND else "write"
    return msgspec.structs.replace(said, message=f"{verb} {count} to {table.key}")


def _done_before(table: Table, idempotency_key: str | None) -> FilesWritten | None:
    """What the same write came to before."""
    if idempotency_key is None:
        return None
    landing = table.lake.do(GetOutcome(key=idempotency_key, branch=table.ref))
    if landing is None or not landing.commits:
        return None
    changes = table.lake.do(GetChanges(revision=landing.head, via=table.ref))
    if all(one.key != table.key for one in changes):
        return None  # the key was used for something else, and the write will be refused for that
    made = landing.commit or table.lake.do(GetCommit(revision=landing.head, via=table.ref))
    return FilesWritten(commit=made, head=landing.head)
