"""Reads of code that knows only its session: at a path that stands for a table are the rows of the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import InvalidRequest, KeyNotFound, NotManaged, PenstockError
from penstock.lake.lake import Lake
from penstock.spark import driver, read, session, write
from penstock.spark.jar import has_protocol
from penstock.spark.spark_errors import unwrap
from penstock.wire.errors import ERROR_MARK
from tests.spark.files.cases import ids, jobs, rows
from tests.transactions.pipelines import reads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "raw.events"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "somewhere" / "events")


@pytest.fixture
def mapped(spark: SparkSession, lake: Lake, place: str) -> Iterator[SparkSession]:
    if not has_protocol(spark):
        pytest.skip("Penstock's jar is not in this Spark")
    made = session(lake, tables={place: KEY, f"{place}-sums": "raw.sums"})
    yield made
    for name in ("events", "sums", "old", "parts"):
        made.sql(f"drop table if exists {name}")


def refused(run: Callable[[], Any]) -> PenstockError:
    """What a query is refused with: Spark's error says just that, and it is found again as it was."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run()
    found = unwrap(caught.value)
    assert found is not None, caught.value
    assert str(caught.value).startswith(found.message)
    assert ERROR_MARK not in str(caught.value)
    return found


def found(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(query).collect())


# -- tables of Spark's catalogue ---------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["path", "option"])
def test_a_table_reads_what_was_inserted_and_an_overwrite_from_it_loses_nothing(
    mapped: SparkSession, lake: Lake, place: str, way: str
) -> None:
    where = f"location '{place}'" if way == "path" else f"options ('penstock.table'='{KEY}')"
    mapped.sql(f"create table events (id long, day string) using parquet {where}")
    mapped.sql(f"create table sums (day string, n long) using parquet location '{place}-sums'")
    assert found(mapped, "select count(*) from events") == [(0,)]
    mapped.sql("insert into events values (1, 'a'), (2, 'a'), (3, 'b')")
    assert found(mapped, "select count(*) from events") == [(3,)]
    for _ in range(2):
        mapped.sql("insert overwrite sums select day, count(*) from events group by day")
        assert found(mapped, "select * from sums") == [("a", 2), ("b", 1)]
    assert found(mapped, "select id from events where day = 'b'") == [(3,)]
    # From itself: what it reads is of one commit, whatever is written meanwhile.
    mapped.sql("insert overwrite events select id + 10, day from events")
    assert ids(lake, KEY) == [11, 12, 13]
    last = lake.log(limit=1)[0].properties
    assert last["read"] == (f"{KEY}@{lake.log(limit=2)[1].id}",)


@pytest.mark.verify
def test_views_subqueries_caches_and_other_sessions_read_the_lake(
    mapped: SparkSession, lake: Lake, place: str
) -> None:
    mapped.sql(f"create table events (id long) using parquet location '{place}'")
    mapped.sql("insert into events values (1), (2)")
    mapped.sql("create temporary view seen as select id from events")
    queries = (
        "select id from events",
        "select id from seen",
        "with x as (select id from seen) select x.id from x join events using (id)",
        "select id from range(10) where id in (select id from events)",
        f"select id from parquet.`{place}`",
    )
    for query in (*queries, *queries):  # Spark keeps what it knows of a table after its first use
        assert found(mapped, query) == [(1,), (2,)], query
    mapped.catalog.cacheTable("events")
    assert mapped.table("events").count() == 2
    kept = mapped.table("events")
    write(rows(mapped, 7), KEY, format="parquet")  # by somebody else
    for query in queries:
        assert found(mapped, query) == [(1,), (2,), (7,), (8,), (9,)], query
    assert kept.count() == 2  # as it was when it was read
    mapped.catalog.uncacheTable("events")
    assert mapped.newSession().read.parquet(place).count() == 5
    mapped.sql("analyze table events compute statistics")
    assert mapped.table("events").count() == 5


def test_all_that_a_query_reads_is_of_one_commit(mapped: SparkSession, lake: Lake, place: str) -> None:
    mapped.sql(f"create table events (id long) using parquet location '{place}'")
    mapped.sql("insert into events values (1)")
    asked: list[str] = []

    class Slow(driver.Driver):
        """Between any two reads somebody commits."""

        def answer(self, step: str, request: str) -> str:
            told = super().answer(step, request)
            if step == "read":
                asked.append(request)
                rows_of_others.put(f"{len(asked)}.txt", b"")
            return told

    rows_of_others = lake.table("raw.others").files
    jvm: Any = mapped._jvm
    jvm.io.penstock.spark.JobDrivers.register(lake.id, Slow(lake.id, lambda _: lake))
    joined = mapped.sql("select * from events a join (select * from events) b using (id)")
    read_at = set(jvm.io.penstock.spark.TableFiles.origins(joined._jdf.queryExecution().analyzed()))
    assert len(asked) == 2
    assert len(read_at) == 1


