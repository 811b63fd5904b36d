"""Reading a table: pinned to a commit, whole whatever is asked of it, and without listing anything."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, KeyNotFound, NotManaged, VersionNotFound
from penstock.formats.rows.spark_conditions import has_same_meaning_in_spark
from penstock.lake.lake import Lake
from penstock.model.nessie import DeltaTable
from penstock.spark.reader import read
from tests.spark.reading_tables import VALUES, in_each_engine, shown, using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def orders() -> pa.Table:
    return pa.table({"id": [1, 2, 3], "day": ["mon", "tue", "wed"]})


def test_a_dataframe_goes_on_showing_the_commit_that_it_was_made_at(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("sales.orders", data=orders())
    before = read(spark, "sales.orders")
    assert shown(before) == [(1, "mon"), (2, "tue"), (3, "wed")]
    table.overwrite(pa.table({"id": [9], "day": ["sun"]}))
    assert before.count() == 3
    assert shown(read(spark, "sales.orders")) == [(9, "sun")]


def test_branches_tags_versions_and_times_are_read_each_as_they_are(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", data=pa.table({"id": [0]}))
    lake.tag("first").create()
    lake.branch("dev").create()
    lake.table("t", "dev").append(pa.table({"id": [7]}))
    landed = table.append(pa.table({"id": [1]}))
    table.append(pa.table({"id": [2]}))
    at = datetime.fromtimestamp(landed.tables[0].timestamp_ms / 1000, UTC)
    assert shown(read(spark, "t")) == [(0,), (1,), (2,)]
    assert shown(read(spark, "t", ref="dev")) == [(0,), (7,)]
    assert shown(read(spark, "t", ref="first")) == [(0,)]
    assert shown(read(spark, "t", ref=landed.commit.id)) == [(0,), (1,)]
    assert shown(read(spark, "t", version=landed.version)) == [(0,), (1,)]
    assert shown(read(spark, "t", timestamp=at)) == [(0,), (1,)]
    with pytest.raises(VersionNotFound):
        read(spark, "t", version=9)
    with pytest.raises(InvalidRequest):
        read(spark, "t", version=0, timestamp=at)


def test_what_is_no_table_of_the_lake_is_told_apart(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(KeyNotFound):
        read(spark, "nothing.here")
    lake.add_root(str(tmp_path))
    lake.branch().put("pointer", DeltaTable(location=str(tmp_path / "elsewhere")))
    with pytest.raises(NotManaged):
        read(spark, "pointer")


@pytest.mark.verify
def test_a_condition_leaves_out_files_and_rows(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", schema=orders().schema, partition_by="day")
    for start in (0, 10, 20):
        table.append(pa.table({"id": [start, start + 1], "day": ["mon", "tue"]}))
    by_partition = read(spark, "t", where="day = 'mon'")
    assert shown(by_partition) == [(0, "mon"), (10, "mon"), (20, "mon")]
    by_stats = read(spark, "t", where="id >= 10 and id < 20 and day = 'tue'", columns=["id"])
    assert (by_stats.columns, shown(by_stats)) == (["id"], [(11,)])
    # Spark sees no more than the files that are left, whatever is asked of the DataFrame.
    assert len(by_stats.inputFiles()) == 1
    # Spark alone understands this one.
    assert shown(read(spark, "t", where="id % 10 = 1 and upper(day) = 'TUE'", columns=["ID"])) == [
        (1,),
        (11,),
        (21,),
    ]


def test_a_condition_that_is_null_is_true_for_no_row(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t", data=pa.table({"id": [1]}))
    assert shown(read(spark, "t", where="NULL")) == []


def test_columns_that_are_not_there_are_named(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t", data=orders())
    with pytest.raises(InvalidRequest, match="no column 'amount'; its columns are id, day"):
        read(spark, "t", columns=["id", "amount"])
    with pytest.raises(InvalidRequest, match="name at least one"):
        read(spark, "t", columns=[])


def record(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "text": f"{number}",
        "real": float(number),
        "short_real": 0.1 * number,
        "money": Decimal(number),
        "large": Decimal(number),
        "day": date(2026, 1, 1 + number),
        "at": datetime(2026, 1, 1, number, tzinfo=UTC),
        "local": datetime(2026, 1, 1, number, tzinfo=UTC).replace(tzinfo=None),
        "flag": number % 2 == 0,
    } | more


RECORDS = [
    *map(record, range(4)),
    dict.fromkeys(VALUES.names),
    record(5, real=float("nan"), text="2026-01-02"),
    record(6, text='a"b', large=Decimal("0.100000000000000006")),
    record(7, text="a\nb", real=float("inf")),
    record(8, text="it's", money=Decimal("0.10")),
]
TEXT_AS_DATE = "text > date '2026-01-01'"
CONDITIONS = [
    "id = 3",
    "id = '3'",
    "ID >= 2 AND NOT id > 2",
    "id in (1, 2) or text like '2026%'",
    "id between 1 and 2 or flag = true",
    "text = 'it''s'",
    'text = "2"',
    "text = 'a\\nb'",
    TEXT_AS_DATE,
    "real > 100",
    "real = 'NaN'",
    "not real < 3",
    "short_real > 0.1",
    "short_real <= 0.1",
    "money = 0.1",
    "money = '0.1'",
    "large = '0.1'",
    "large = 1e-1",
    "day = '2026-01-02'",
    "day >= date '2026-01-03' and day is not null",
    "at = '2026-01-01 02:00:00'",
    "at >= timestamp '2026-01-01 02:00:00'",
    "at < '2026-01-01 02:00:00+01:00'",
    "local = '2026-01-01 02:00:00'",
    "local > timestamp '2026-01-01 02:00:00'",
    "flag or id is null",
    "text is null",
]


@pytest.mark.verify
@pytest.mark.parametrize(("zone", "is_strict"), [("UTC", True), ("Europe/Berlin", False)])
def test_no_condition_loses_rows_by_leaving_out_files(
    spark: SparkSession, lake: Lake, zone: str, is_strict: bool
) -> None:
    """A file for each row, so that every file can be left out, and has its row as both bounds."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    table = lake.create_table("t", schema=VALUES)
    row_in: dict[str, int] = {}
    for number, one in enumerate(RECORDS):
        table.append(pa.Table.from_pylist([one], VALUES))
        (path,) = {file.path for file in table.snapshot().files()} - row_in.keys()
        row_in[path] = number
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.ansi.enabled", is_strict)
    # Where Spark is strict it is an error that some texts are no dates.
    conditions = [one for one in CONDITIONS if not (is_strict and one == TEXT_AS_DATE)]
    answers = read(spark, "t").select(
        F.element_at(F.split("_metadata.file_path", "/"), -1), *(F.expr(one) for one in conditions)
    )
    told = {row_in[path]: truths for path, *truths in answers.collect()}
    for at, where in enumerate(conditions):
        wanted = {number for number, truths in told.items() if truths[at]}
        left = {row_in[path.rpartition("/")[2]] for path in read(spark, "t", where=where).inputFiles()}
        assert 0 < len(wanted) < len(RECORDS), where
        assert wanted <= left, where
        assert (left < told.keys()) == has_same_meaning_in_spark(where, table.schema, zone), where


