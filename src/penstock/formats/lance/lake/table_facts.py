"""What a Lance table is, for people to look at: as Lance and the lake tell it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.formats.lance.lake.calls import GetLanceTable, ListLanceVersions
from penstock.formats.lance.lake.installed import require_lance
from penstock.formats.plugin import DescribedTable, FileFacts, VersionFacts

if TYPE_CHECKING:
    from penstock.lake.table import Table


def describe_table(table: Table) -> DescribedTable:
    """The table at its newest version where it is looked at. Its files are Lance's fragments."""
    about = table.lake.do(GetLanceTable(key=table.key, at=table.ref, via=table.via))
    facts = (
        ("location", about.location),
        ("version", "" if about.version is None else str(about.version)),
        ("private", "yes" if about.is_private else ""),
    )
    return DescribedTable(
        facts=tuple((name, text) for name, text in facts if text),
        properties=about.properties,
        list_files=lambda: _list_fragments(table) if about.version is not None else iter(()),
        list_versions=lambda limit: _list_versions(table, limit),
    )


def _list_fragments(table: Table) -> Iterator[FileFacts]:
    require_lance()
    for fragment in table.to_lance().get_fragments():
        metadata: dict[str, Any] = fragment.metadata.to_json()
        sizes = [file.get("file_size_bytes") for file in metadata["files"]]
        yield FileFacts(
            path=", ".join(file["path"] for file in metadata["files"]),
            identity=str(metadata["deletion_file"] or ""),
            size_bytes=sum(sizes) if all(type(size) is int for size in sizes) else None,
            rows=fragment.count_rows(),
            partition=f"fragment {fragment.fragment_id}",
        )


def _list_versions(table: Table, limit: int) -> list[VersionFacts]:
    call = ListLanceVersions(key=table.key, at=table.ref, via=table.via, limit=limit)
    return [
        VersionFacts(version.version, version.created, version.operation) for version in table.lake.do(call)
    ]
