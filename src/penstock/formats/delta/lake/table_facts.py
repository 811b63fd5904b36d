"""What a Delta table is, for people to look at: as its log tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.formats.delta.protocol.clones import OWNER_CONF
from penstock.formats.delta.protocol.column_mapping import get_column_mapping
from penstock.formats.delta.rows.pruning import read_stats
from penstock.formats.plugin import ColumnBounds, DescribedTable, FileFacts, PastTableSize, VersionFacts

if TYPE_CHECKING:
    from penstock.formats.delta.lake.snapshot import PastVersion, TableSnapshot
    from penstock.formats.delta.protocol.actions import Add
    from penstock.lake.table import Table


def describe_table(table: Table) -> DescribedTable:
    """The table at its latest version where it is looked at."""
    snapshot = table.snapshot().outside_read_set
    metadata, protocol = snapshot.metadata, snapshot.protocol
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    facts = (
        ("location", snapshot.location),
        ("version", str(snapshot.version)),
        ("description", metadata.description or ""),
        ("partitioned by", ", ".join(snapshot.partition_columns)),
        ("clustered by", ", ".join(".".join(path) for path in snapshot.clustering)),
        ("protocol", f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"),
        ("features", ", ".join(features)),
    )
    return DescribedTable(
        facts=tuple((name, text) for name, text in facts if text),
        # Where the owner's store is, concerns who runs it.
        properties={name: value for name, value in snapshot.properties.items() if name != OWNER_CONF},
        list_files=lambda: _list_files(snapshot),
        list_versions=lambda limit: [_describe_version(version) for version in snapshot.history(limit)],
        list_sizes=lambda limit: [
            PastTableSize(size_bytes, version) for version, size_bytes in snapshot.past_sizes(limit).items()
        ],
    )


def _list_files(snapshot: TableSnapshot) -> Iterator[FileFacts]:
    mapping = get_column_mapping(snapshot.metadata)
    names = {mapping.get_physical_name(field): field.name for field in snapshot.schema.fields}
    return (_describe_file(file, names) for file in snapshot.files())


def _describe_file(file: Add, names: Mapping[str, str]) -> FileFacts:
    statistics = read_stats(file)
    vector = file.deletion_vector
    count = statistics.get("numRecords")
    rows = count - (vector.cardinality if vector is not None else 0) if type(count) is int else None
    partition = ", ".join(f"{names.get(name, name)}={value}" for name, value in file.partition.items())
    return FileFacts(
        path=file.path,
        identity="" if vector is None else vector.unique_id,
        size_bytes=file.size,
        rows=rows,
        partition=partition,
        bounds=tuple(_list_bounds(statistics, names)),
    )


def _list_bounds(statistics: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[ColumnBounds]:
    """Of columns that are no structs; those of others are left out."""
    lowest, highest, nulls = (
        values if isinstance(values := statistics.get(part), dict) else {}
        for part in ("minValues", "maxValues", "nullCount")
    )
    for physical, name in names.items():
        values = [part.get(physical) for part in (lowest, highest, nulls)]
        if any(value is not None and not isinstance(value, dict | list) for value in values):
            yield ColumnBounds(name, *("" if value is None else str(value) for value in values))


def _describe_version(version: PastVersion) -> VersionFacts:
    figures = ", ".join(f"{name} {value}" for name, value in version.metrics.items())
    return VersionFacts(version.version, version.timestamp, version.operation, figures, version.info)
