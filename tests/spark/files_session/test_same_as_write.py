"""A write of code that knows only its session is the same job as one by ``penstock.spark.write``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from penstock.errors import NotManaged
from penstock.formats.files.lake import job_markers as files_beside
from penstock.formats.files.lake import sessions as files_sessions
from penstock.formats.files.lake.calls import BeginJob, ListOfFiles, WriteFiles
from penstock.formats.files.lake.sessions import STEPS, SessionCaller, SessionWrite
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from penstock.model.keys import Key
from penstock.spark import ConcurrentJobsWarning, driver, read, write
from penstock.spark.jar import has_protocol
from penstock.spark.spark_errors import unwrap
from penstock.wire.json import decode
from tests.spark.files.cases import about, by_folder, entries, head, ids, in_pool, jobs, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "raw.events"

Save = Callable[..., None]


@pytest.fixture(params=["session", "write"])
def save(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Save:
    """Writes to a table, in one way or the other."""
    if not has_protocol(spark):
        pytest.skip("Penstock's jar is not in this Spark")

    def by_session(df: DataFrame, name: str, mode: str = "append", by: str = "", **more: Any) -> None:
        options, ours = more.pop("options", {}), {f"penstock.{one}": value for one, value in more.items()}
        writer = df.write.format(name).mode(mode).option("penstock.table", KEY).options(**options, **ours)
        (writer.partitionBy(by) if by else writer).save(str(tmp_path / "nowhere"))

    def by_write(df: DataFrame, name: str, mode: str = "append", by: str = "", **more: Any) -> None:
        write(df, KEY, format=name, mode=mode, partition_by=by or None, **more)

    return by_session if request.param == "session" else by_write


FORMATS: list[tuple[str, dict[str, str]]] = [
    ("parquet", {}),
    ("orc", {}),
    ("csv", {"header": "true"}),
    ("json", {"compression": "gzip"}),
    ("text", {}),
]


@pytest.mark.parametrize("save", ["session"], indirect=True)  # the other way has tests of its own
@pytest.mark.parametrize(("name", "options"), FORMATS, ids=[name for name, _ in FORMATS])
def test_without_rows_there_is_no_file_and_an_append_is_no_commit(
    spark: SparkSession, lake: Lake, save: Save, name: str, options: dict[str, str]
) -> None:
    data = rows(spark, 0).selectExpr("cast(id as string) as id")
    nothing = data.where("id > 'x'")
    save(nothing, name, options=options)
    assert (about(lake, KEY).files, json.loads(about(lake, KEY).layout.schema)) == (
        0,
        data.schema.jsonValue(),
    )
    save(data, name, options=options)
    before, files = head(lake), in_pool(lake)
    assert (len(files), lake.log(limit=1)[0].properties["rows"]) == (1, ("3",))
    save(nothing, name, options=options)
    assert (head(lake), in_pool(lake)) == (before, files)
    save(nothing, name, "overwrite", options=options)
    assert (entries(lake, KEY), in_pool(lake)) == ([], files)


def test_rows_of_all_tasks_and_partitions_are_counted_once(
    spark: SparkSession, lake: Lake, save: Save
) -> None:
    many = spark.range(0, 1000, numPartitions=7).selectExpr("id", "id % 3 as p").where("id > 300")
    save(many, "parquet", by="p", options={"maxRecordsPerFile": "50"})
    (commit,) = lake.log(table=KEY)
    assert commit.properties["rows"] == ("699",)
    assert sum(map(len, by_folder(lake, KEY).values())) == 699


def test_the_history_tells_what_was_read(spark: SparkSession, lake: Lake, save: Save) -> None:
    write(rows(spark, 0), "sales.orders")
    write(rows(spark, 0), "raw.plain", format="json")
    commit = head(lake)
    both = read(spark, "sales.orders").join(read(spark, "raw.plain"), "id").union(read(spark, "raw.plain"))
    save(both, "parquet")
    found = lake.log(limit=1)[0].properties["read"]
    assert sorted(found) == [f"raw.plain@{commit}", f"sales.orders@{commit}"]


def test_the_marker_tells_when_the_job_began_and_its_rows(
    spark: SparkSession, lake: Lake, save: Save
) -> None:
    save(rows(spark, 0), "parquet", success_file=True)
    marker, *files = entries(lake, KEY)
    told = json.loads(Path(marker.address).read_text())
    assert (marker.path, told["rows"], told["began"]) == ("_SUCCESS", 3, jobs(lake)[0].began.isoformat())
    assert told["files"] == [{"path": one.path, "size": one.size} for one in files]


def test_a_table_of_rows_takes_no_files(spark: SparkSession, lake: Lake, save: Save) -> None:
    write(rows(spark, 0), KEY)
    before = head(lake)
    with pytest.raises(Exception, match="not a table of files") as caught:
        save(rows(spark, 0), "parquet")
    assert isinstance(unwrap(caught.value), NotManaged)
    assert (head(lake), in_pool(lake)) == (before, set())


def test_a_job_is_told_of_others_that_write_the_same_table(
    spark: SparkSession, lake: Lake, save: Save
) -> None:
    lake.do(BeginJob(id="d" * 32, fence="e" * 32, key=Key.parse(KEY), what="append csv files"))
    with pytest.warns(
        ConcurrentJobsWarning, match=rf"on 'main' by other jobs too: {'d' * 32} \(append csv files"
    ):
        save(rows(spark, 0), "parquet")
    before = head(lake)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConcurrentJobsWarning)
        with pytest.raises(Exception, match="by other jobs too"):
            save(rows(spark, 0), "parquet", job_id="strict")
    assert head(lake) == before
    (strict,) = (one for one in jobs(lake) if one.what == "append parquet files" and not one.commit)
    assert strict.state is JobState.ABORTED


def test_a_name_stands_for_one_job_whether_the_default_branch_is_named_or_not(
    spark: SparkSession, lake: Lake, save: Save
) -> None:
    save(rows(spark, 0), "parquet", job_id="nightly")
    write(rows(spark, 0), KEY, format="parquet", job_id="nightly", branch="main")
    save(rows(spark, 0), "parquet", job_id="nightly", branch="main")
    assert (ids(lake, KEY), len(jobs(lake))) == ([0, 1, 2], 1)


def test_a_job_that_has_landed_is_done_whatever_became_of_the_table(
    spark: SparkSession, lake: Lake, save: Save
) -> None:
    save(rows(spark, 0), "csv", job_id="nightly")
    write(rows(spark, 10), KEY, format="parquet", mode="overwrite")
    save(rows(spark, 0), "csv", job_id="nightly")
    assert ids(lake, KEY) == [10, 11, 12]


class WithoutPlaces(driver.Driver):
    """Decides as a server does, which writes no files for others."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.id, lambda _: lake)
        self.lake = lake
        self.sent: list[Any] = []

    def answer(self, step: str, request: str) -> str:
        told = STEPS[step](SessionCaller(self.do), decode(request.encode(), SessionWrite))
        return msgspec.json.encode(told).decode()

    def do(self, call: Any) -> Any:
        self.sent.append(call)
        return self.lake.do(call)


