"""Writing rows to a table, whatever it is: what is there decides, or the format that is given for a new one.

Rows are anything that gives Arrow's stream, or dicts. Each write is one commit. What a save mode means is
decided by what the table has when the commit has its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import CommitConflict, IdempotencyKeyReused, InvalidRequest, NotManaged
from penstock.formats.delta.lake import table as delta
from penstock.formats.delta.lake.answers import Ratified, RatifiedTable
from penstock.formats.delta.lake.calls import GetTableVersions
from penstock.formats.delta.lake.creation import EXISTS
from penstock.formats.files.files import is_managed as is_managed_files
from penstock.formats.files.lake.answers import FilesWritten
from penstock.formats.lance.lake.installed import require_lance
from penstock.lake.call import Said
from penstock.lake.calls import GetCommit, GetContents
from penstock.lake.row_input import are_had_once, arrow_rows, rows_of
from penstock.lake.write_jobs import SaveMode, check_new_key
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, DeltaTable, FilesTable, LanceTable

if TYPE_CHECKING:
    from penstock.lake.table import Table

DELTA: Final = "delta"
LANCE: Final = "lance"
FILES: Final = ("parquet", "csv")
"""Formats that Arrow writes. Tables of files in any other are written by Spark, or file by file."""
FORMATS: Final = (DELTA, LANCE, *FILES)


def write(
    table: Table,
    data: Any,
    mode: str,
    format: str | None,  # noqa: A002
    partition_by: str | Sequence[str] | None,
    said: Said,
    idempotency_key: str | None,
) -> Ratified | FilesWritten | None:
    """Write rows; ``None`` if there was nothing to be done."""
    delta.writable(table)
    chosen, by = _mode(mode), _columns(partition_by)
    data = arrow_rows(data)
    table.lake.begin_write()
    there = _there(table)
    kind = _kind(table, there, format)
    if there is None:
        check_new_key(table.key)
    if kind == DELTA:
        return _to_delta(table, data, chosen, by, said, idempotency_key)
    if kind == LANCE:
        return _to_lance(table, data, chosen, by, said, idempotency_key)
    from penstock.formats.files.lake.rows import write as write_files

    if there is not None and chosen in (SaveMode.ERROR, SaveMode.IGNORE):
        table.note_read(is_listing=True)  # it may come to nothing for that
    return write_files(table, data, chosen, kind, by, said, idempotency_key)


def _there(table: Table) -> AnyContent | None:
    """What is at the key now. A write has to look, but in a transaction that does not count as read."""
    found = table.lake.do(GetContents(at=table.ref, key=(table.key,)))
    return found[0].content if found else None


def _mode(mode: str) -> SaveMode:
    try:
        return SaveMode(str(mode).lower())
    except ValueError:
        raise InvalidRequest(f"{mode!r} is no mode of writing; there are {', '.join(SaveMode)}") from None


def _columns(partition_by: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if partition_by is None:
        return None
    return (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)


def _kind(table: Table, there: AnyContent | None, format: str | None) -> str:  # noqa: A002
    """How rows are written; ``InvalidRequest`` for what is no format, or is not that of the table."""
    wanted = None if format is None else str(format).lower()
    if wanted is not None and wanted not in FORMATS:
        raise InvalidRequest(
            f"rows are written as {', '.join(FORMATS)} here, and not as {format!r}; Spark may"
        )
    if there is None:
        return wanted or DELTA
    known = _known(table, there)
    if isinstance(there, FilesTable) and (wanted or known) in FILES:
        return wanted or known
    if isinstance(there, FilesTable) and not known and wanted is None:
        raise InvalidRequest(
            f"nobody has said which format the files of '{table.key}' have: give it, as in format='parquet'",
            table=str(table.key),
        )
    if known not in FORMATS or wanted not in (None, known):
        raise InvalidRequest(
            f"'{table.key}' is a table of {known or 'files'}, and rows are to be written as "
            f"{wanted or 'such, which only Spark does'}: leave out 'format', or write to another key",
            table=str(table.key),
        )
    return known


def _known(table: Table, there: AnyContent) -> str:
    """The format of a table that is there, as far as that is known; ``NotManaged`` for one of others."""
    if isinstance(there, LanceTable) and there.state:
        return LANCE
    if isinstance(there, FilesTable) and is_managed_files(there):
        from penstock.formats.files.lake.rows import format_of

        return format_of(table)
    if not isinstance(there, DeltaTable):
        raise NotManaged(f"'{table.key}' is {there.type}: the lake writes no rows to it", key=str(table.key))
    return DELTA


def _is_done(table: Table, there: AnyContent | None, mode: SaveMode) -> bool:
    """Whether nothing is to be written, since the table is there; ``CommitConflict`` if it must not be.

    That it is there is all that such a write comes to, and so it is a read in a transaction.
    """
    if there is None or mode not in (SaveMode.ERROR, SaveMode.IGNORE):
        return False
    table.note_read(is_listing=True)
    if mode is SaveMode.IGNORE:
        return True
    raise CommitConflict(
        [Conflict(ConflictKind.FORMAT, table.key, why="exists already")], EXISTS.format(key=table.key)
    )


# -- tables of rows ----------------------------------------------------------------------------------------


def _to_delta(
    table: Table,
    data: Any,
    mode: SaveMode,
    by: tuple[str, ...] | None,
    said: Said,
    idempotency_key: str | None,
) -> Ratified | None:
    known = delta.done_before(table.lake, [table.key], table.ref, idempotency_key)
    if known is not None:
        return known
    there = _there(table)
    if there is None:
        try:
            return _created(table, rows_of(data), by or (), said, idempotency_key)
        except CommitConflict:
            # Rows that can be had only once are gone with the try. Others go to what somebody else created.
            is_gone = are_had_once(data) and mode is not SaveMode.IGNORE
            if (there := _there(table)) is None or is_gone:
                raise
        except IdempotencyKeyReused:
            known = delta.done_before(table.lake, [table.key], table.ref, idempotency_key)
            if known is None:
                raise
            return known
    if _is_done(table, there, mode):
        return None
    _check_partitions(table, by)
    if mode is SaveMode.OVERWRITE:
        return delta.overwrite(table, data, None, None, said=said, idempotency_key=idempotency_key)
    return delta.append(table, data, said=said, idempotency_key=idempotency_key)


def _created(
    table: Table, rows: Any, by: tuple[str, ...], said: Said, idempotency_key: str | None
) -> Ratified:
    lake, author = table.lake, said.authors[0] if said.authors else None
    made = lake.delta.create_filled(
        table.key,
        rows,
        partition_by=by,
        branch=table.ref,
        message=said.message,
        author=author,
        idempotency_key=idempotency_key,
    )
    one = RatifiedTable(key=made.key, version=made.version, name="", timestamp_ms=0, repeated=made.repeated)
    return Ratified(commit=lake.do(GetCommit(revision=made.commit, via=table.ref)), tables=(one,))


def _check_partitions(table: Table, by: tuple[str, ...] | None) -> None:
    if by is None:
        return
    now = table.lake.do(GetTableVersions(key=table.key, at=table.ref, limit=0))
    there = tuple(now.declared()[1].partition_columns)
    if by != there:
        raise InvalidRequest(
            f"'{table.key}' is partitioned by {', '.join(there) or 'nothing'}, and stays so; leave out "
            "'partition_by'",
            table=str(table.key),
        )


def _to_lance(
    table: Table,
    data: Any,
    mode: SaveMode,
    by: tuple[str, ...] | None,
    said: Said,
    idempotency_key: str | None,
) -> Ratified | None:
    if by:
        raise InvalidRequest("Lance tables have no partitions: leave out 'partition_by'")
    require_lance()
    from penstock.formats.lance.lake.creation import create, created_before
    from penstock.formats.lance.lake.rows import write as write_rows

    known = created_before(table, idempotency_key)
    if known is not None:
        return known
    there = _there(table)
    if there is None:
        return create(table, data, said, idempotency_key)
    if _is_done(table, there, mode):
        return None
    return write_rows(table, data, mode.value, said, idempotency_key)
