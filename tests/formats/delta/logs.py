"""Logs of Delta tables for tests: written by hand into a directory, and read back from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from penstock.formats.delta.log.log_files import LogFile, PlaceFiles
from penstock.formats.delta.protocol.actions import (
    ACTION_NAMES,
    Action,
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    write_commit,
)
from penstock.formats.delta.protocol.names import END_OF_VERSIONS, LOG, CommitName
from penstock.storage.places import Places

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
UUIDS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(100)]

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_FILE = [("path", pa.string()), ("partitionValues", _TEXTS), ("size", pa.int64()), ("dataChange", pa.bool_())]
CHECKPOINT_SCHEMA = pa.schema(
    {
        "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
        "add": pa.struct(
            [
                *_FILE,
                ("modificationTime", pa.int64()),
                ("stats", pa.string()),
                ("tags", _TEXTS),
                ("deletionVector", _VECTOR),
                ("stats_parsed", pa.struct([("numRecords", pa.int64())])),
            ]
        ),
        "remove": pa.struct(
            [
                *_FILE,
                ("deletionTimestamp", pa.int64()),
                ("extendedFileMetadata", pa.bool_()),
                ("deletionVector", _VECTOR),
            ]
        ),
        "metaData": pa.struct(
            [
                ("id", pa.string()),
                ("name", pa.string()),
                ("description", pa.string()),
                ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                ("schemaString", pa.string()),
                ("partitionColumns", pa.list_(pa.string())),
                ("createdTime", pa.int64()),
                ("configuration", _TEXTS),
            ]
        ),
        "protocol": pa.struct(
            [
                ("minReaderVersion", pa.int32()),
                ("minWriterVersion", pa.int32()),
                ("readerFeatures", pa.list_(pa.string())),
                ("writerFeatures", pa.list_(pa.string())),
            ]
        ),
        "domainMetadata": pa.struct(
            [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
        ),
        "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _TEXTS)]),
        "sidecar": pa.struct(
            [
                ("path", pa.string()),
                ("sizeInBytes", pa.int64()),
                ("modificationTime", pa.int64()),
                ("tags", _TEXTS),
            ]
        ),
    }
)


def protocol(*features: str, reader: Sequence[str] = ()) -> Protocol:
    if not features and not reader:
        return Protocol(min_reader_version=1, min_writer_version=2)
    return Protocol(
        min_reader_version=3 if reader else 1,
        min_writer_version=7,
        reader_features=tuple(reader) if reader else None,
        writer_features=(*features, *reader),
    )


def metadata(schema: str = SCHEMA, partitioned_by: Sequence[str] = (), **properties: str) -> Metadata:
    return Metadata(
        id="6a4a2c5f-0000-4000-8000-000000000001",
        schema_string=schema,
        partition_columns=tuple(partitioned_by),
        configuration={name.replace("_", ".", 1): value for name, value in properties.items()},
    )


def add(path: str, **more: Any) -> Add:
    given: dict[str, Any] = {"partition_values": {}, "size": 1, "modification_time": 0, "data_change": True}
    return Add(path=path, **given | more)


def remove(path: str, **more: Any) -> Remove:
    given: dict[str, Any] = {"data_change": True, "deletion_timestamp": 7}
    return Remove(path=path, **given | more)


def commit_info(time: int) -> CommitInfo:
    return CommitInfo({"inCommitTimestamp": time, "operation": "WRITE"})


class Listed:
    """A log of which no more is known than its list of files."""

    url = "file:///t"

    def __init__(self, files: Sequence[LogFile]) -> None:
        self._files = sorted(files)

    def list_files(self, after: str, before: str = END_OF_VERSIONS) -> Iterator[LogFile]:
        return (one for one in self._files if after < one.name < before)

    def read_files(self, names: Iterable[str]) -> Iterator[None]:
        return (None for _ in names)


class Table:
    """A table in a directory, of which only the log is real."""

    def __init__(self, root: Path, places: Places) -> None:
        self.root = root
        self.place = places.open_place(str(root))
        self.files = PlaceFiles(self.place)
        (root / LOG / "_sidecars").mkdir(parents=True, exist_ok=True)

    def write(self, name: str, data: bytes) -> None:
        (self.root / name).write_bytes(data)

    def delete(self, name: object) -> None:
        (self.root / str(name)).unlink()

    def commit(self, version: int, *actions: Action) -> None:
        self.write(str(CommitName(version)), write_commit(actions))

    def create(self, *actions: Action) -> None:
        self.commit(0, protocol(), metadata(), *actions)


@contextmanager
def opening() -> Iterator[Places]:
    places = Places()
    try:
        yield places
    finally:
        places.close()


def checkpoint_bytes(actions: Iterable[Action], group_rows: int = 7) -> bytes:
    """Actions as a file of a checkpoint in Parquet, a row each."""
    rows = []
    for action in actions:
        row = msgspec.to_builtins(action)
        if isinstance(action, Add) and action.stats is not None:
            row["stats_parsed"] = msgspec.json.decode(action.stats)
        rows.append({ACTION_NAMES[type(action)]: _maps_as_pairs(row)})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=CHECKPOINT_SCHEMA), sink, row_group_size=group_rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _maps_as_pairs(row: dict[str, Any]) -> dict[str, Any]:
    maps = ("partitionValues", "tags", "configuration", "options")
    return {
        name: list(value.items())
        if name in maps and isinstance(value, dict)
        else _maps_as_pairs(value)
        if isinstance(value, dict)
        else value
        for name, value in row.items()
    }