@pytest.mark.parametrize("by_list", [False, True], ids=["few", "many"])
def test_many_files_are_told_to_a_server_by_a_list_in_their_folder(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_list: bool
) -> None:
    if not has_protocol(spark):
        pytest.skip("Penstock's jar is not in this Spark")
    monkeypatch.setattr(files_sessions, "SENT_MAX", 3 if by_list else 4)
    write(rows(spark, 0, parts=(1, 2)), KEY, format="parquet", partition_by="p")
    serving = WithoutPlaces(lake)
    jvm: Any = spark._jvm
    jvm.io.penstock.spark.JobDrivers.register(lake.id, serving)
    new = spark.createDataFrame([(n, part) for part in ("2", "ü/x") for n in range(4)], "id long, p string")
    writer = new.coalesce(1).write.mode("overwrite").partitionBy("p").option("maxRecordsPerFile", 2)
    writer.option("penstock.table", KEY).option("penstock.partition_overwrite", "dynamic").parquet(
        str(tmp_path / "nowhere")
    )
    (sent,) = (one for one in serving.sent if isinstance(one, WriteFiles))
    assert isinstance(sent.added, ListOfFiles) == by_list
    assert by_folder(lake, KEY) == {"p=1": [10, 11, 12], "p=2": [0, 1, 2, 3], "p=ü%2Fx": [0, 1, 2, 3]}
    told = lake.log(limit=1)[0].properties
    assert (told["files"], told["rows"], told["partition"]) == (("4",), ("8",), ("p=2", "p=ü%2Fx"))
    assert told["bytes"] == (str(sum(one.size for one in entries(lake, KEY) if "p=1/" not in one.path)),)
    assert all(one.modified is not None for one in entries(lake, KEY))


def test_many_files_are_named_by_a_list_where_the_driver_can_write_one(
    spark: SparkSession, lake: Lake, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_beside, "SENT_MAX", 1)
    sent: list[WriteFiles] = []
    original = Lake.do

    def do(self: Lake, call: Any, *more: Any) -> Any:
        sent.extend([call] if isinstance(call, WriteFiles) else [])
        return original(self, call, *more)

    monkeypatch.setattr(Lake, "do", do)
    save(rows(spark, 0), "parquet", options={"maxRecordsPerFile": "1"})
    assert [type(one.added) for one in sent] == [ListOfFiles]
    assert ids(lake, KEY) == [0, 1, 2]
