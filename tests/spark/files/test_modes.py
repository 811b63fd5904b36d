"""The four modes of a single writer, with rows and without, and what is refused before that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.errors import CommitConflict, InvalidKey, InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.files.files import make_fence, make_folder_name
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.calls import NewFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.spark import read, write
from tests.spark.files.cases import (
    about,
    after_writing,
    by_folder,
    entries,
    head,
    ids,
    in_pool,
    jobs,
    paths,
    rows,
    save,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_property_26_append_keeps_what_is_there(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    before = paths(lake, "raw.events")
    save(rows(spark, 10))
    assert set(before) < set(paths(lake, "raw.events"))
    assert ids(lake, "raw.events") == [0, 1, 2, 10, 11, 12]


@pytest.mark.verify
def test_property_27_overwrite_removes_everything_below_the_table_and_nothing_beside_it(
    spark: SparkSession, lake: Lake
) -> None:
    save(rows(spark, 0, parts=(1, 2)), partition_by="p", success_file=True)
    save(rows(spark, 7), "raw.events2")
    key = Key.parse("raw.events")
    foreign = WriteFiles(key=key, folder=_folder(lake, key), put=(NewFile(path="by/hand", size=1),))
    lake.do(foreign)
    save(rows(spark, 50), mode="overwrite", partition_by=())
    assert ids(lake, "raw.events") == [50, 51, 52]
    assert about(lake, "raw.events").layout.partition_by == ()
    assert ids(lake, "raw.events2") == [7, 8, 9]


def _folder(lake: Lake, key: Key) -> str:
    return make_folder_name(lake.id, make_fence("main", key), now_us())


def test_property_28_a_folder_alone_can_be_replaced(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0, parts=(1, 11)), partition_by="p")
    lake.do(WriteFiles(key=Key.parse("raw.events"), replaced=("p=1/",)))
    assert by_folder(lake, "raw.events") == {"p=11": [110, 111, 112]}


@pytest.mark.parametrize("told_by", ["argument", "session"])
def test_property_29_dynamic_overwrite_replaces_exactly_the_partitions_that_get_files(
    spark: SparkSession, lake: Lake, told_by: str
) -> None:
    save(rows(spark, 0, parts=(1, 2)), partition_by="p")
    kept = [one for one in entries(lake, "raw.events") if one.path.startswith("p=1/")]
    more: dict[str, Any] = {"partition_overwrite": "dynamic"} if told_by == "argument" else {}
    if told_by == "session":
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        save(rows(spark, 500, parts=(2, 3)), mode="overwrite", **more)
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert [one for one in entries(lake, "raw.events") if one.path.startswith("p=1/")] == kept
    assert by_folder(lake, "raw.events") == {
        "p=1": [10, 11, 12],
        "p=2": [520, 521, 522],
        "p=3": [530, 531, 532],
    }


def test_property_29_dynamic_overwrite_without_rows_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0, parts=(1, 2)), partition_by="p")
    before = head(lake)
    nothing = rows(spark, 0, parts=(1,)).where("id < 0")
    assert save(nothing, mode="overwrite", partition_overwrite="dynamic") is None
    assert head(lake) == before


def test_a_table_without_partition_columns_is_one_partition(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    save(rows(spark, 10), mode="overwrite", partition_overwrite="dynamic")
    assert ids(lake, "raw.events") == [10, 11, 12]


def test_property_30_error_is_refused_if_there_is_a_file_and_only_then(
    spark: SparkSession, lake: Lake
) -> None:
    save(rows(spark, 0), mode="error")
    before, files = head(lake), in_pool(lake)
    with pytest.raises(CommitConflict, match=r"'raw\.events' already has files: 1; nothing was written"):
        save(rows(spark, 10), mode="errorifexists")
    assert (head(lake), in_pool(lake)) == (before, files)
    save(rows(spark, 0).where("false"), mode="overwrite")
    save(rows(spark, 10), mode="error")
    assert ids(lake, "raw.events") == [10, 11, 12]


def test_property_31_ignore_writes_if_there_is_no_file_and_only_then(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0), mode="ignore")
    before, files = head(lake), in_pool(lake)
    assert save(rows(spark, 10), mode="ignore") is None
    assert (head(lake), in_pool(lake)) == (before, files)
    assert ids(lake, "raw.events") == [0, 1, 2]


def test_property_32_a_table_may_be_overwritten_by_what_is_read_from_it(
    spark: SparkSession, lake: Lake
) -> None:
    save(rows(spark, 0))
    save(read(spark, "raw.events").selectExpr("id + 100 as id"), mode="overwrite")
    assert ids(lake, "raw.events") == [100, 101, 102]


@pytest.mark.parametrize(
    ("mode", "name"),
    [("append", "parquet"), ("overwrite", "csv"), ("error", "json"), ("ignore", "parquet")],
)
def test_property_34_without_rows_a_new_table_has_columns_and_no_files(
    spark: SparkSession, lake: Lake, mode: str, name: str
) -> None:
    done = write(rows(spark, 0).where("false"), "raw.events", format=name, mode=mode)
    assert done is not None
    known = about(lake, "raw.events")
    assert (known.files, known.layout.format, known.layout.schema) == (0, name, rows(spark, 0).schema.json())
    assert in_pool(lake) == set()


@pytest.mark.parametrize(("mode", "left"), [("append", [0, 1, 2]), ("overwrite", []), ("ignore", [0, 1, 2])])
def test_property_34_without_rows_only_an_overwrite_changes_a_table_that_is_there(
    spark: SparkSession, lake: Lake, mode: str, left: list[int]
) -> None:
    save(rows(spark, 0))
    before = head(lake)
    done = save(rows(spark, 0).where("id < 0"), mode=mode)
    assert ids(lake, "raw.events") == left
    assert (done is None) == (head(lake) == before) == (mode != "overwrite")  # property 35


def test_partition_columns_that_are_not_named_are_those_of_the_table(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0, parts=(1,)), partition_by="P")
    save(rows(spark, 0, parts=(2,)))
    assert about(lake, "raw.events").layout.partition_by == ("p",)
    assert set(by_folder(lake, "raw.events")) == {"p=1", "p=2"}


def test_an_overwrite_by_data_without_the_partition_columns_says_so(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0, parts=(1,)), partition_by="p")
    with pytest.raises(InvalidRequest, match=r"no column 'p' .* the columns are id\n.*partition_by=\(\)"):
        save(rows(spark, 0), mode="overwrite")
    save(rows(spark, 5), mode="overwrite", partition_by=())
    assert ids(lake, "raw.events") == [5, 6, 7]


@pytest.mark.verify
@pytest.mark.parametrize("by", [(), ("id",)])
def test_an_append_by_other_partition_columns_is_refused_before_anything_is_written(
    spark: SparkSession, lake: Lake, by: tuple[str, ...]
) -> None:
    save(rows(spark, 0, parts=(1,)), partition_by="p")
    before, files = head(lake), in_pool(lake)
    with pytest.raises(InvalidRequest, match=r"'raw\.events' has files partitioned by p"):
        save(rows(spark, 0, parts=(2,)), partition_by=by)
    assert (head(lake), in_pool(lake)) == (before, files)
    if by:
        with pytest.raises(InvalidRequest, match="has files partitioned by p"):
            save(rows(spark, 0, parts=(2,)), mode="overwrite", partition_by=by, partition_overwrite="dynamic")
        assert head(lake) == before
    save(rows(spark, 0, parts=(2,)), mode="overwrite", partition_by=by)
    assert about(lake, "raw.events").layout.partition_by == by


@pytest.mark.verify
@pytest.mark.parametrize("name", ["parquet", "orc", "json"])
def test_columns_that_only_some_files_have_are_columns_of_the_table(
    spark: SparkSession, lake: Lake, name: str
) -> None:
    first, second = rows(spark, 0).selectExpr("id", "'a' as s"), rows(spark, 10).selectExpr("true as b", "id")
    write(first, "raw.events", format=name)
    write(second, "raw.events", format=name)
    write(rows(spark, 20), "raw.events", format=name)
    found = read(spark, "raw.events")
    assert found.columns == ["id", "s", "b"]
    assert sorted(found.where("s = 'a' or b").select("id").collect()) == [(n,) for n in (0, 1, 2, 10, 11, 12)]
    assert found.count() == 9


@pytest.mark.parametrize("name", ["parquet", "csv"])
def test_a_column_does_not_change_its_type_while_files_have_it(
    spark: SparkSession, lake: Lake, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = rows(spark, 10).selectExpr("cast(id as string) as id")
    other = WriteFiles(
        key=Key.parse("raw.events"),
        folder=make_folder_name(lake.id, uuid4(), now_us()),
        added=(NewFile(path="one", size=1),),
        layout=TableLayout(format=name, schema=rows(spark, 0).schema.json()),
    )
    with monkeypatch.context() as patched:
        after_writing(patched, lambda: lake.do(other))  # what is there when the job commits decides
        with pytest.raises(CommitConflict, match="with the column 'id' of type long, but the job writes it"):
            write(text, "raw.events", format=name)
    before, files = head(lake), in_pool(lake)
    with pytest.raises(InvalidRequest, match="with the column 'id' of type long"):
        write(text, "raw.events", format=name)
    assert (head(lake), in_pool(lake)) == (before, files)
    write(text, "raw.events", format=name, mode="overwrite")
    assert read(spark, "raw.events").dtypes == text.dtypes


def test_files_of_two_formats_do_not_meet_in_one_table(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    files = in_pool(lake)
    with pytest.raises(InvalidRequest, match="has files of the format 'parquet', but the job writes 'csv'"):
        write(rows(spark, 10), "raw.events", format="csv")
    assert in_pool(lake) == files
    write(rows(spark, 10), "raw.events", format="csv", mode="overwrite")
    assert about(lake, "raw.events").layout.format == "csv"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partition_by": "nothing"}, "no column 'nothing' to partition by; the columns are id"),
        ({"partition_by": ["id", "ID"]}, "given twice as a partition column"),
        ({"partition_by": "id"}, "no columns besides"),
        (
            {"replace_where": "id = 1", "mode": "overwrite"},
            "'replace_where' applies to Delta and Lance tables only",
        ),
        ({"merge_schema": True}, "'merge_schema' applies to Delta and Lance tables"),
        ({"properties": {"rows": "3"}}, "the property 'rows' is reserved for the job itself"),
        ({"properties": {"penstock.job": "a"}}, "the property 'penstock.job' is reserved for the job itself"),
        ({"app_id": "a", "batch": 0}, "'app_id' applies to Delta and Lance tables"),
        ({"batch": 0}, "'batch' applies to Delta and Lance tables"),
        ({"job_id": "a", "idempotency_key": "b"}, "give one of them"),
        ({"job_id": ""}, "the id of a job must not be empty"),
        ({"partition_overwrite": "dynamic"}, "can only be used with mode='overwrite'"),
        ({"options": {"partitionOverwriteMode": "dynamic"}}, "as the argument 'partition_overwrite'"),
        ({"options": {"penstock.attempt": "a"}}, "is reserved"),
        ({"options": {"path": "/a"}}, "is reserved"),
        ({"timeout_s": -1}, "timeout_s must be greater than 0 and at most .*, got -1"),
        ({"timeout_s": "5"}, "'timeout_s' must be a number of seconds, got '5'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_means_nothing_for_files_is_refused(
    spark: SparkSession, lake: Lake, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        save(rows(spark, 0), **given)
    assert not lake.table("raw.events").exists
    assert in_pool(lake) == set()


@pytest.mark.parametrize("name", ["job_id", "job_branch", "success_file", "timeout_s"])
def test_what_is_for_jobs_of_files_is_refused_for_rows(spark: SparkSession, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'{name}' is only for jobs that write files"):
        write(rows(spark, 0), "sales.orders", **{name: 1})  # type: ignore[arg-type]


def test_a_table_is_created_under_a_key_that_is_a_name_and_only_if_it_may_be(
    spark: SparkSession, lake: Lake
) -> None:
    with pytest.raises(KeyNotFound, match="create is False"):
        save(rows(spark, 0), create=False)
    with pytest.raises(InvalidKey, match=r"'data/events' cannot be the name of a table: .*not a path"):
        save(rows(spark, 0), "data/events")
    assert {one.state for one in jobs(lake)} == {"aborted"}


def test_a_table_of_files_takes_no_rows(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    with pytest.raises(NotManaged, match=r"'raw\.events' is a table of files: give the format of its files"):
        write(rows(spark, 0), "raw.events")


def test_a_table_of_rows_takes_no_files(spark: SparkSession, lake: Lake) -> None:
    write(rows(spark, 0), "sales.orders")
    with pytest.raises(NotManaged, match=r"'sales\.orders'"):
        save(rows(spark, 0), "sales.orders")
    assert len(lake.log()) == 1


def test_property_3_a_commit_goes_on_showing_the_same_bytes(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    pinned = head(lake)
    (file,) = entries(lake, "raw.events", pinned)
    data = Path(file.address).read_bytes()
    save(rows(spark, 10), mode="overwrite")
    assert entries(lake, "raw.events", pinned) == [file]
    assert Path(file.address).read_bytes() == data
    assert pq.read_table(file.address).num_rows == 3
