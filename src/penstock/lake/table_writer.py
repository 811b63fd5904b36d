"""Writing rows to a table, whatever it is: what is there decides, or the format that is given for a new one.

Rows are anything that gives Arrow's stream, or dicts. Each write is one commit. What a save mode means is
decided by what the table has when the commit has its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.errors import CommitConflict, InvalidRequest, NotManaged
from penstock.formats.registry import TableFormat, find_declared, list_table_formats, load_other_formats
from penstock.lake.call import CommitDescription
from penstock.lake.calls import GetContents
from penstock.lake.plugins import find_format
from penstock.lake.row_input import to_arrow_stream
from penstock.lake.write_jobs import SaveMode, check_new_key
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.table import Table

EXISTS: Final = (
    "'{key}' already exists\n  'append' adds rows to it, 'overwrite' replaces them, as in "
    "lake.table('{key}').append(…)."
)


class RowWrite(NamedTuple):
    """What is to be written to a table."""

    data: Any
    mode: SaveMode
    format: str | None
    """One of ``TableFormat.row_formats``; ``None`` for what the table has, or the default of a new one."""
    partition_by: tuple[str, ...] | None
    said: CommitDescription
    idempotency_key: str | None
    there: AnyContent | None = None
    """What is at the table's key; ``None`` if nothing."""


def write_rows(
    table: Table,
    data: Any,
    mode: str,
    format: str | None,  # noqa: A002
    partition_by: str | Sequence[str] | None,
    description: CommitDescription,
    idempotency_key: str | None,
) -> Any:
    """Write rows; ``None`` if there was nothing to be done."""
    table.require_branch()
    chosen, by = _parse_mode(mode), _parse_columns(partition_by)
    data = to_arrow_stream(data)
    table.lake.begin_write()
    content = find_content(table)
    wanted_format = None if format is None else _choose_row_format(format)
    if content is None:
        check_new_key(table.key)
        declared = _choose_format(wanted_format)
    else:
        declared = _find_format(table.key, content)
    rows = RowWrite(data, chosen, wanted_format, by, description, idempotency_key, content)
    return declared.load(declared.table_view)(table).write(rows)


def find_content(table: Table) -> AnyContent | None:
    """What is at the key now. A write has to look, but in a transaction that does not count as read."""
    entries = table.lake.do(GetContents(at=table.ref, key=(table.key,)))
    return entries[0].content if entries else None


def _parse_mode(mode: str) -> SaveMode:
    try:
        return SaveMode(str(mode).lower())
    except ValueError:
        raise InvalidRequest(f"unknown mode {mode!r}; the modes are {', '.join(SaveMode)}") from None


def _parse_columns(partition_by: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if partition_by is None:
        return None
    return (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)


def _choose_row_format(format: str) -> str:  # noqa: A002
    name = str(format).lower()
    if find_declared(lambda declared: name in declared.row_formats) is None:
        formats = (*list_table_formats(), *load_other_formats().formats)
        names = [name for declared in formats for name in declared.row_formats]
        raise InvalidRequest(
            f"rows can be written here as {', '.join(names)}, not as {format!r}; use Spark for that format"
        )
    return name


def _choose_format(name: str | None) -> TableFormat:
    """The table format for rows that are to be written in some way; the first one is the default."""
    declared = None if name is None else find_declared(lambda table_format: name in table_format.row_formats)
    return list_table_formats()[0] if declared is None else declared


def _find_format(key: Key, content: AnyContent) -> TableFormat:
    """The format of a table that is there; ``NotManaged`` for what is no table of rows."""
    if (declared := find_format(content)) is None:
        raise no_rows_written_error(key, content)
    return declared


# -- what formats share ------------------------------------------------------------------------------------


def no_rows_written_error(key: Key, content: AnyContent) -> NotManaged:
    """What is said of something that no rows are written to."""
    return NotManaged(f"'{key}' is of type {content.type}: the lake cannot write rows to it", key=str(key))


def check_format(key: Key, known: str, wanted: str | None) -> None:
    """``InvalidRequest`` if rows are to be written in another format than a table has."""
    if wanted not in (None, known):
        raise other_format_error(key, known, wanted)


def other_format_error(key: Key, known: str, wanted: str | None) -> InvalidRequest:
    """What is said of a table whose rows are not written in the format that is wanted."""
    return InvalidRequest(
        f"'{key}' is a table of {known}, but the requested format is "
        f"{wanted or 'one that only Spark writes'}: leave out 'format', or write to another key",
        table=str(key),
    )


def has_nothing_to_write(table: Table, content: AnyContent | None, mode: SaveMode) -> bool:
    """Whether nothing is to be written, since the table is there; ``CommitConflict`` if it must not be.

    That it is there is all that such a write comes to, and so it is a read in a transaction.
    """
    if content is None or mode not in (SaveMode.ERROR, SaveMode.IGNORE):
        return False
    table.note_read(is_listing=True)
    if mode is SaveMode.IGNORE:
        return True
    raise exists_error(table.key)


def exists_error(key: Key) -> CommitConflict:
    """What is said of a table that is to be created and is there."""
    conflict = Conflict(ConflictKind.FORMAT, key, why="exists already")
    return CommitConflict([conflict], EXISTS.format(key=key))
