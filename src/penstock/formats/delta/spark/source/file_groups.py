"""Groups of files of a table, each read by one task.

A group is self-contained: its task opens no lake, and does not look up which files there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from penstock.formats.delta.log.log_files import LogFile
from penstock.formats.delta.log.scan import read_rows
from penstock.formats.delta.log.segments import LogSegment
from penstock.formats.delta.log.snapshot import replay_segment
from penstock.formats.delta.protocol.actions import Add, Metadata, Protocol, write_commit
from penstock.formats.delta.protocol.names import END_OF_VERSIONS
from penstock.formats.delta.rows.file_addresses import open_table_place
from penstock.formats.rows.arrow_types import allow_nulls, make_arrow_schema, pa
from penstock.formats.rows.schema import Field, StructType, parse_schema
from penstock.storage.moved_roots import MovedRoot, MovedRoots
from penstock.storage.places import Places

GROUP_BYTES: Final = 64 * 1024 * 1024
"""About how much one task reads."""
OPENING_BYTES: Final = 4 * 1024 * 1024
"""What opening a file costs, as bytes that could be read meanwhile."""
_NAME: Final = "files"


class FileGroup(InputPartition):
    """Files for one task: the table as if it had no others."""

    def __init__(self, location: str, moved: tuple[MovedRoot, ...], lines: bytes) -> None:
        self.location, self.moved, self.lines = location, moved, lines


def group_files(
    places: Places, location: str, protocol: Protocol, metadata: Metadata, files: Iterable[Add]
) -> list[FileGroup]:
    """Files in their order, in groups of about the same size."""
    where = places.open_place(location).url
    return [
        FileGroup(where, places.moved.all, write_commit((protocol, metadata, *group)))
        for group in _group_by_size(files)
    ]


def read_group(group: InputPartition, columns: tuple[str, ...], where: str | None) -> Iterator[Any]:
    """The rows of a group as batches of Arrow, in the types in which Spark takes them."""
    if not isinstance(group, FileGroup):  # what Spark makes up where there is nothing to read
        return
    files = _SingleCommitLog(group)
    segment = LogSegment(table=group.location, version=0, checkpoint=None, names=(_NAME,), newest=_NAME)
    snapshot = replay_segment(files, segment)
    fields = tuple(_make_nullable(_find_field(snapshot.schema, name)) for name in columns)
    schema = make_arrow_schema(fields)
    places = Places(MovedRoots(group.moved))
    place = open_table_place(places, group.location, snapshot.metadata.configuration)
    try:
        for batch in read_rows(snapshot, place, columns=columns, where=where):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    finally:
        places.close()


def readable_schema(metadata: Metadata) -> StructType:
    """A table's columns as they are read: nulls are allowed everywhere, as in anything that Spark reads."""
    return StructType(tuple(map(_make_nullable, parse_schema(metadata.schema_string).fields)))


class _SingleCommitLog:
    """A log that consists of one commit."""

    def __init__(self, group: FileGroup) -> None:
        self.url, self._lines = group.location, group.lines

    def list_files(self, after: str, before: str = END_OF_VERSIONS) -> Iterator[LogFile]:  # noqa: ARG002
        return iter(())

    def read_files(self, names: Iterable[str]) -> Iterator[bytes | None]:
        return (self._lines if name == _NAME else None for name in names)


def _group_by_size(files: Iterable[Add]) -> Iterator[list[Add]]:
    group: list[Add] = []
    size = 0
    for file in files:
        if group and size + file.size > GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size + OPENING_BYTES
    if group:
        yield group


def _find_field(schema: StructType, name: str) -> Field:
    field = schema.field(name)
    assert field is not None  # it was looked up when the read was planned
    return field


def _make_nullable(field: Field) -> Field:
    return Field(name=field.name, type=allow_nulls(field.type), nullable=True)
