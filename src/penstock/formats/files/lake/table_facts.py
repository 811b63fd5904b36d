"""What a table of files is, for people to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.errors import KeyNotFound
from penstock.formats.files.lake.calls import GetFilesTable
from penstock.formats.plugin import DescribedTable, FileFacts, PastTableSize
from penstock.lake.calls import SearchLog

if TYPE_CHECKING:
    from penstock.formats.files.lake.answers import FilesTableInfo
    from penstock.lake.table import Table

SEARCHED_COMMITS: Final = 500
"""How many commits are read for those that changed a table."""


def describe_table(table: Table) -> DescribedTable:
    """The table where it is looked at. It has no versions but the lake's commits."""
    about = table.files.about()
    layout = about.layout
    facts = (("format", layout.format), ("partitioned by", ", ".join(layout.partition_by)))
    return DescribedTable(
        facts=tuple((name, text) for name, text in facts if text),
        properties=layout.options,
        list_files=lambda: _list_files(table),
        list_sizes=lambda limit: _list_sizes(table, about, limit),
    )


def _list_files(table: Table) -> Iterator[FileFacts]:
    return (
        FileFacts(path=entry.path, identity=entry.address, size_bytes=entry.size)
        for entry in table.files.walk()
    )


def _list_sizes(table: Table, about: FilesTableInfo, limit: int) -> list[PastTableSize]:
    """After the latest commits that changed it, since it was created."""
    log = SearchLog(ref=table.ref, via=table.via, table=table.key, limit=limit, within=SEARCHED_COMMITS)
    sizes = []
    for commit in table.lake.do(log).commits:
        try:
            past = table.lake.do(GetFilesTable(key=table.key, at=commit.id, via=table.via or table.ref))
        except KeyNotFound:
            break
        if past.id != about.id:
            break
        sizes.append(PastTableSize(past.size, commit=commit.id, time=commit.time))
    return sizes