@in_each_engine
def test_nan_is_larger_than_any_bound_that_a_file_notes(spark: SparkSession, lake: Lake, engine: str) -> None:
    """Arrow leaves NaN out of the bounds in the files that it writes. To Spark nothing is larger."""
    values = [1.0, float("nan"), 2.0]
    inner = pa.array([{"x": one} for one in values], pa.struct([("x", pa.float32())]))
    lake.create_table("t", data=pa.table({"id": [1, 2, 3], "real": values, "inner": inner}))
    rows = read(using(spark, engine), "t")
    for where in ("real > 100", "real = double('NaN')", "inner.x > 100", "not inner.x <= 100"):
        assert shown(rows.where(where).select("id")) == [(2,)], where
    assert shown(read(spark, "t", where="real > 100", columns=["id"])) == [(2,)]


def test_the_lake_may_be_another_than_the_session_s(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    import penstock

    with penstock.open(tmp_path / "other") as other:
        other.create_table("t", data=orders())
        assert read(spark, "t", lake=other).count() == 3
        with pytest.raises(KeyNotFound):
            read(spark, "t")


@pytest.mark.parametrize("where", ["id >", "nothing = 1", "id", "sum(id) > 1"])
def test_what_is_no_condition_is_told_in_a_word(spark: SparkSession, lake: Lake, where: str) -> None:
    lake.create_table("t", data=pa.table({"id": [1]}))
    with pytest.raises(InvalidRequest, match=r"does not accept it|computed from one row each") as refused:
        read(spark, "t", where=where)
    assert "\n" not in refused.value.message
