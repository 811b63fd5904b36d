"""Streams from tables that do not just grow: branches with another history, tables of another kind before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.calls import CommitTables, GetTableVersions, TableCommit, WriterReads
from penstock.formats.delta.protocol.actions import Action, Remove, write_commit
from penstock.formats.delta.rows.file_writer import write_files
from penstock.formats.delta.spark.source.file_groups import read_group
from penstock.formats.delta.spark.source.offsets import parse_offset
from penstock.formats.delta.spark.source.streams import TableStream
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.schema import Field, StructType, parse_schema, write_schema
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.spark.source.options import parse_options
from tests.spark.without_session.limits import all_available, max_files

KEY = "sales.orders"
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


def data(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": [f"x{one}" for one in ids]})


def stream_of(lake: Lake, schema: pa.Schema = SCHEMA, **options: str) -> TableStream:
    """A stream as Spark makes one for each start of a query."""
    return TableStream(parse_options({"lake": lake.url, "table": KEY, **options}), make_schema(schema))


def read(stream: TableStream, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = stream._columns
    found = [one for group in stream.partitions(start, end) for one in read_group(group, names, None)]
    return sorted(tuple(row[name] for name in names) for one in found for row in one.to_pylist())


def batches(stream: TableStream, start: dict[str, Any], limit: Any = None) -> Iterator[list[tuple[Any, ...]]]:
    """What the query reads from a place on, batch by batch, until there is nothing new."""
    while (end := stream.latestOffset(start, limit or all_available())) != start:
        yield read(stream, start, end)
        start = end


def everything(stream: TableStream, limit: Any = None) -> list[tuple[Any, ...]]:
    return [row for one in batches(stream, stream.initialOffset(), limit) for row in one]


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table(KEY, data=data(1))


# -- a branch with another history ---------------------------------------------------------------------------


def begun(lake: Lake) -> dict[str, Any]:
    """How far a stream is that has read all of a branch, which has two versions of its own."""
    lake.branch("dev").create()
    for number in (10, 11):
        lake.table(KEY, "dev").append(data(number))
    stream = stream_of(lake, ref="dev")
    end = stream.latestOffset(stream.initialOffset(), all_available())
    assert [row[0] for row in read(stream, stream.initialOffset(), end)] == [1, 10, 11]
    stream.stop()
    return end


def merged_into(lake: Lake) -> None:
    for number in (20, 21):
        lake.table(KEY).append(data(number))
    lake.branch("main").merge_into("dev")


def created_anew(lake: Lake) -> None:
    lake.branch("dev").delete()
    lake.branch("dev").create(at="main")
    for number in range(30, 34):
        lake.table(KEY, "dev").append(data(number))


def of_the_same_length(lake: Lake) -> None:
    lake.branch("dev").delete()
    lake.branch("dev").create(at="main")
    for number in (40, 41):
        lake.table(KEY, "dev").append(data(number))


@pytest.mark.parametrize("way", [merged_into, created_anew, of_the_same_length])
def test_a_stream_does_not_go_on_in_another_history(
    lake: Lake, table: Table, way: Callable[[Lake], None]
) -> None:
    start = begun(lake)
    way(lake)
    with pytest.raises(InvalidRequest, match="another history"):
        stream_of(lake, ref="dev").latestOffset(start, all_available())


@pytest.mark.parametrize("way", [merged_into, created_anew, of_the_same_length])
def test_a_batch_that_was_planned_is_not_read_from_another_history(
    lake: Lake, table: Table, way: Callable[[Lake], None]
) -> None:
    end = begun(lake)
    way(lake)
    stream = stream_of(lake, ref="dev")
    with pytest.raises(InvalidRequest, match="another history"):
        stream.partitions(stream.initialOffset(), end)


def test_a_stream_goes_on_where_its_branch_was_set_back_to_no_earlier_than_it_has_read(
    lake: Lake, table: Table
) -> None:
    lake.branch("dev").create()
    for number in (10, 11, 12):
        lake.table(KEY, "dev").append(data(number))
    stream = stream_of(lake, ref="dev", startingversion="0")
    start = stream.latestOffset(stream.initialOffset(), max_files(2))
    assert [row[0] for row in read(stream, stream.initialOffset(), start)] == [1, 10]
    lake.branch("dev").assign("dev~1")
    lake.table(KEY, "dev").append(data(50))
    assert [row[0] for one in batches(stream, start) for row in one] == [11, 50]


def test_a_stream_from_the_default_branch_goes_on_whatever_is_merged_into_it(
    lake: Lake, table: Table
) -> None:
    stream = stream_of(lake)
    start = stream.latestOffset(stream.initialOffset(), all_available())
    lake.branch("dev").create()
    lake.table(KEY, "dev").append(data(10))
    table.append(data(2))
    lake.branch("dev").merge_into("main")
    assert [row[0] for one in batches(stream, start) for row in one] == [2, 10]


def test_a_place_that_tells_no_more_than_a_number_is_gone_on_from(lake: Lake, table: Table) -> None:
    stream = stream_of(lake)
    told = stream.latestOffset(stream.initialOffset(), all_available())
    assert parse_offset(told).tip
    start = {name: value for name, value in told.items() if name != "tip"}
    assert stream.latestOffset(start, all_available()) == {**start, "tip": ""}
    table.append(data(2))
    assert list(batches(stream, start)) == [[(2, "x2")]]


# -- a table that was another before -------------------------------------------------------------------------


def become(lake: Lake, fields: Sequence[Field] | None, partition_by: Sequence[str], given: pa.Table) -> None:
    """Overwrite a table with other rows, and with columns and partitions of another kind."""
    now = lake.do(GetTableVersions(key=Key.parse(KEY), limit=0))
    _, metadata = now.parse_declared()
    if fields is not None:
        metadata = msgspec.structs.replace(metadata, schema_string=write_schema(StructType(tuple(fields))))
    metadata = msgspec.structs.replace(metadata, partition_columns=tuple(partition_by))
    old = lake.table(KEY).snapshot().files()
    actions: list[Action] = [
        Remove(path=one.path, data_change=True, deletion_timestamp=1, partition_values=one.partition_values)
        for one in old
    ]
    reader = pa.RecordBatchReader.from_batches(given.schema, given.to_batches())
    actions += [metadata, *write_files(lake.places.open_place(now.location), metadata, reader)]
    one = TableCommit(
        key=Key.parse(KEY),
        actions=write_commit(actions).decode(),
        read_version=now.latest_version,
        reads=WriterReads(whole_table=True),
    )
    lake.do(CommitTables(tables=(one,)))


def fields_of(lake: Lake) -> tuple[Field, ...]:
    _, metadata = lake.do(GetTableVersions(key=Key.parse(KEY), limit=0)).parse_declared()
    return parse_schema(metadata.schema_string).fields


@pytest.mark.parametrize("limit", [all_available, partial(max_files, 1)], ids=["all", "one"])
@pytest.mark.parametrize("partitioned", ["later", "before"])
def test_files_from_before_a_table_was_partitioned_otherwise_are_read_as_they_are(
    lake: Lake, partitioned: str, limit: Callable[[], Any]
) -> None:
    first, then = ((), ("p",)) if partitioned == "later" else (("p",), ())
    table = lake.create_table(KEY, data=data(1), partition_by=first)
    table.append(data(2, 3))
    become(lake, None, then, data(7))
    table.append(data(8))
    stream = stream_of(lake, startingversion="0", skipchangecommits="true")
    assert sorted(everything(stream, limit())) == [(1, "x1"), (2, "x2"), (3, "x3"), (8, "x8")]


def test_so_are_the_files_of_a_version_that_was_half_read(lake: Lake, table: Table) -> None:
    table.append(data(2))
    stream = stream_of(lake)
    start = stream.latestOffset(stream.initialOffset(), max_files(1))
    seen = read(stream, stream.initialOffset(), start)
    become(lake, None, ("p",), data(7))
    restarted = stream_of(lake)
    end = restarted.latestOffset(start, max_files(1))
    assert sorted([*seen, *read(restarted, start, end)]) == [(1, "x1"), (2, "x2")]
    with pytest.raises(InvalidRequest, match=r"version 2 .* replaces rows"):
        list(batches(restarted, end))


def test_values_of_another_type_are_not_read_as_if_they_were_of_this_one(lake: Lake, table: Table) -> None:
    number, text = fields_of(lake)
    retyped = pa.table({"id": pa.array([7], pa.int64()), "p": pa.array([5], pa.int64())})
    become(lake, [number, msgspec.structs.replace(text, type="long")], (), retyped)
    now = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    stream = stream_of(lake, now, startingversion="0", skipchangecommits="true")
    with pytest.raises(InvalidRequest, match=r"version 0 .* 'p' with the type string, which is long now"):
        everything(stream)
    later = stream_of(lake, now, startingversion="1", skipchangecommits="true")
    lake.table(KEY).append(pa.table({"id": pa.array([8], pa.int64()), "p": pa.array([6], pa.int64())}))
    assert everything(later) == [(8, 6)]


def test_columns_that_there_were_not_are_null_also_if_they_are_in_the_path_by_now(
    lake: Lake, table: Table
) -> None:
    more = Field(name="q", type="string", nullable=True)
    become(lake, [*fields_of(lake), more], ("q",), data(7).append_column("q", [["y7"]]))
    later = data(8).append_column("q", [["y8"]])
    lake.table(KEY).append(later)
    stream = stream_of(lake, later.schema, startingversion="0", skipchangecommits="true")
    assert sorted(everything(stream)) == [(1, "x1", None), (8, "x8", "y8")]
