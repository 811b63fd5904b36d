"""Scans: whatever a file holds, and however the log describes it, Spark shows the rows of the table."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog, UnsupportedFeature
from penstock.formats.delta.lake.scan_plan import FILE
from penstock.formats.delta.rows import deletion_words
from penstock.formats.delta.spark.scan import deletions, scans
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.lake import Lake
from tests.formats.delta.logs import protocol
from tests.formats.delta.rows import as_rows, inline_vector, metadata_for, vector_data
from tests.spark.reading_tables import (
    adopted,
    in_each_engine,
    put_file,
    shown,
    unowned,
    using,
    with_vectors,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_ID = "spark.sql.parquet.fieldId.read.enabled"
PLAIN = ["text", "at", "local", "day", "real", "money", "small", "flag"]
"""The columns of ``everything`` that can be in a path."""


@cache
def everything() -> pa.Table:
    """Values of every type, nulls, and extremes. Made when asked for: Arrow loads pandas for it."""
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "text": ["a b+%20", None, "ü/%=:?#&"],
            "at": pa.array(
                [datetime(2026, 1, 1, 12, 30, 0, 5, UTC), None, datetime(1969, 7, 20, tzinfo=UTC)],
                pa.timestamp("us", "UTC"),
            ),
            "local": pa.array([1_774_751_400_000_000, None, 0], pa.timestamp("us")),
            "day": [date(2026, 11, 15), None, date(1, 1, 1)],
            "raw": pa.array([b"ab", None, "ü".encode()], pa.binary()),
            "real": [float("nan"), None, float("-inf")],
            "money": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(10, 2)),
            "small": pa.array([-128, None, 127], pa.int8()),
            "flag": [True, None, False],
            "nested": [{"x": 1, "y": ["p", None]}, None, {"x": None, "y": []}],
        }
    )


def whole(spark: SparkSession, lake: Lake, key: str = "t", **how: Any) -> DataFrame:
    snapshot = lake.table(key).snapshot()
    return scans.read_rows(spark, snapshot, snapshot.files(), **how)


@in_each_engine
@pytest.mark.parametrize("partition_by", [[], PLAIN], ids=["in files", "in the log"])
def test_values_of_every_type_come_as_they_were_written(
    spark: SparkSession, lake: Lake, engine: str, partition_by: list[str]
) -> None:
    lake.create_table("t", data=everything(), partition_by=partition_by)
    # A zone that has a gap where one of the local times is.
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    rows = whole(using(spark, engine), lake)
    assert rows.columns == everything().column_names
    arrow = rows.toArrow()
    assert as_rows(arrow) == as_rows(everything().cast(arrow.schema))


@in_each_engine
def test_rows_tell_their_file_and_their_number_in_it(spark: SparkSession, lake: Lake, engine: str) -> None:
    table = lake.create_table("t", schema=pa.schema({"id": pa.int64()}))
    for start in (0, 10, 20):
        table.append(pa.table({"id": range(start, start + 3)}))
    snapshot = table.snapshot()
    files = list(snapshot.files())
    rows = shown(scans.read_rows(using(spark, engine), snapshot, files, numbered=True))
    assert len(rows) == 9
    for file, add in enumerate(files):
        (alone,) = (scans.read_rows(spark, snapshot, [add]).toArrow()["id"].to_pylist(),)
        assert [one for one in rows if one[1] == file] == [
            (value, file, at) for at, value in enumerate(alone)
        ]


@in_each_engine
def test_a_table_without_files_is_a_dataframe_without_rows(
    spark: SparkSession, lake: Lake, engine: str
) -> None:
    lake.create_table("t", schema=everything().schema, partition_by="day")
    for numbered in (False, True):
        rows = whole(using(spark, engine), lake, numbered=numbered)
        ends = [FILE, scans.ROW] if numbered else []
        assert (rows.columns, rows.count()) == ([*everything().column_names, *ends], 0)


@pytest.mark.parametrize(
    ("engine", "has_stats"),
    [("jar", True), pytest.param("jar", False, marks=pytest.mark.verify), ("fallback", True)],
)
def test_rows_of_a_deletion_vector_are_left_out(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str, has_stats: bool
) -> None:
    data, root = pa.table({"id": range(100_000)}), tmp_path / "t"
    gone = {0, 7, 65_535, 65_536, 99_999}
    begin = with_vectors(data)
    cut = written(lake, root, begin[1], data)
    other = written(lake, root, begin[1], pa.table({"id": range(100_000, 100_003)}))
    cut = replace(
        cut,
        deletion_vector=inline_vector(vector_data(gone), len(gone)),
        stats=cut.stats if has_stats else None,
    )
    adopted(lake, root, [[*begin, cut, other]])
    rows = whole(using(spark, engine), lake)
    assert sorted(rows.toArrow()["id"].to_pylist()) == [one for one in range(100_003) if one not in gone]
    assert shown(rows.where("id in (7, 8, 100001)")) == [(100_001,), (8,)]
    numbered = {
        row[0]: tuple(row[1:]) for row in whole(spark, lake, numbered=True).where("id > 99990").collect()
    }
    order = [one.path for one in lake.table("t").snapshot().files()]
    assert numbered[99_991] == (order.index(cut.path), 99_991)
    assert numbered[100_002] == (order.index(other.path), 2)
    assert len(numbered) == 11


def test_files_without_deletion_vectors_lose_nothing_by_those_with(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    data, root = pa.table({"id": range(5)}), tmp_path / "t"
    begin = with_vectors(data)
    cut = replace(written(lake, root, begin[1], data), deletion_vector=inline_vector(vector_data({1}), 1))
    adopted(lake, root, [[*begin, cut, written(lake, root, begin[1], data)]])
    plan = planned(whole(spark, lake).where("id > 2"))
    assert plan.count("FileScan") == plan.count("GreaterThan(id,2)") == 2
    read_columns = re.findall(r"FileScan parquet \[([^\]]*)\]", plan)
    assert sorted("__penstock_file" in columns for columns in read_columns) == [False, True]
    assert "Join" not in plan


def vectored(lake: Lake, root: Path, gone: list[set[int]]) -> None:
    """A table of files of 200 rows each, of which some are deleted."""
    begin = with_vectors(pa.table({"id": range(1)}))
    files = []
    for number, rows in enumerate(gone):
        file = written(lake, root, begin[1], pa.table({"id": range(number * 200, number * 200 + 200)}))
        vector = inline_vector(vector_data(rows), len(rows)) if rows else None
        files.append(replace(file, deletion_vector=vector))
    adopted(lake, root, [[*begin, *files]])


def test_vectors_are_read_several_at_once_and_stay_with_their_files(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_words, "READ_AHEAD", 2)
    gone = [{0, 63, 64, 199}, set(), set(range(200)), {127}, {128, 191}]
    vectored(lake, tmp_path / "t", gone)
    found = sorted(whole(spark, lake).toArrow()["id"].to_pylist())
    assert found == [
        number * 200 + row for number in range(5) for row in range(200) if row not in gone[number]
    ]


def test_many_deleted_rows_are_not_sent_to_every_executor(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "BROADCAST_MAX_WORDS", 1)
    vectored(lake, tmp_path / "t", [{1, 2}, {3, 4}])
    rows = whole(spark, lake)
    assert ("SortMergeJoin" in planned(rows), "BroadcastHashJoin" in planned(rows)) == (True, False)
    assert rows.count() == 396


def test_more_deleted_rows_than_can_be_held_are_refused_with_a_way_out(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_words, "WORDS_MAX", 2)
    vectored(lake, tmp_path / "t", [{1, 2, 70}, {0}])
    with pytest.raises(InvalidRequest, match="too many deleted rows") as refused:
        whole(spark, lake)
    assert "'where'" in refused.value.message
    snapshot = lake.table("t").snapshot()
    assert scans.read_rows(spark, snapshot, snapshot.files("id < 200")).count() == 197


@in_each_engine
def test_a_deletion_vector_that_names_rows_that_are_not_there_is_an_error(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str
) -> None:
    data, root = pa.table({"id": range(10)}), tmp_path / "t"
    begin = with_vectors(data)
    cut = written(lake, root, begin[1], data)
    adopted(lake, root, [[*begin, replace(cut, deletion_vector=inline_vector(vector_data({1, 12}), 2))]])
    with pytest.raises(InvalidLog, match="names rows beyond the end of the file, which has 10"):
        whole(using(spark, engine), lake)


def mapped(name: str, kind: Any, physical: str, number: int) -> Field:
    notes = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return Field(name=name, type=kind, nullable=True, metadata=notes)


RENAMED = StructType(
    (
        # What files call one column is what the table calls another.
        mapped(
            "inner", StructType((mapped("now", "string", "col-3", 3), mapped("new", "long", "x", 4))), "id", 2
        ),
        mapped("id", "long", "part", 1),
        mapped("part", "string", "col-5", 5),
        mapped("added", "double", "col-6", 6),
    )
)


def with_id(name: str, kind: Any, number: int) -> Any:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


@in_each_engine
@pytest.mark.parametrize(
    ("mode", "names"),
    [("name", ["part", "id", "col-3"]), ("id", ["part", "id", "col-3"]), ("id", ["b", "c", "d"])],
    ids=["name", "id", "id alone"],
)
def test_columns_are_found_in_files_by_what_column_mapping_says(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str, mode: str, names: list[str]
) -> None:
    root = tmp_path / "t"
    inner = pa.struct([with_id(names[2], pa.string(), 3)])
    schema = pa.schema([with_id(names[0], pa.int64(), 1), with_id(names[1], inner, 2)])
    data = pa.Table.from_pylist(
        [{names[0]: 1, names[1]: {names[2]: "a"}}, {names[0]: 2, names[1]: None}], schema=schema
    )
    properties = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "6"}
    metadata = metadata_for(RENAMED, ["part"], properties)
    file = put_file(root, "a.parquet", data, partition_values={"col-5": "p"})
    snapshot = unowned(lake, root, [[protocol(reader=("columnMapping",)), metadata, file]])
    if (engine, mode) == ("fallback", "id"):
        using(spark, engine).conf.unset(BY_ID)
        with pytest.raises(InvalidRequest, match=f"set {BY_ID} to true in this session"):
            scans.read_rows(spark, snapshot, snapshot.files())
        spark.conf.set(BY_ID, "true")
    rows = scans.read_rows(using(spark, engine), snapshot, snapshot.files())
    assert rows.toArrow().to_pylist() == [
        {"inner": {"now": "a", "new": None}, "id": 1, "part": "p", "added": None},
        {"inner": None, "id": 2, "part": "p", "added": None},
    ]
    assert shown(rows.where("inner.now = 'a' and part = 'p' and id < 2").select("id")) == [(1,)]


@in_each_engine
def test_old_files_are_read_as_the_table_is_now(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str
) -> None:
    root = tmp_path / "t"
    old = pa.table(
        {
            "whole": pa.array([1], pa.int32()),
            "real": pa.array([1.5], pa.float32()),
            "money": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "inner": pa.array([{"x": 1}], pa.struct([("x", pa.int64())])),
            "raw": ["not what the log says"],
        }
    )
    now = pa.schema(
        [
            ("raw", pa.binary()),
            ("day", pa.string()),
            ("whole", pa.int64()),
            ("real", pa.float64()),
            ("money", pa.decimal128(20, 4)),
            ("inner", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("new", pa.date32()),
        ]
    )
    file = put_file(root, "a.parquet", old, partition_values={"day": "", "raw": "ü\\x01"})
    snapshot = unowned(lake, root, [[protocol(), metadata_for(make_schema(now), ["raw", "day"]), file]])
    rows = scans.read_rows(using(spark, engine), snapshot, snapshot.files())
    assert shown(rows) == [(bytearray("ü\\x01".encode()), None, 1, 1.5, Decimal("1.5000"), (1, None), None)]


def test_files_outside_of_the_table_are_refused(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    data, root = pa.table({"id": [1]}), tmp_path / "t"
    metadata = metadata_for(make_schema(data.schema))
    inside = put_file(root, "a.parquet", data)
    outside = put_file(tmp_path / "other", "b.parquet", data)
    absolute = replace(inside, path=f"file://{root}/a.parquet")
    table = adopted(lake, root, [[protocol(), metadata, absolute]])
    snapshot = table.snapshot()
    assert shown(scans.read_rows(spark, snapshot, snapshot.files())) == [(1,)]
    for path in (f"file://{tmp_path}/other/b.parquet", "../other/b.parquet", "s3://bucket/b.parquet"):
        with pytest.raises(UnsupportedFeature, match="which is outside the table"):
            scans.read_rows(spark, snapshot, [replace(outside, path=path)])


@pytest.mark.parametrize("name", ["_a.parquet", "part/.a.parquet"])
def test_files_that_spark_would_leave_out_in_silence_are_refused(
    spark: SparkSession, lake: Lake, tmp_path: Path, name: str
) -> None:
    data, root = pa.table({"id": [1]}), tmp_path / "t"
    table = adopted(
        lake, root, [[protocol(), metadata_for(make_schema(data.schema)), put_file(root, name, data)]]
    )
    snapshot = table.snapshot()
    with pytest.raises(UnsupportedFeature, match="Spark would skip"):
        scans.read_rows(spark, snapshot, snapshot.files())


@in_each_engine
def test_a_file_that_is_gone_is_an_error_even_where_the_session_is_told_to_read_on(
    spark: SparkSession, lake: Lake, engine: str
) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    table = lake.create_table("t", data=pa.table({"id": [1]}))
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    (file,) = table.snapshot().files()
    (Path(table.location) / file.path).unlink()
    with pytest.raises((Py4JError, PySparkException), match=file.path):
        whole(using(spark, engine), lake).collect()


@in_each_engine
def test_a_partition_value_that_is_none_of_its_type_is_an_error(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str
) -> None:
    data, root = pa.table({"id": [1]}), tmp_path / "t"
    schema = make_schema(pa.schema({"id": pa.int64(), "day": pa.date32()}))
    table = adopted(lake, root, [[protocol(), metadata_for(schema, ["day"])]])
    snapshot = table.snapshot()
    file = put_file(root, "a.parquet", data, partition_values={"day": "someday"})
    with pytest.raises(InvalidLog, match="someday"):
        scans.read_rows(using(spark, engine), snapshot, [file])


def test_partitions_and_columns_that_are_not_asked_for_are_not_read(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t", data=pa.table({"id": [1, 2], "p": ["a", "b"], "v": [1.0, 2.0]}), partition_by="p")
    rows = whole(spark, lake).where("p = 'a' and id > 0").select("id")
    assert shown(rows) == [(1,)]
    plan = planned(rows)
    assert "ReadSchema: struct<id:bigint>" in plan
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,0)]" in plan
    scan = rows._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert scan.metrics().apply("numFiles").value() == 1


def planned(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().toString())
