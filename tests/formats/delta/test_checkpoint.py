"""Files of checkpoints that other writers make in their own way."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.log.checkpoint import BATCH_ROWS, CheckpointFile, NewerActions, open_checkpoint
from penstock.formats.delta.protocol.actions import Add, DeletionVector, FileKey, Remove, write_commit
from tests.formats.delta.logs import CHECKPOINT_SCHEMA, add, checkpoint_bytes, metadata, protocol, remove

FILE = [one for one in CHECKPOINT_SCHEMA.field("add").type if not one.name.startswith("stats")]
DV = DeletionVector(storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=1, cardinality=1)
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
    assert [one.stats for one in file.read_files(Add)] == [
        '{"numRecords":3,"minValues":{"day":"2024-02-29","at":"2024-01-02T03:04:05.006000Z","price":1.50}}',
        None,
    ]


def test_columns_that_are_not_known_are_passed_over() -> None:
    file = checkpoint(
        [{"add": A | {"novelty": 1}}, {"mystery": {"x": 1}}],
        add=[*FILE, ("novelty", pa.int64())],
        mystery=[("x", pa.int64())],
    )
    assert list(file.read_files(Add)) == [add("a")]
    assert list(file.read_files(Remove)) == []
    assert list(file.read_state()) == []


def test_maps_keep_their_rows_across_batches() -> None:
    adds = [
        add(f"{number}", partition_values={"p": f"{number}"} if number % 3 else {}) for number in range(2000)
    ]
    many = adds * (BATCH_ROWS // len(adds) + 2)
    data = checkpoint_bytes([*many, protocol(), metadata(), *adds], group_rows=5000)
    file = open_checkpoint("t", "x.parquet", data)
    assert list(file.read_files(Add)) == [*many, *adds]
    assert list(file.read_state()) == [protocol(), metadata()]


@pytest.mark.parametrize("shape", ["parquet", "json"])
def test_files_that_newer_actions_are_about_are_left_out(shape: str) -> None:
    actions: list[Add | Remove] = [
        add("a"),
        add("b", deletion_vector=DV),
        add("c%20d", partition_values={"p": "1"}),
        add("e"),
        add("f%20g", deletion_vector=DV),
        add("file:///h"),
        add("file:/i"),
        remove("c%20d"),
        remove("j"),
    ]
    data = write_commit(actions) if shape == "json" else checkpoint_bytes(actions)
    file = open_checkpoint("t", f"x.{shape}", data)
    known = {FileKey("a"), FileKey("b"), FileKey("c d"), FileKey("f g", DV.unique_id), FileKey("/h")}
    newer = NewerActions({key.path for key in known}, known.__contains__)
    left = [actions[1], actions[3], actions[6]]
    assert list(file.read_files(Add, newer)) == left
    assert list(file.file_keys(newer)) == [FileKey("b", DV.unique_id), FileKey("e"), FileKey("/i")]
    assert list(file.read_files(Remove, newer)) == [actions[8]]
    assert list(file.read_files(Add)) == actions[:7]
    assert list(file.file_keys()) == [one.key for one in actions[:7]]


def test_a_file_without_what_the_protocol_requires_is_refused() -> None:
    without_size = checkpoint([{"add": A}], add=[one for one in FILE if one.name != "size"])
    with pytest.raises(InvalidLog, match=r"it has no column add\.size"):
        list(without_size.read_files(Add))
    with pytest.raises(InvalidLog, match=r"add\.path is null"):
        list(checkpoint([{"add": A | {"path": None}}], add=FILE).read_files(Add))
    with pytest.raises(InvalidLog, match=r"x\.checkpoint\.parquet of the table file:///t .*appId"):
        list(checkpoint([{"txn": {"version": 1}}], txn=[("version", pa.int64())]).read_state())


PATHS = [
    "plain",
    "day=mon/plain",
    "a%20b",
    "a%2520b",
    "file:/a/b",
    "file:///a/c",
    "über",
    "%C3%BCber2",
    "100%25",
]
DECODED = ["plain", "day=mon/plain", "a b", "a%20b", "/a/b", "/a/c", "über", "über2", "100%"]


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("others", [0, 3 * BATCH_ROWS])
@pytest.mark.parametrize("group_rows", [2, 1_000_000])
def test_files_are_found_by_their_decoded_paths(text: Any, others: int, group_rows: int) -> None:
    paths = [*(f"other-{number}" for number in range(others)), *PATHS]
    rows = [{"add": A | {"path": path}} for path in paths]
    fields = [pa.field("path", text), *(one for one in FILE if one.name != "path")]
    sink = pa.BufferOutputStream()
    schema = pa.schema({"add": pa.struct(fields)})
    pq.write_table(
        pa.Table.from_pylist(rows, schema=schema), sink, row_group_size=max(group_rows, others // 2)
    )
    file = open_checkpoint("file:///t", "x.checkpoint.parquet", sink.getvalue().to_pybytes())
    everything = {*DECODED, "not there", "a%2520b", "\udcff"}
    assert [key.path for key in file.file_keys(among=everything)] == DECODED
    assert [one.key.path for one in file.read_files(Add, among=everything)] == DECODED
    for path in DECODED:
        assert [one.key.path for one in file.read_files(Add, among={path})] == [path]
    assert [*file.read_files(Add, among={"not there", "\udcff"})] == []


def test_of_groups_of_rows_without_the_paths_no_other_column_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = open_checkpoint(
        "file:///t", "x.checkpoint.parquet", checkpoint_bytes([add(f"f{number}") for number in range(70)])
    )
    decoded: list[tuple[Any, Any]] = []
    iterate = pq.ParquetFile.iter_batches

    def noted(self: Any, size: int, groups: Any, columns: Any, **more: Any) -> Any:
        decoded.append((groups, columns))
        return iterate(self, size, groups, columns=columns, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert [one.path for one in file.read_files(Add, among={"f30"})] == ["f30"]
    assert [groups for groups, columns in decoded if columns != ["add.path"]] == [[4]]
