"""What a Lance table is, for people to look at: as Lance and the lake tell it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.formats.lance.lake.calls import GetLanceTable, ListLanceVersions
from penstock.formats.lance.lake.lance_requirement import require_lance
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.protobuf import MalformedMessage, ProtobufMessage
from penstock.formats.lance.relocation import FILES
from penstock.formats.plugin import DescribedTable, FileFacts, PastTableSize, VersionFacts

if TYPE_CHECKING:
    from penstock.formats.lance.lake.answers import LanceVersion
    from penstock.lake.table import Table

MANIFESTS_MAX_BYTES: Final = 4 * 1024**2
"""Of all manifests that are read to say how large versions were, the newest first."""
_FILE_SIZE: Final = 6


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
        list_versions=lambda limit: [
            VersionFacts(version.version, version.created, version.operation)
            for version in _list_versions(table, limit)
        ],
        list_sizes=lambda limit: _list_sizes(table, about.location, limit),
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


def _list_versions(table: Table, limit: int) -> tuple[LanceVersion, ...]:
    return table.lake.do(ListLanceVersions(key=table.key, at=table.ref, via=table.via, limit=limit))


def _list_sizes(table: Table, location: str, limit: int) -> list[PastTableSize]:
    """By the manifests of the latest versions, which name every file with its size."""
    names: dict[int, str] = {}
    left_bytes = MANIFESTS_MAX_BYTES
    for version in _list_versions(table, limit):
        left_bytes -= version.size
        if left_bytes < 0 or not version.manifest.startswith(f"{location}/"):
            break
        names[version.version] = version.manifest.removeprefix(f"{location}/")
    sizes = []
    for version_number, data in zip(
        names, table.lake.places.open_place(location).read(names.values()), strict=True
    ):
        size_bytes = None if data is None else _sum_files(data)
        if size_bytes is not None:
            sizes.append(PastTableSize(size_bytes, version_number))
    return sizes


def _sum_files(data: bytes) -> int | None:
    """How many bytes the data files of a version have; ``None`` if its manifest does not say so of all."""
    try:
        fragments = Manifest.decode(data).fragments
        sizes = [
            ProtobufMessage.decode(file).get_number(_FILE_SIZE)
            for each in fragments
            for file in each.get_values(FILES)
        ]
    except MalformedMessage:
        return None
    return sum(size or 0 for size in sizes) if all(sizes) else None
