"""Files of checkpoints that other writers make in their own way."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.log.checkpoint import BATCH_ROWS, CheckpointFile, open_checkpoint
from penstock.formats.delta.protocol.actions import Add, FileKey, Remove
from tests.formats.delta.logs import CHECKPOINT_SCHEMA, add, checkpoint_bytes, metadata, protocol

FILE = [one for one in CHECKPOINT_SCHEMA.field("add").type if not one.name.startswith("stats")]
A = {"path": "a", "partitionValues": [], "size": 1, "modificationTime": 0, "dataChange": True}


def checkpoint(rows: list[dict[str, Any]], **columns: list[Any]) -> CheckpointFile:
    """A file with these rows, and with a column of these fields for each kind of action."""
    schema = pa.schema({name: pa.struct(fields) for name, fields in columns.items()})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return open_checkpoint("file:///t", "x.checkpoint.parquet", sink.getvalue().to_pybytes())


def test_statistics_are_taken_from_their_parsed_form_where_there_is_no_other() -> None:
    values = pa.struct(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(9, 2)),
            ("x", pa.int8()),
        ]
    )
    parsed = pa.struct([("numRecords", pa.int64()), ("minValues", values), ("tightBounds", pa.bool_())])
    least = {
        "day": date(2024, 2, 29),
        "at": datetime(2024, 1, 2, 3, 4, 5, 6000, UTC),
        "price": Decimal("1.50"),
    }
    file = checkpoint(
        [{"add": A | {"stats_parsed": {"numRecords": 3, "minValues": least}}}, {"add": A}],
        add=[*FILE, ("stats_parsed", parsed)],
    )
    assert [one.stats for one in file.files(Add)] == [
        '{"numRecords":3,"minValues":{"day":"2024-02-29","at":"2024-01-02T03:04:05.006000Z","price":1.50}}',
        None,
    ]


def test_columns_that_are_not_known_are_passed_over() -> None:
    file = checkpoint(
        [{"add": A | {"novelty": 1}}, {"mystery": {"x": 1}}],
        add=[*FILE, ("novelty", pa.int64())],
        mystery=[("x", pa.int64())],
    )
    assert list(file.files(Add)) == [add("a")]
    assert list(file.files(Remove)) == []
    assert list(file.state()) == []


def test_maps_keep_their_rows_across_batches() -> None:
    adds = [
        add(f"{number}", partition_values={"p": f"{number}"} if number % 3 else {}) for number in range(2000)
    ]
    many = adds * (BATCH_ROWS // len(adds) + 2)
    data = checkpoint_bytes([*many, protocol(), metadata(), *adds], group_rows=5000)
    file = open_checkpoint("t", "x.parquet", data)
    assert list(file.files(Add)) == [*many, *adds]
    assert list(file.state()) == [protocol(), metadata()]


def test_only_files_that_are_wanted_are_given() -> None:
    file = open_checkpoint("t", "x.parquet", checkpoint_bytes([add("a"), add("b"), add("c%20d")]))
    wanted = {FileKey("a"), FileKey("c d")}
    assert [one.path for one in file.files(Add, wanted.__contains__)] == ["a", "c%20d"]


def test_a_file_without_what_the_protocol_requires_is_refused() -> None:
    without_size = checkpoint([{"add": A}], add=[one for one in FILE if one.name != "size"])
    with pytest.raises(InvalidLog, match=r"it has no column add\.size"):
        list(without_size.files(Add))
    with pytest.raises(InvalidLog, match=r"add\.path is null"):
        list(checkpoint([{"add": A | {"path": None}}], add=FILE).files(Add))
    with pytest.raises(InvalidLog, match=r"x\.checkpoint\.parquet of the table file:///t .*appId"):
        list(checkpoint([{"txn": {"version": 1}}], txn=[("version", pa.int64())]).state())
