"""Writing DataFrames to tables: modes, partitions, schemas, batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import CommitConflict, InvalidRequest, KeyNotFound
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.lake.lake import Lake
from penstock.spark import delete, read, update, write
from tests.spark.reading_tables import JAR_FIRST, using
from tests.spark.writing_cases import delta_table, files_below, seen, seen_by_others

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=JAR_FIRST)
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession:
    return using(spark, request.param)


def test_a_table_is_created_with_its_rows_in_one_commit(engine: SparkSession, lake: Lake) -> None:
    done = write(engine.range(5), "demo.numbers", message="five numbers")
    assert done is not None
    assert done.version == 0
    assert done.commit == lake.log(limit=1)[0]
    assert done.commit.message == "five numbers"
    assert [one.operation for one in lake.table("demo.numbers").history()] == ["CREATE TABLE AS SELECT"]
    assert seen(lake, "demo.numbers") == seen_by_others(lake, "demo.numbers") == [{"id": n} for n in range(5)]


def test_appends_add_to_what_is_there(spark: SparkSession, lake: Lake) -> None:
    write(spark.range(2), "demo.numbers")
    done = write(spark.range(2, 4), "demo.numbers")
    assert done is not None
    assert done.version == 1
    assert not done.is_repeated
    assert [row["id"] for row in seen_by_others(lake, "demo.numbers")] == [0, 1, 2, 3]


def test_an_overwrite_replaces_all_rows_and_an_empty_one_leaves_none(
    engine: SparkSession, lake: Lake
) -> None:
    write(engine.range(5), "demo.numbers")
    write(engine.range(7, 8), "demo.numbers", mode="overwrite")
    assert seen(lake, "demo.numbers") == [{"id": 7}]
    assert write(engine.range(0), "demo.numbers", mode="overwrite") is not None
    assert seen(lake, "demo.numbers") == seen_by_others(lake, "demo.numbers") == []


def test_appending_no_rows_is_no_commit_and_leaves_no_file(engine: SparkSession, lake: Lake) -> None:
    write(engine.range(1), "demo.numbers")
    before = files_below(lake, "demo.numbers")
    assert write(engine.range(0), "demo.numbers") is None
    assert lake.table("demo.numbers").version == 0
    assert files_below(lake, "demo.numbers") == before


def test_error_and_ignore_create_and_never_touch_a_table_that_is_there(
    spark: SparkSession, lake: Lake
) -> None:
    assert write(spark.range(1), "demo.one", mode="error") is not None
    with pytest.raises(CommitConflict, match="already exists"):
        write(spark.range(2), "demo.one", mode="errorifexists")
    assert write(spark.range(2), "demo.one", mode="ignore") is None
    assert write(spark.range(1), "demo.other", mode="ignore") is not None
    assert len(seen(lake, "demo.one")) == len(seen(lake, "demo.other")) == 1


def test_without_create_a_missing_table_is_an_error(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(KeyNotFound, match=r"no 'demo\.missing' on 'main'"):
        write(spark.range(1), "demo.missing", create=False)


def test_a_dynamic_overwrite_replaces_the_partitions_that_get_rows(spark: SparkSession, lake: Lake) -> None:
    rows = "select id, if(id % 3 = 0, null, concat('p', id % 3)) as part from range(9)"
    write(spark.sql(rows), "demo.parts", partition_by="part")
    write(
        spark.sql("select 100L as id, 'p1' as part"),
        "demo.parts",
        mode="overwrite",
        partition_overwrite="dynamic",
    )
    assert [row["id"] for row in seen(lake, "demo.parts")] == [0, 2, 3, 5, 6, 8, 100]
    write(
        spark.sql("select 200L as id, cast(null as string) as part"),
        "demo.parts",
        mode="overwrite",
        partition_overwrite="dynamic",
    )
    assert [row["id"] for row in seen_by_others(lake, "demo.parts")] == [2, 5, 8, 100, 200]


def test_a_dynamic_overwrite_without_rows_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    write(spark.sql("select id, id % 2 as part from range(4)"), "demo.parts", partition_by=["part"])
    none = spark.sql("select id, id as part from range(0)")
    assert write(none, "demo.parts", mode="overwrite", partition_overwrite="dynamic") is None
    # Nor if it has a number.
    numbered: dict[str, Any] = {"app_id": "a", "batch": 1}
    assert write(none, "demo.parts", mode="overwrite", partition_overwrite="dynamic", **numbered) is None
    assert len(seen(lake, "demo.parts")) == 4


def test_what_a_session_says_of_partitions_holds_for_overwrites_that_say_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    def write_part(number: int, **how: Any) -> set[int]:
        rows = spark.sql(f"select {number} as id, {number % 10} as part")
        write(rows, "demo.parts", mode="overwrite", **how)
        return {row["id"] for row in seen(lake, "demo.parts")}

    write(spark.sql("select 1 as id, 1 as part union all select 2, 2"), "demo.parts", partition_by="part")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    assert write_part(11) == {11, 2}
    assert write_part(21, replace_where="part > 0") == {21}
    with pytest.raises(InvalidRequest, match="'partition_overwrite' and 'overwrite_schema'"):
        write_part(31, overwrite_schema=True)
    assert write_part(32) == {21, 32}
    assert write_part(43, partition_overwrite="static") == {43}
    assert write(spark.range(1), "demo.other") is not None  # an append has nothing to do with it
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "STATIC")
    assert write_part(54) == {54}


def test_a_condition_on_partitions_replaces_whole_partitions(spark: SparkSession, lake: Lake) -> None:
    write(spark.sql("select id, id div 10 as ten from range(40)"), "demo.tens", partition_by="ten")
    new = spark.sql("select 21L as id, 2L as ten")
    write(new, "demo.tens", mode="overwrite", replace_where="ten >= 2")
    assert [row["id"] for row in seen(lake, "demo.tens") if row["ten"] >= 2] == [21]
    assert len(seen_by_others(lake, "demo.tens")) == 21
    before = files_below(lake, "demo.tens")
    with pytest.raises(InvalidRequest, match=r"rows of ten=2.* not one of"):
        write(new, "demo.tens", mode="overwrite", replace_where="ten = 3")
    assert files_below(lake, "demo.tens") == before


def _feed(lake: Lake, key: str, version: int) -> dict[str, list[int]]:
    """The ids that the change data feed tells of a version, as deltalake reads it."""
    changes = pa.table(delta_table(lake.table(key).location).load_cdf(starting_version=version)).to_pylist()
    kinds = sorted({row["_change_type"] for row in changes})
    return {kind: sorted(row["id"] for row in changes if row["_change_type"] == kind) for kind in kinds}


@pytest.mark.parametrize("has_feed", [False, True])
def test_a_condition_on_other_columns_rewrites_the_files_it_touches(
    spark: SparkSession, lake: Lake, has_feed: bool
) -> None:
    feed = {"delta.enableChangeDataFeed": str(has_feed).lower()}
    write(spark.range(0, 10, 1, 1), "demo.numbers", properties=feed)
    write(spark.range(10, 20, 1, 1), "demo.numbers")
    first, second = sorted(one.path for one in lake.table("demo.numbers").snapshot().files())
    done = write(
        spark.range(50, 52).unionByName(spark.sql("select 15L as id")),
        "demo.numbers",
        mode="overwrite",
        replace_where="id > 14",
    )
    assert done is not None
    assert done.version is not None
    rows = [row["id"] for row in seen_by_others(lake, "demo.numbers")]
    if has_feed:
        assert _feed(lake, "demo.numbers", done.version) == {
            "delete": [*range(15, 20)],
            "insert": [15, 50, 51],
        }
    assert rows == [*range(15), 15, 50, 51]
    kept = {one.path for one in lake.table("demo.numbers").snapshot().files()} & {first, second}
    assert len(kept) == 1
    with pytest.raises(InvalidRequest, match="that do not match the condition of the overwrite: id > 14"):
        write(spark.range(14, 16), "demo.numbers", mode="overwrite", replace_where="id > 14")


def test_a_condition_holds_for_a_table_that_it_creates_too(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match="that do not match the condition of the overwrite: id > 1"):
        write(spark.range(0, 5, 1, 1), "demo.new", mode="overwrite", replace_where="id > 1")
    assert not lake.table("demo.new").exists
    assert list(Path(lake.warehouse).rglob("*.parquet")) == []
    write(spark.range(2, 5), "demo.new", mode="overwrite", replace_where="id > 1")
    assert len(seen(lake, "demo.new")) == 3


def test_tables_that_ask_for_more_or_for_less_are_refused_before_a_job_runs(
    spark: SparkSession, lake: Lake
) -> None:
    write(spark.range(1), "demo.kept", properties={"delta.appendOnly": "true"})
    before = files_below(lake, "demo.kept")
    with pytest.raises(InvalidRequest, match=r"delta\.appendOnly"):
        write(spark.range(1), "demo.kept", mode="overwrite")
    assert files_below(lake, "demo.kept") == before
    with pytest.raises(InvalidRequest, match="feature 'geospatial'"):
        write(spark.range(1), "demo.checked", properties={"delta.feature.geospatial": "supported"})
    assert not lake.table("demo.checked").exists


def test_columns_are_added_when_asked_and_older_rows_have_nulls_there(
    spark: SparkSession, lake: Lake
) -> None:
    write(spark.sql("select 1L as id, struct(1 as a) as part"), "demo.growing")
    more = spark.sql(
        "select 2L as id, struct('x' as b, 2 as a) as part, timestamp_ntz'2024-01-01 00:00:00' as t"
    )
    with pytest.raises(
        InvalidRequest, match=r"no column 't'(.|\n)*no column 'part\.b'(.|\n)*merge_schema=True"
    ):
        write(more, "demo.growing")
    write(more, "demo.growing", merge_schema=True)
    first, second = seen_by_others(lake, "demo.growing")
    assert first == {"id": 1, "part": {"a": 1, "b": None}, "t": None}
    assert second["part"] == {"a": 2, "b": "x"}
    # Nothing new: no further change of the table itself.
    write(more, "demo.growing", merge_schema=True)
    assert len(seen(lake, "demo.growing")) == 3


def test_a_branch_lands_after_the_target_got_columns(spark: SparkSession, lake: Lake) -> None:
    write(spark.sql("select id, struct(1 as a) as part from range(4)"), "demo.growing")
    lake.branch("dev").create()
    write(spark.sql("select 10L as id, struct(5 as a) as part"), "demo.growing", branch="dev")
    delete(spark, "demo.growing", "id = 3", branch="dev")
    more = spark.sql("select 20L as id, struct(7 as a, 'x' as b) as part, 'm' as note")
    write(more, "demo.growing", merge_schema=True)
    other = spark.sql("select 30L as id, struct(8 as a, 1.5D as c) as part, 'd' as note, 2 as size")
    write(other, "demo.growing", branch="dev", merge_schema=True)
    update(spark, "demo.growing", {"note": "'u'"}, "id = 10", branch="dev")
    lake.merge("dev")
    expected = [
        *({"id": n, "part": {"a": 1, "b": None, "c": None}, "note": None, "size": None} for n in range(3)),
        {"id": 10, "part": {"a": 5, "b": None, "c": None}, "note": "u", "size": None},
        {"id": 20, "part": {"a": 7, "b": "x", "c": None}, "note": "m", "size": None},
        {"id": 30, "part": {"a": 8, "b": None, "c": 1.5}, "note": "d", "size": 2},
    ]
    assert seen(lake, "demo.growing") == seen_by_others(lake, "demo.growing") == expected
    assert [
        row.asDict(recursive=True) for row in read(spark, "demo.growing").orderBy("id").collect()
    ] == expected


def test_overwriting_the_schema_replaces_columns_and_partitions(spark: SparkSession, lake: Lake) -> None:
    write(spark.range(3), "demo.changing", properties={"delta.appendOnly": "false", "team": "a"})
    new = spark.sql("select 'x' as name, 1 as part")
    write(new, "demo.changing", mode="overwrite", overwrite_schema=True, partition_by="part")
    assert seen_by_others(lake, "demo.changing") == [{"name": "x", "part": 1}]
    assert lake.table("demo.changing").properties["team"] == "a"
    assert lake.table("demo.changing").snapshot().partition_columns == ("part",)


def test_another_partitioning_of_a_table_that_is_there_is_refused(spark: SparkSession, lake: Lake) -> None:
    df = spark.sql("select 1 as a, 2 as b")
    write(df, "demo.parts", partition_by="a")
    with pytest.raises(InvalidRequest, match="partitioned by a, not by b"):
        write(df, "demo.parts", partition_by="b")
    write(df, "demo.parts", partition_by="A")
    with pytest.raises(InvalidRequest, match="no column 'c' to partition by"):
        write(df, "demo.other", partition_by="c")


def test_a_batch_of_an_application_is_written_once(spark: SparkSession, lake: Lake) -> None:
    first = write(spark.range(1), "demo.batches", app_id="loader", batch=0)
    assert first is not None
    before = files_below(lake, "demo.batches")
    assert write(spark.range(1), "demo.batches", app_id="loader", batch=0) is None
    assert files_below(lake, "demo.batches") == before
    assert write(spark.range(1), "demo.batches", app_id="loader", batch=1) is not None
    assert write(spark.range(1), "demo.batches", app_id="other", batch=0) is not None
    assert len(seen(lake, "demo.batches")) == 3
    assert write(spark.range(0), "demo.batches", app_id="loader", batch=2) is None
    assert lake.table("demo.batches").version == 2


def test_the_log_is_read_for_an_application_s_first_batch_and_not_for_each(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def counted(table: JobTable) -> TableSnapshot:
        looks.append(table.version)
        return lake.table(table.key).snapshot(table.version)

    monkeypatch.setattr(JobTable, "snapshot", property(counted))
    for batch in range(4):
        write(spark.range(batch, batch + 1), "demo.batches", app_id="loader", batch=batch)
    assert looks == [0]
    with pytest.raises(InvalidRequest):
        write(spark.range(1).selectExpr("'x' as id"), "demo.batches", app_id="loader", batch=4)
    # After a failure nothing is taken for granted: the batch may have landed all the same.
    write(spark.range(4, 5), "demo.batches", app_id="loader", batch=4)
    assert write(spark.range(9), "demo.batches", app_id="loader", batch=2) is None
    assert looks == [0, 3, 4]
    assert [row["id"] for row in seen(lake, "demo.batches")] == [0, 1, 2, 3, 4]


def test_the_same_call_under_one_key_is_one_commit_and_one_job(spark: SparkSession, lake: Lake) -> None:
    first = write(spark.range(2), "demo.once", idempotency_key="load-1")
    again = write(spark.range(2), "demo.once", idempotency_key="load-1")
    assert first is not None
    assert again is not None
    assert again.commit == first.commit
    more = write(spark.range(2, 3), "demo.once", idempotency_key="load-2")
    last = write(spark.range(2, 3), "demo.once", idempotency_key="load-2")
    assert more is not None
    assert last is not None
    assert last.commit == more.commit
    assert len(seen(lake, "demo.once")) == 3
    assert len(files_below(lake, "demo.once")) == len(list(lake.table("demo.once").snapshot().files()))


def test_a_branch_keeps_its_rows_to_itself_and_its_files_apart(spark: SparkSession, lake: Lake) -> None:
    write(spark.range(1), "demo.numbers")
    lake.branch("dev").create()
    write(spark.range(1, 3), "demo.numbers", branch="dev")
    assert len(seen(lake, "demo.numbers")) == 1
    assert len(seen(lake, "demo.numbers", "dev")) == 3
    mine = {one.path for one in lake.table("demo.numbers", "dev").snapshot().files()}
    assert sum(one.startswith("_penstock/data/") for one in mine) >= 2
    write(spark.range(5), "demo.new", branch="dev")
    lake.merge("dev")
    assert len(seen_by_others(lake, "demo.numbers")) == 3
    assert len(seen_by_others(lake, "demo.new")) == 5


def test_random_prefixes_take_the_place_of_partition_folders(spark: SparkSession, lake: Lake) -> None:
    properties = {"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "5"}
    rows = spark.sql("select id, id % 2 as part from range(4)")
    write(rows, "demo.spread", partition_by="part", properties=properties)
    folders = {one.path.rpartition("/")[0] for one in lake.table("demo.spread").snapshot().files()}
    assert all(len(one) == 5 and one.isalnum() for one in folders)
    assert len(seen_by_others(lake, "demo.spread")) == 4


def test_options_reach_the_parquet_writer(spark: SparkSession, lake: Lake) -> None:
    options = {"maxRecordsPerFile": 2, "compression": "gzip"}
    write(spark.range(0, 5, 1, 1), "demo.small", options=options)
    files = list(lake.table("demo.small").snapshot().files())
    assert len(files) == 3
    assert all(".gz." in one.path for one in files)


def test_what_does_not_go_together_is_refused_before_anything_is_done(
    spark: SparkSession, lake: Lake
) -> None:
    df = spark.range(1)
    with pytest.raises(InvalidRequest, match="unknown mode 'upsert'; the modes are append"):
        write(df, "demo.x", mode="upsert")
    with pytest.raises(InvalidRequest, match="can only be used with mode='overwrite'"):
        write(df, "demo.x", replace_where="id = 1")
    with pytest.raises(InvalidRequest, match="'replace_where' and 'partition_overwrite'"):
        write(df, "demo.x", mode="overwrite", replace_where="id = 1", partition_overwrite="dynamic")
    with pytest.raises(InvalidRequest, match="'app_id' and 'batch' must be given together"):
        write(df, "demo.x", app_id="a")
    with pytest.raises(InvalidRequest, match="'static' or 'dynamic'"):
        write(df, "demo.x", mode="overwrite", partition_overwrite="some")
    assert not lake.table("demo.x").exists