def test_partitions_are_those_of_the_lake(mapped: SparkSession, lake: Lake, place: str) -> None:
    columns = "(id long, day string, hour int)"
    mapped.sql(f"create table parts {columns} using parquet partitioned by (day, hour) location '{place}'")
    mapped.sql("insert into parts values (1, 'mon', 1), (2, 'mon', 2), (3, 'tue/x', 1)")
    assert found(mapped, "select * from parts") == [(1, "mon", 1), (2, "mon", 2), (3, "tue/x", 1)]
    mapped.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        mapped.sql("insert overwrite parts select id + 100, day, hour from parts where hour = 2")
    finally:
        mapped.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert found(mapped, "select id from parts where day = 'mon'") == [(1,), (102,)]
    mapped.catalog.recoverPartitions("parts")
    mapped.catalog.refreshTable("parts")
    assert found(mapped, "select id, hour from parts") == [(1, 1), (3, 1), (102, 2)]
    mapped.sql("drop table parts")
    mapped.sql(f"create table parts (id long, day string, hour int) using parquet location '{place}'")
    told = refused(lambda: mapped.table("parts").count()).message
    assert "partitioned by day, hour" in told
    assert (
        "Create the table of the catalog again with the same partition columns: the rows stay in the lake"
        in told
    )
    mapped.sql("drop table parts")
    mapped.sql(f"create table parts {columns} using parquet partitioned by (day, hour) location '{place}'")
    assert found(mapped, "select id, hour from parts") == [(1, 1), (3, 1), (102, 2)]


def test_a_table_that_says_otherwise_than_the_lake_is_refused(
    mapped: SparkSession, lake: Lake, place: str
) -> None:
    write(rows(mapped, 0), KEY, format="parquet")
    mapped.sql(f"create table events (id long, note string) using parquet location '{place}'")
    assert "has no column note" in refused(lambda: mapped.table("events").count()).message
    mapped.sql(f"create table old (id long) using json location '{place}'")
    assert "files of the format 'parquet'" in refused(lambda: mapped.table("old").count()).message


# -- paths -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["parquet", "csv", *(pytest.param(name, marks=pytest.mark.verify) for name in ("orc", "json", "text"))],
)
def test_a_path_reads_in_every_format_what_was_written_there(
    mapped: SparkSession, place: str, name: str
) -> None:
    data = mapped.createDataFrame([("x",), ("y",)], "value string")
    data.write.mode("append").format(name).option("header", True).save(place)
    options = {"header": "true"} if name == "csv" else {}
    frames = (
        mapped.read.options(**options).format(name).load(place),
        mapped.read.options(**options).format(name).option("path", f"file://{place}/").load(),
        getattr(mapped.read.options(**options), name)(place),
        mapped.read.options(**options).option("penstock.table", KEY).format(name).load("/nowhere"),
        mapped.read.options(**options).schema("value string").format(name).load(place),
    )
    for one in frames:
        assert sorted(row.value for row in one.collect()) == ["x", "y"]
    assert not Path(place).exists()


def test_files_that_lie_at_a_path_are_never_taken_for_the_tables(
    mapped: SparkSession, lake: Lake, place: str, tmp_path: Path
) -> None:
    with penstock.open(tmp_path / "other") as other:
        rows(session(other), 900).write.parquet(place)
    mapped.sql(f"create table old (id long) using parquet location '{place}'")
    # The lake has no such table yet: its rows would seem to be gone.
    assert isinstance(refused(lambda: mapped.read.parquet(place)), KeyNotFound)
    for query in ("select * from old", "create temporary view v using parquet options (path '{place}')"):
        with pytest.raises(Exception, match="their rows would not be read"):
            mapped.sql(query.format(place=place)).collect()
    with pytest.raises(Exception, match="their rows would not be read"):
        mapped.sql("insert overwrite old select * from old")
    rows(mapped, 0).write.mode("append").parquet(place)
    assert sorted(row.id for row in mapped.read.parquet(place).collect()) == [0, 1, 2]
    assert found(mapped, "select id from old") == [(0,), (1,), (2,)]
    mapped.sql(f"create temporary view v using parquet options (path '{place}')")
    assert found(mapped, "select id from v") == [(0,), (1,), (2,)]
    assert "which cannot be read as a stream" in refused(lambda: mapped.readStream.table("old")).message


