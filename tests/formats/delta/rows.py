"""Tables with rows for tests: data written as files, logs by hand, and deletion vectors of every shape."""

from __future__ import annotations

import zlib
from base64 import b85encode
from collections.abc import Iterable, Sequence
from struct import pack
from typing import Any
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable

from penstock.formats.delta.log.scan import to_arrow
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import DeletionVector, Metadata, Protocol
from penstock.formats.delta.rows.file_writer import write_files
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.schema import StructType, write_schema
from tests.formats.delta.logs import Table, protocol

VECTOR_ID = UUID("12345678-9abc-4def-8123-456789abcdef")
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def metadata_for(
    schema: StructType, partitioned_by: Sequence[str] = (), properties: dict[str, str] | None = None
) -> Metadata:
    return Metadata(
        id="6a4a2c5f-0000-4000-8000-000000000001",
        schema_string=write_schema(schema),
        partition_columns=tuple(partitioned_by),
        configuration=properties or {},
    )


def protocol_for(schema: StructType) -> Protocol:
    has_ntz = any(one.type == "timestamp_ntz" for one in schema.walk())
    return protocol(reader=("timestampNtz",)) if has_ntz else protocol()


def filled(table: Table, data: pa.Table, *partitioned_by: str, **options: Any) -> Metadata:
    """Make a table that holds some data, all of it in version 0."""
    schema = make_schema(data.schema)
    metadata = metadata_for(schema, partitioned_by)
    adds = write_files(table.place, metadata, data, **options)
    table.commit(0, protocol_for(schema), metadata, *adds)
    return metadata


def ours(table: Table, **options: Any) -> pa.Table:
    return to_arrow(load_snapshot(table.files), table.place, **options)


def deltalake(table: Table, **options: Any) -> pa.Table:
    return pa.table(DeltaTable(str(table.root)).scan(**options))


def duckdb_rows(duckdb: Any, table: Table, where: str = "true") -> pa.Table:
    duckdb.execute("SET TimeZone = 'UTC'")
    found = duckdb.sql(f"SELECT * FROM delta_scan('{table.root}') WHERE {where}").to_arrow_table()
    assert isinstance(found, pa.Table)
    return found


def as_rows(data: pa.Table) -> list[str]:
    """Rows that can be compared although NaN equals nothing, in an order of their own."""
    names = sorted(data.column_names)
    return sorted(repr([row[name] for name in names]) for row in data.to_pylist(maps_as_pydicts="lossy"))


def z85(data: bytes) -> str:
    return b85encode(data, pad=True).decode().translate(str.maketrans(_B85, _Z85))


def vector_data(rows: Iterable[int], shape: str = "arrays") -> bytes:
    """A set of row numbers as the data of a deletion vector, in containers of one shape.

    ``arrays`` become bitmaps, as they must, where there are too many rows for them.
    """
    highs: dict[int, list[int]] = {}
    for row in sorted(set(rows)):
        highs.setdefault(row >> 32, []).append(row & 0xFFFFFFFF)
    parts = [pack("<IQ", 1681511377, len(highs))]
    parts += [pack("<I", high) + _bitmap(lows, shape) for high, lows in highs.items()]
    return b"".join(parts)


def inline_vector(data: bytes, cardinality: int) -> DeletionVector:
    return DeletionVector(
        storage_type="i", path_or_inline_dv=z85(data), size_in_bytes=len(data), cardinality=cardinality
    )


def vector_file_data(*vectors: bytes) -> tuple[bytes, list[int]]:
    """A file of vectors, and where each of them begins."""
    data, starts = b"\x01", []
    for one in vectors:
        starts.append(len(data))
        data += pack(">I", len(one)) + one + pack(">I", zlib.crc32(one))
    return data, starts


def _bitmap(rows: Sequence[int], shape: str) -> bytes:
    keys: dict[int, list[int]] = {}
    for row in rows:
        keys.setdefault(row >> 16, []).append(row & 0xFFFF)
    heads = b"".join(pack("<HH", key, len(lows) - 1) for key, lows in keys.items())
    if shape == "runs":
        bodies = [_runs(lows) for lows in keys.values()]
        flags = ((1 << len(keys)) - 1).to_bytes((len(keys) + 7) // 8, "little")
        start = pack("<I", 12347 | (len(keys) - 1) << 16) + flags + heads
        has_offsets = len(keys) >= 4
    else:
        bodies = [_array(lows) if len(lows) <= 4096 else _dense(lows) for lows in keys.values()]
        start = pack("<II", 12346, len(keys)) + heads
        has_offsets = True
    offsets, at = b"", len(start) + 4 * len(keys)
    for body in bodies:
        offsets += pack("<I", at)
        at += len(body)
    return start + (offsets if has_offsets else b"") + b"".join(bodies)


def _array(rows: Sequence[int]) -> bytes:
    return pack(f"<{len(rows)}H", *rows)


def _dense(rows: Sequence[int]) -> bytes:
    return sum(1 << row for row in rows).to_bytes(8192, "little")


def _runs(rows: Sequence[int]) -> bytes:
    runs: list[list[int]] = []
    for row in rows:
        if runs and runs[-1][1] + 1 == row:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    return pack("<H", len(runs)) + b"".join(pack("<HH", first, last - first) for first, last in runs)
