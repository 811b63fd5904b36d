"""Where a stream from a table is, without Spark around it: every file once, whatever limits and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import InvalidRequest, VersionNotFound
from penstock.formats.delta.protocol.actions import Add, Remove
from penstock.formats.delta.spark.source.file_groups import read_group
from penstock.formats.delta.spark.source.offsets import (
    BatchLimit,
    Files,
    StreamOffset,
    find_batch_end,
    list_files_between,
    parse_offset,
)
from penstock.formats.delta.spark.source.streams import TableStream
from penstock.formats.rows.arrow_types import make_schema
from penstock.lake.lake import Lake
from penstock.model.operations import Delete
from penstock.spark.source.options import parse_options
from tests.spark.without_session.limits import all_available, max_files

KEY = "sales.orders"
DAY = timedelta(days=1)
SCHEMA = pa.schema([("id", pa.int64())])


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def stream_of(lake: Lake, schema: pa.Schema = SCHEMA, **options: str) -> TableStream:
    """A stream as Spark makes one for each start of a query."""
    return TableStream(parse_options({"lake": lake.url, "table": KEY, **options}), make_schema(schema))


def read(stream: TableStream, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    columns = ("id",)
    found = [one for group in stream.partitions(start, end) for one in read_group(group, columns, None)]
    return sorted(number for one in found for number in one.column("id").to_pylist())


def batches(stream: TableStream, start: dict[str, Any], limit: Any = None) -> Iterator[list[int]]:
    """What the query reads from a place on, batch by batch, until there is nothing new."""
    limit = limit or all_available()
    while (end := stream.latestOffset(start, limit)) != start:
        yield read(stream, start, end)
        start = end


@pytest.fixture
def table(lake: Lake) -> penstock.lake.table.Table:
    found = lake.create_table(KEY, data=numbers(1))
    found.append(numbers(2))
    found.append(numbers(3))
    return found


def test_a_stream_reads_what_there_is_and_then_what_is_added(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    stream = stream_of(lake)
    first = stream.latestOffset(stream.initialOffset(), all_available())
    assert read(stream, stream.initialOffset(), first) == [1, 2, 3]
    table.append(numbers(4))
    assert list(batches(stream, first)) == [[4]]
    stream.stop()


def test_a_first_batch_that_is_repeated_later_is_the_same_although_the_table_has_grown(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    stream = stream_of(lake)
    end = stream.latestOffset(stream.initialOffset(), max_files(2))
    once = read(stream, stream.initialOffset(), end)
    table.append(numbers(4))
    again = stream_of(lake)
    assert read(again, again.initialOffset(), end) == once
    assert sorted([*once, *(number for one in batches(again, end) for number in one)]) == [1, 2, 3, 4]


@pytest.mark.parametrize("most", [1, 2, 100])
def test_limited_batches_read_every_file_once(
    lake: Lake, table: penstock.lake.table.Table, most: int
) -> None:
    stream = stream_of(lake)
    found = list(batches(stream, stream.initialOffset(), max_files(most)))
    assert all(len(one) <= most for one in found)
    assert sorted(number for one in found for number in one) == [1, 2, 3]


def test_before_spark_4_2_a_stream_is_not_told_where_it_starts_and_goes_on_all_the_same(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    stream = stream_of(lake)
    start = stream.initialOffset()
    end = stream.latestOffset()
    assert read(stream, start, end) == [1, 2, 3]
    assert stream.latestOffset() == end
    table.append(numbers(4))
    restarted = stream_of(lake)  # of which Spark asks for the latest offset first
    later = restarted.latestOffset()
    assert read(restarted, end, later) == [4]


def test_a_trigger_for_what_is_available_does_not_follow_what_comes_later(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    stream = stream_of(lake)
    stream.prepareForTriggerAvailableNow()
    table.append(numbers(4))
    end = stream.latestOffset(stream.initialOffset(), all_available())
    assert read(stream, stream.initialOffset(), end) == [1, 2, 3]
    assert stream.latestOffset(end, all_available()) == end
    assert list(batches(stream_of(lake), end)) == [[4]]


@pytest.mark.parametrize(("first", "expected"), [("0", [1, 2, 3]), ("2", [3]), ("3", []), ("latest", [])])
def test_a_stream_may_begin_at_a_version(
    lake: Lake, table: penstock.lake.table.Table, first: str, expected: list[int]
) -> None:
    stream = stream_of(lake, startingversion=first)
    end = stream.latestOffset(stream.initialOffset(), all_available())
    assert read(stream, stream.initialOffset(), end) == expected
    table.append(numbers(4))
    restarted = stream_of(lake, startingversion=first)
    assert read(restarted, restarted.initialOffset(), end) == expected
    assert list(batches(restarted, end)) == [[4]]


def test_a_stream_may_begin_at_a_time(lake: Lake, table: penstock.lake.table.Table) -> None:
    second = table.snapshot(1).timestamp
    assert second is not None
    times = [(-DAY, [1, 2, 3]), (timedelta(), [2, 3]), (timedelta(milliseconds=1), [3]), (DAY, [])]
    for shift, expected in times:
        moment = second + shift
        stream = stream_of(lake, startingtimestamp=moment.isoformat())
        end = stream.latestOffset(stream.initialOffset(), all_available())
        assert read(stream, stream.initialOffset(), end) == expected


def test_a_stream_cannot_begin_at_a_version_that_is_not_there(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    stream = stream_of(lake, startingversion="9")
    with pytest.raises(VersionNotFound, match="cannot start at version 9"):
        stream.latestOffset(stream.initialOffset(), all_available())


def test_a_stream_reads_published_versions_as_it_reads_others(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    table.backfill_to_version()
    lake.delta.checkpoint(KEY)
    stream = stream_of(lake, startingversion="1")
    assert list(batches(stream, stream.initialOffset())) == [[2, 3]]


def test_a_version_that_only_rewrites_files_has_nothing_to_read(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    stream = stream_of(lake)
    start = stream.latestOffset(stream.initialOffset(), all_available())
    old = list(table.snapshot().files())
    moved = [
        Add(
            path=one.path + ".parquet",
            partition_values={},
            size=one.size,
            modification_time=1,
            data_change=False,
        )
        for one in old
    ]
    for one, new in zip(old, moved, strict=True):
        Path(table.location, one.path).rename(Path(table.location, new.path))
    removed = [Remove(path=one.path, data_change=False, deletion_timestamp=1) for one in old]
    table.append_actions([*removed, *moved])
    table.append(numbers(4))
    assert list(batches(stream, start)) == [[4]]


def test_a_version_that_replaces_rows_ends_the_stream_unless_it_is_to_be_left_out(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    stream = stream_of(lake)
    start = stream.latestOffset(stream.initialOffset(), all_available())
    table.overwrite(numbers(7))
    table.append(numbers(8))
    with pytest.raises(InvalidRequest, match=r"version 3.*skipChangeCommits"):
        list(batches(stream, start))
    assert list(batches(stream_of(lake, skipchangecommits="true"), start)) == [[8]]


def test_a_table_that_was_dropped_and_created_anew_is_another_table_to_the_stream(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    stream = stream_of(lake)
    start = stream.latestOffset(stream.initialOffset(), all_available())
    lake.commit([Delete(table.key)])
    lake.create_table(KEY, data=numbers(1))
    with pytest.raises(InvalidRequest, match="dropped and created again"):
        stream.latestOffset(start, all_available())


def test_a_branch_that_was_set_back_behind_the_stream_is_noticed(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    lake.branch("dev").create()
    lake.table(KEY, "dev").append(numbers(4))
    stream = stream_of(lake, branch="dev")
    start = stream.latestOffset(stream.initialOffset(), all_available())
    lake.branch("dev").delete()
    lake.branch("dev").create(at="main~1")
    with pytest.raises(InvalidRequest, match="was reset"):
        stream.latestOffset(start, all_available())


def test_new_columns_end_the_stream_and_are_read_after_a_restart(
    lake: Lake, table: penstock.lake.table.Table
) -> None:
    from penstock.formats.delta.spark.source.target import TaskMessage, plan_target

    stream = stream_of(lake)
    start = stream.latestOffset(stream.initialOffset(), all_available())
    wider = SCHEMA.append(pa.field("price", pa.float64()))
    told = parse_options({"lake": lake.url, "table": KEY, "mergeschema": "true"})
    job = plan_target(told, make_schema(wider), is_overwrite=False)
    rows_ = pa.RecordBatch.from_pylist([{"id": 4, "price": 2.5}], schema=wider)
    job.commit_files(lake, [TaskMessage(job.write_batches([rows_]))], job.id, None)
    with pytest.raises(InvalidRequest, match=r"price.*restart the query"):
        list(batches(stream, start))
    assert list(batches(stream_of(lake, wider), start)) == [[4]]


def test_the_checkpoint_of_another_source_is_refused(lake: Lake, table: penstock.lake.table.Table) -> None:
    with pytest.raises(InvalidRequest, match="checkpoint"):
        stream_of(lake).latestOffset({"version": "x"}, all_available())


# -- any history, any limits ---------------------------------------------------------------------------------


def _file(name: str) -> Add:
    return Add(path=name, partition_values={}, size=1, modification_time=0, data_change=True)


@given(
    history=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    data=st.data(),
)
def test_whatever_the_limits_all_files_are_read_once_and_in_order(
    history: list[int], limits: list[int], data: st.DataObject
) -> None:
    files = [
        [_file(f"{version}/{number}") for number in range(count)] for version, count in enumerate(history)
    ]

    def files_of(versions: range) -> Iterator[tuple[int, Files]]:
        return ((version, files[version]) for version in versions)

    first = data.draw(st.integers(0, len(files)))
    place = StreamOffset(table="t", first=first, version=first)
    found: list[str] = []
    start, latest = StreamOffset(), first - 1
    while place.version < len(files):
        latest = data.draw(st.integers(max(latest, place.version), len(files) - 1))
        limit = BatchLimit(files=limits[len(found) % len(limits)])
        end = find_batch_end(place, latest, files_of, limit)
        got = [one.path for one in list_files_between(start.start_of(end), end, files_of)]
        assert got == [one.path for one in list_files_between(start.start_of(end), end, files_of)]
        assert len(got) <= (limit.files or 0)
        assert parse_offset(end.to_json()) == end
        found += got
        start = place = end
    assert found == [one.path for version in files[first:] for one in version]