def test_folders_of_a_table_are_read_as_those_of_a_directory(mapped: SparkSession, place: str) -> None:
    data = mapped.createDataFrame([(1, "mon", 1), (2, "tue", 2)], "id long, day string, hour int")
    data.write.mode("append").partitionBy("day", "hour").parquet(place)
    assert mapped.read.parquet(place).columns == ["id", "day", "hour"]
    assert [tuple(row) for row in mapped.read.parquet(f"{place}/day=mon").collect()] == [(1, 1)]
    assert [tuple(row) for row in mapped.read.parquet(f"{place}/day=mon/hour=1/").collect()] == [(1,)]
    based = mapped.read.option("basePath", place)
    both = based.parquet(f"{place}/day=mon", f"{place}/day=tue")
    assert sorted(tuple(row) for row in both.collect()) == [(1, "mon", 1), (2, "tue", 2)]
    file = read(mapped, KEY, folder="day=mon").inputFiles()[0].rpartition("/")[2]
    assert [tuple(row) for row in mapped.read.parquet(f"{place}/day=mon/hour=1/{file}").collect()] == [(1,)]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("{place}/day=wed", "neither a file nor a folder 'day=wed'"),
        ("{place}/day=*", "the pattern"),
        ("{above}/*", "the pattern"),
        ("{above}", "and the other files separately"),
    ],
)
def test_paths_that_cannot_be_answered_are_refused(
    mapped: SparkSession, place: str, path: str, why: str
) -> None:
    rows(mapped, 0).write.mode("append").parquet(place)
    there = path.format(place=place, above=Path(place).parent)
    assert why in refused(lambda: mapped.read.parquet(there)).message
    Path(place).parent.mkdir(exist_ok=True)
    rows(mapped, 0).write.parquet(f"{place}-own")
    with pytest.raises(Exception, match="Read them one by one"):
        mapped.read.parquet(place, f"{place}-own")
    assert mapped.read.parquet(f"{place}-own").count() == 3
    assert mapped.read.option("penstock.table", KEY).parquet(there).count() == 3


def test_a_branch_a_tag_and_an_open_transaction_are_read(
    mapped: SparkSession, lake: Lake, place: str
) -> None:
    rows(mapped, 0).write.mode("append").parquet(place)
    lake.branch("dev").create()
    rows(mapped, 10).write.mode("append").option("penstock.branch", "dev").parquet(place)

    def count(**options: str) -> int:
        named = {f"penstock.{name}": value for name, value in options.items()}
        return int(mapped.read.options(**named).parquet(place).count())

    assert (count(), count(branch="dev"), count(ref="dev~1")) == (3, 6, 3)
    assert "give only one of" in refused(lambda: count(branch="dev", ref="main")).message
    with lake.transaction() as tx:
        assert count(branch=tx.branch) == 3
        assert [str(one.key) for one in reads(tx, lake)] == [KEY]


def test_streams_and_other_tables_are_refused_as_such(mapped: SparkSession, lake: Lake, place: str) -> None:
    rows(mapped, 0).write.mode("append").parquet(place)
    stream = mapped.readStream.schema("id long")
    assert "which cannot be read as a stream" in refused(lambda: stream.parquet(place)).message
    write(rows(mapped, 0), "raw.sums")
    assert isinstance(refused(lambda: mapped.read.parquet(f"{place}-sums")), NotManaged)
    assert "as 'json'" in refused(lambda: mapped.read.json(place)).message
    wild = mapped.read.option("pathGlobFilter", "*.x")
    assert "pathGlobFilter cannot be used" in refused(lambda: wild.parquet(place)).message


# -- names that there are not ------------------------------------------------------------------------------


def test_an_option_that_there_is_not_is_refused_wherever_it_stands(
    mapped: SparkSession, lake: Lake, place: str, tmp_path: Path
) -> None:
    own = str(tmp_path / "own")
    rows(mapped, 0).write.parquet(own)
    bad = {"penstock.tabel": KEY}
    mapped.sql(
        f"create table old (id long) using parquet options ('Penstock.Tabel'='{KEY}') location '{own}'"
    )
    out = str(tmp_path / "out")
    batches = mapped.readStream.schema("id long").parquet(own).writeStream.format("parquet")

    def run_stream() -> None:
        named = batches.options(**bad).option("checkpointLocation", str(tmp_path / "checkpoint"))
        named.trigger(availableNow=True).start(out).awaitTermination(60)

    for use in (
        lambda: rows(mapped, 0).write.options(**bad).mode("append").parquet(out),
        lambda: mapped.read.options(**bad).parquet(own),
        lambda: mapped.readStream.schema("id long").options(**bad).parquet(own),
        lambda: mapped.sql("insert into old values (1)"),
        lambda: mapped.table("old"),
        lambda: mapped.sql(
            f"insert overwrite directory '{out}' using csv options ('penstock.tabel'='x') select 1"
        ),
        lambda: rows(mapped, 0).write.option("penstock.branch", "main").parquet(out),
        run_stream,
    ):
        with pytest.raises(Exception, match=r"option 'penstock\.(tabel|branch)'") as caught:
            use()
        assert isinstance(unwrap(caught.value), InvalidRequest)
    assert not list(Path(out).glob("part-*"))
    assert jobs(lake) == []


def test_a_setting_that_there_is_not_is_refused(mapped: SparkSession, lake: Lake, place: str) -> None:
    with pytest.raises(InvalidRequest, match=r"unknown setting 'spark\.penstock\.tabels'"):
        session(lake, conf={"spark.penstock.tabels": "{}"})
    beside = mapped.newSession()
    beside.conf.set("spark.penstock.tabels", "{}")
    for use in (lambda: beside.read.parquet(place), lambda: rows(beside, 0).write.parquet(f"{place}-own")):
        assert "unknown setting 'spark.penstock.tabels'" in refused(use).message
