"""What a table of files is, for people to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.formats.plugin import DescribedTable, FileFacts

if TYPE_CHECKING:
    from penstock.lake.table import Table


def describe_table(table: Table) -> DescribedTable:
    """The table where it is looked at. It has no versions but the lake's commits."""
    layout = table.files.about().layout
    facts = (("format", layout.format), ("partitioned by", ", ".join(layout.partition_by)))
    return DescribedTable(
        facts=tuple((name, text) for name, text in facts if text),
        properties=layout.options,
        list_files=lambda: _list_files(table),
    )


def _list_files(table: Table) -> Iterator[FileFacts]:
    return (
        FileFacts(path=entry.path, identity=entry.address, size_bytes=entry.size)
        for entry in table.files.walk()
    )
