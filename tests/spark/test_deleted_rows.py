"""Rows that deletion vectors name are left out of all that Spark reads, whatever part of a file it reads and
in which order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace
from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

from penstock.formats.delta.lake import scan_plan
from penstock.formats.delta.lake.file_columns import FileColumns
from penstock.formats.delta.rows.deletion_words import BitmapWords, pack_words
from penstock.formats.delta.spark.scan import deletions, scans
from penstock.lake.lake import Lake
from penstock.spark import changes, delete, read, update, write
from tests.formats.delta.logs import add
from tests.formats.delta.rows import inline_vector, vector_data
from tests.spark.reading_tables import adopted, in_each_engine, shown, using, with_vectors, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 20_000


def put_large_file(root: Path, name: str, start: int, rows: int = ROWS) -> Any:
    """A file of several row groups, whose pages can be read one by one."""
    root.mkdir(parents=True, exist_ok=True)
    data = pa.table({"id": range(start, start + rows), "other": range(rows)})
    pq.write_table(
        data, root / name, row_group_size=rows // 4, data_page_size=2000, write_page_index=True,
        use_dictionary=False, compression="none",
    )  # fmt: skip
    stats = f'{{"numRecords":{rows}}}'
    return add(name, size=(root / name).stat().st_size, stats=stats), data


def make_table(lake: Lake, root: Path, deleted: list[set[int]], rows: int = ROWS) -> set[int]:
    """A table of files of so many rows; returns the ids that are left."""
    files, left, data = [], set(), pa.table({})
    for number, gone in enumerate(deleted):
        file, data = put_large_file(root, f"{number} a%20ü.parquet", number * rows, rows)
        vector = inline_vector(vector_data(gone), len(gone)) if gone else None
        files.append(replace(file, path=f"{number}%20a%2520%C3%BC.parquet", deletion_vector=vector))
        left |= {number * rows + row for row in range(rows) if row not in gone}
    adopted(lake, root, [[*with_vectors(data), *files]])
    return left


def ids(rows: DataFrame) -> list[int]:
    return sorted(rows.select("id").toArrow()["id"].to_pylist())


def plan_of(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().executedPlan().toString())


@in_each_engine
@pytest.mark.parametrize("vectorized", [True, False])
def test_whatever_part_of_a_file_is_read(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str, vectorized: bool
) -> None:
    choice = random.Random(7)
    gone = [set(choice.sample(range(ROWS), 700)), set(), set(range(4990, 15_010)), {0, ROWS - 1}]
    left = make_table(lake, tmp_path / "t", gone)
    spark.conf.set("spark.sql.files.maxPartitionBytes", 60_000)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", str(vectorized).lower())
    rows = read(using(spark, engine), "t")
    assert rows.rdd.getNumPartitions() > 4  # each file is read in parts
    assert ids(rows) == ids(rows.coalesce(1)) == sorted(left)
    for low, high in ((3000, 3100), (19_990, 20_010), (44_000, 56_000), (79_000, 80_000)):
        expected = sorted(one for one in left if low <= one <= high)
        assert ids(rows.where(f"id BETWEEN {low} AND {high}")) == expected
    # Some pages of a group are passed over, and rows are numbered all the same.
    snapshot = lake.table("t").snapshot()
    numbered = scans.read_rows(spark, snapshot, snapshot.files(), numbered=True)
    found = shown(numbered.where("other BETWEEN 6000 AND 6005 AND id < 20000").select("id", scans.ROW))
    assert found == [(row, row) for row in range(6000, 6006) if row not in gone[0]]


@in_each_engine
def test_rows_in_any_order_are_joined(spark: SparkSession, engine: str) -> None:
    choice = random.Random(11)
    named = {
        2: {0, 1, 63, 64, 700}, 5: set(choice.sample(range(5000), 900)), 6: set(range(128, 1000)),
        9: {2**33 + 5, 2**33 + 64},
    }  # fmt: skip
    words = {}
    for file, rows in named.items():
        if max(rows) < 10_000:
            words[file] = BitmapWords.from_bitmap(
                sum(1 << row for row in rows).to_bytes(10_048 // 8, "little")
            )
        else:
            numbers = pa.array([row >> 6 for row in sorted(rows)], pa.int64())
            bits = pa.array([1 << (row & 63) for row in sorted(rows)], pa.int64())
            words[file] = BitmapWords.from_numbered_words(numbers, bits)
    asked = [(file, row) for file in range(11) for row in (*choice.sample(range(6000), 800), 2**33 + 5)]
    asked += [(9, 2**33 + row) for row in range(130)]
    choice.shuffle(asked)
    df = using(spark, engine).createDataFrame(asked, "file int, row long").coalesce(1)
    for is_inverse in (False, True):
        picked = deletions.join_rows(spark, df, words, "file", "row", is_inverse=is_inverse)
        expected = [pair for pair in asked if (pair[1] in named.get(pair[0], ())) != is_inverse]
        assert shown(picked) == sorted(expected, key=repr)


def words_of(rows: set[int], count: int) -> BitmapWords:
    bitmap = sum(1 << row for row in rows).to_bytes((count + 63) // 64 * 8, "little")
    return BitmapWords.from_bitmap(bitmap)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"spark.sql.parquet.columnarReaderBatchSize": "100"},  # batches begin within words
        {"spark.sql.parquet.columnarReaderBatchSize": "1"},
        {"spark.sql.codegen.maxFields": "1"},
        {"spark.sql.parquet.enableVectorizedReader": "false"},
    ],
    ids=["batches", "batches of 100", "batches of one", "rows of batches", "rows"],
)
def test_given_rows_of_files_are_read_and_the_others(
    spark: SparkSession, lake: Lake, tmp_path: Path, settings: dict[str, str]
) -> None:
    """Single rows, runs, first and last ones, words that are full, and files of which nothing is named."""
    choice, count = random.Random(5), 5000
    runs = {row for start in choice.sample(range(count), 9) for row in range(start, min(start + 150, count))}
    named = [
        {0}, {count - 1}, {0, 63, 64, 99, 100, 101, count - 1}, set(range(count)), set(range(1, count)), runs,
        set(choice.sample(range(count), 40)), set(choice.sample(range(count), 2000)), set(range(64, 128)),
    ]  # fmt: skip
    make_table(lake, tmp_path / "t", [set() for _ in named], count)
    for name, value in {"spark.sql.files.maxPartitionBytes": "30000", **settings}.items():
        spark.conf.set(name, value)
    snapshot = lake.table("t").snapshot()
    files = sorted(snapshot.files(), key=lambda file: file.path)
    columns = FileColumns(snapshot.metadata)
    for is_inverse in (False, True):
        pieces = [
            scans.FilePiece(file, picked=words_of(rows, count), is_inverse=is_inverse)
            for file, rows in zip(files, named, strict=True)
        ]
        found = scans.read_pieces(spark, snapshot.place, columns, pieces, numbered=True)
        expected = [
            (number * count + row, number, row)
            for number, rows in enumerate(named)
            for row in range(count)
            if (row in rows) != is_inverse
        ]
        assert found.select("id", scan_plan.FILE, scans.ROW).orderBy("id").collect() == expected
        # Of pages, some are passed over.
        few = found.where("other BETWEEN 60 AND 130").select("id", scan_plan.FILE, scans.ROW)
        assert few.orderBy("id").collect() == [row for row in expected if 60 <= row[2] <= 130]


def test_rows_that_spark_numbers_by_itself_are_told_apart(spark: SparkSession) -> None:
    """What is private to Spark's reader may have another name in its next version: batches have all numbers
    then, as Spark put them there."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    sql, package = jvm.org.apache.spark.sql, "io.penstock.spark"
    loader = getattr(jvm, f"{package}.MarkedRows")._java_lang_class.getClassLoader()

    def array(kind: Any, values: tuple[Any, ...]) -> Any:
        made = gateway.new_array(kind, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made

    def open_up(named: list[Any]) -> Any:
        (member,) = named
        member.setAccessible(True)
        return member

    def call(name: str, target: Any, *given: Any) -> Any:
        methods = loader.loadClass(f"{package}.MarkedRows").getDeclaredMethods()
        method = open_up([one for one in methods if one.getName() == name])
        return method.invoke(target, array(jvm.Object, given))

    numbers = [3, 4, 63, 64, 65, 8000, 8001]
    words = bytes(pack_words([(7, words_of({4, 64, 8001, 9000}, 10_000))]))
    constants = sql.types.StructType.fromDDL("file int")
    column = sql.execution.vectorized.OnHeapColumnVector(len(numbers), sql.types.DataTypes.LongType)
    for at, number in enumerate(numbers):
        column.putLong(at, number)
    for are_left_out, file, expected in (
        (True, 7, [3, 63, 65, 8000]), (False, 7, [4, 64, 8001]), (True, 6, numbers), (False, 6, None),
    ):  # fmt: skip
        marked = call("unpack", None, spark._jsparkSession, words, "file", are_left_out)
        values = sql.catalyst.expressions.GenericInternalRow(array(jvm.Object, (file,)))
        of_file = call("of", marked, values, constants)
        batch = sql.vectorized.ColumnarBatch(array(sql.vectorized.ColumnVector, (column,)), len(numbers))
        given = jvm.scala.jdk.javaapi.CollectionConverters.asScala(jvm.java.util.List.of(batch).iterator())
        makers = loader.loadClass(f"{package}.SelectedParquet$SelectedRows").getDeclaredConstructors()
        rows = open_up(list(makers)).newInstance(array(jvm.Object, (given, None, 0, 1, None, of_file)))
        if expected is None:
            assert not rows.hasNext()
            continue
        shown = rows.next()
        assert [shown.column(0).getLong(at) for at in range(shown.numRows())] == expected


def test_deleted_rows_are_not_joined(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    left = make_table(lake, tmp_path / "t", [set(range(0, 2_000_000, 2))], 2_000_000)
    snapshot = lake.table("t").snapshot()
    for rows in (read(spark, "t"), scans.read_rows(spark, snapshot, snapshot.files())):
        assert "Join" not in plan_of(rows)
        assert rows.selectExpr("count(*)", "sum(id)").collect() == [(len(left), sum(left))]


def test_more_words_than_are_sent_are_joined(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = make_table(lake, tmp_path / "t", [{1, 2, 70}, {3}])
    monkeypatch.setattr(scan_plan, "WORDS_SENT_MAX", 3)
    assert "Join" not in plan_of(read(spark, "t"))
    monkeypatch.setattr(scan_plan, "WORDS_SENT_MAX", 2)
    monkeypatch.setattr(deletions, "BROADCAST_MAX_WORDS", 2)
    rows = read(spark, "t")
    assert "SortMergeJoin" in plan_of(rows)
    assert ids(rows) == ids(spark.table("lake.t")) == sorted(left)


def test_what_is_cached_of_a_table_is_of_the_rows_that_were_deleted_then(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    left = make_table(lake, tmp_path / "t", [{1}, {3}])
    cached = read(spark, "t").cache()
    try:
        assert cached.count() == len(left)
        assert "InMemoryTableScan" in plan_of(read(spark, "t"))
        delete(spark, "t", "id = 10")
        assert "InMemoryTableScan" not in plan_of(read(spark, "t"))
        assert (cached.count(), read(spark, "t").count()) == (len(left), len(left) - 1)
    finally:
        cached.unpersist()


def test_a_condition_is_not_asked_of_deleted_rows(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    make_table(lake, tmp_path / "t", [{7}])
    spark.conf.set("spark.sql.ansi.enabled", "true")
    assert read(spark, "t").where("id < 10 AND 1 / (id - 7) > 0").count() == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.codegen.maxFields": "1"},
        {"spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"},
        {
            "spark.sql.parquet.filterPushdown": "false",
            "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
        },
    ],
    ids=["rows, not batches", "other code", "nothing pushed"],
)
def test_rows_are_left_out_of_every_kind_of_query(
    spark: SparkSession, lake: Lake, tmp_path: Path, settings: dict[str, str]
) -> None:
    left = make_table(lake, tmp_path / "t", [{1, 5000, 19_999}, {0, 7}])
    for name, value in {"spark.sql.files.maxPartitionBytes": "60000", **settings}.items():
        spark.conf.set(name, value)
    rows = read(spark, "t")
    assert rows.count() == len(left)
    one, other = rows.alias("one"), rows.alias("other")
    joined = one.join(other, "id").selectExpr("count(*)", "sum(one.other)", "sum(other.other)").collect()
    total = sum(row % ROWS for row in left)
    assert joined == [(len(left), total, total)]
    query = """
        SELECT count(*), sum(n), count(DISTINCT part)
        FROM (
            SELECT id % 10 AS part, count(*) AS n FROM lake.t
            WHERE id IN (SELECT id FROM lake.t) GROUP BY part
        )
    """
    assert spark.sql(query).collect() == [(10, len(left), 10)]
    assert rows.orderBy(F.desc("id")).limit(2).select("id").collect() == [(39_999,), (39_998,)]
    assert rows.where("other = 19999").count() == 1


def test_a_part_of_a_nested_column_is_read_alone(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    inner = pa.array([{"a": row, "b": str(row), "c": [{"d": row, "e": row}]} for row in range(300)])
    data, root = pa.table({"id": range(300), "s": inner}), tmp_path / "t"
    begin = with_vectors(data)
    file = written(lake, root, begin[1], data)
    adopted(lake, root, [[*begin, replace(file, deletion_vector=inline_vector(vector_data({5, 299}), 2))]])
    rows = read(spark, "t").selectExpr("s.a", "s.c.d")
    assert "ReadSchema: struct<s:struct<a:bigint,c:array<struct<d:bigint>>>>\n" in plan_of(rows)
    assert shown(rows) == sorted([(row, [row]) for row in range(299) if row != 5], key=repr)
    assert read(spark, "t").where("s.a BETWEEN 4 AND 6").selectExpr("s.b").collect() == [("4",), ("6",)]


EVERY_TYPE = """
    id, id % 7 = 0 AS flag, CAST(id % 100 AS BYTE) AS b, CAST(id AS SHORT) AS s, CAST(id AS INT) AS i,
    CAST(id AS FLOAT) / 3 AS f, id / 7D AS d, CAST(id AS DECIMAL(7, 2)) AS small,
    CAST(id AS DECIMAL(18, 3)) AS middle, CAST(id AS DECIMAL(38, 5)) AS large,
    IF(id % 3 = 0, NULL, concat('text ', id % 10)) AS word, CAST(CAST(id AS STRING) AS BINARY) AS bytes,
    date_add(DATE'2026-01-01', CAST(id % 400 AS INT)) AS day, timestamp_seconds(id * 1000) AS at,
    CAST(timestamp_seconds(id) AS TIMESTAMP_NTZ) AS local,
    IF(id % 5 = 0, NULL, array(id, NULL, id + 1)) AS numbers, map(concat('k', id % 4), id) AS pairs,
    IF(id % 11 = 0, NULL, named_struct(
        'a', IF(id % 13 = 0, NULL, id), 'inner', named_struct('t', concat('t', id), 'l', array(id))
    )) AS parts,
    array(named_struct('x', id, 'y', CAST(id AS STRING))) AS structs, map(id, array(id)) AS lists,
    parse_json(concat('{"n": ', id, ', "t": [1, "', id % 5, '"]}')) AS v
"""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"spark.sql.columnVector.offheap.enabled": "true"},
        {"spark.sql.codegen.wholeStage": "false"},
        {"spark.sql.codegen.maxFields": "20"},  # the columns fit, but not the number of a row, too
        {"spark.sql.parquet.enableVectorizedReader": "false"},
    ],
    ids=["batches", "off heap", "other code", "rows of batches", "rows"],
)
def test_values_of_every_type_are_those_of_the_rows_that_are_left(
    spark: SparkSession, lake: Lake, settings: dict[str, str]
) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    rows = spark.sql(f"SELECT {EVERY_TYPE} FROM range(0, 6000, 1, 2)")
    write(rows, "t", properties=properties)
    delete(spark, "t", "id % 97 = 5 OR id BETWEEN 1000 AND 1999 OR id = 5999")
    assert all(file.deletion_vector for file in lake.table("t").snapshot().files())
    for name, value in settings.items():
        spark.conf.set(name, value)
    found = read(spark, "t")
    left = rows.where("NOT (id % 97 = 5 OR id BETWEEN 1000 AND 1999 OR id = 5999)")
    assert shown(found.selectExpr("to_json(struct(*))")) == shown(left.selectExpr("to_json(struct(*))"))
    # Parts of columns are read by code of their own.
    for column in ("word", "parts.inner.t", "structs[0].y"):
        query = f"bit_xor(xxhash64({column}, id))"
        assert found.selectExpr(query).collect() == left.selectExpr(query).collect(), column


def test_a_file_of_which_all_rows_are_deleted_is_not_read(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """Spark may be told to answer by the partition values of files alone, and takes each to have rows."""
    begin = with_vectors(pa.table({"id": range(100), "part": range(100)}))
    metadata = replace(begin[1], partition_columns=("part",))
    files = []
    for part, gone in ((1, {3}), (2, set(range(100))), (3, set[int]())):
        file = written(lake, tmp_path / "t", begin[1], pa.table({"id": range(100)}))
        vector = inline_vector(vector_data(gone), len(gone)) if gone else None
        files.append(replace(file, partition_values={"part": str(part)}, deletion_vector=vector))
    adopted(lake, tmp_path / "t", [[begin[0], metadata, *files]])
    for setting in ("false", "true"):
        spark.conf.set("spark.sql.optimizer.metadataOnly", setting)
        rows = read(spark, "t")
        assert shown(rows.select("part").distinct()) == [(1,), (3,)]
        assert rows.where("part <= 2").selectExpr("max(part)").collect() == [(1,)]
        assert spark.sql("SELECT max(part) FROM lake.t WHERE part <= 2").collect() == [(1,)]
        assert rows.count() == 199


def test_where_a_row_is_in_its_file_is_told_of_rows_that_are_left(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    make_table(lake, tmp_path / "t", [{1, 3, 4}, {0}], 50)
    rows = read(spark, "t").selectExpr("id", "_metadata.row_index AS place")
    expected = [(row, row % 50) for row in range(100) if row not in (1, 3, 4, 50)]
    assert rows.orderBy("id").collect() == expected


@pytest.mark.parametrize("vectorized", [True, False])
def test_rows_of_files_in_parts_keep_their_ids_and_their_place_in_the_feed(
    spark: SparkSession, lake: Lake, vectorized: bool
) -> None:
    features = ("enableDeletionVectors", "enableRowTracking", "enableChangeDataFeed")
    properties = {f"delta.{feature}": "true" for feature in features}
    lake.delta.create("t", schema=pa.schema({"id": pa.int64(), "v": pa.int64()}), properties=properties)
    first = spark.range(0, ROWS, 1, 1).selectExpr("id", "0L AS v")
    write(first, "t", options={"parquet.block.size": "20000", "parquet.block.size.row.check.max": "1000"})
    (file,) = Path(lake.table("t").location).glob("*.parquet")
    assert pq.read_metadata(file).num_row_groups > 3
    spark.conf.set("spark.sql.files.maxPartitionBytes", 20_000)
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", str(vectorized).lower())
    delete(spark, "t", "id % 500 = 3")
    update(spark, "t", {"v": "1"}, "id % 500 = 4")
    delete(spark, "t", "id % 500 = 4 AND id > 10000")
    expected = {row: int(row % 500 == 4) for row in range(ROWS) if row % 500 != 3}
    expected = {row: v for row, v in expected.items() if not (v and row > 10_000)}
    rows = read(spark, "t", columns=["id", "v", "_row_id", "_row_commit_version"])
    assert {row[0]: row[1] for row in rows.collect()} == expected
    assert {tuple(row) for row in rows.selectExpr("id - _row_id", "v", "_row_commit_version").collect()} == {
        (0, 0, 1), (0, 1, 3),
    }  # fmt: skip
    feed = changes(spark, "t", 2).groupBy("_commit_version", "_change_type").agg(F.count("*"), F.sum("id"))
    threes, fours = (range(start, ROWS, 500) for start in (3, 4))
    late = [row for row in fours if row > 10_000]
    assert shown(feed) == [
        (2, "delete", len(threes), sum(threes)),
        (3, "update_postimage", len(fours), sum(fours)),
        (3, "update_preimage", len(fours), sum(fours)),
        (4, "delete", len(late), sum(late)),
    ]


def test_where_rows_are_is_told_of_those_that_are_left(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    make_table(lake, tmp_path / "t", [{1}, {0, 3}], 300)
    found = read(spark, "t").groupBy("_metadata.file_name").count().collect()
    assert sorted(row["count"] for row in found) == [298, 299]
    assert all(row["file_name"].endswith(".parquet") for row in found)


def test_words_do_not_go_with_each_task(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    rows = 1_000_000
    left = make_table(lake, tmp_path / "t", [set(range(0, rows, 50))], rows)
    read_rows = read(spark, "t").selectExpr("sum(id)")
    jvm: Any = spark._jvm
    task = jvm.java.io.ByteArrayOutputStream()
    jvm.java.io.ObjectOutputStream(task).writeObject(read_rows._jdf.queryExecution().toRdd())
    assert task.size() < 100_000
    assert read_rows.collect() == [(sum(left),)]


def test_what_numbers_rows_fast_is_where_it_is_looked_for(spark: SparkSession) -> None:
    """In each Spark. In another one rows are numbered by Spark alone, which takes as long as a column."""
    package = "org.apache.spark.sql.execution.datasources"
    classes: Any = getattr(spark._jvm, "java.lang.Class")
    for name, field in (
        (f"{package}.RecordReaderIterator", "rowReader"),
        (f"{package}.parquet.VectorizedParquetRecordReader", "rowIndexGenerator"),
        (f"{package}.parquet.VectorizedParquetRecordReader", "returnColumnarBatch"),
        (f"{package}.parquet.ParquetRowIndexUtil$RowIndexGenerator", "rowIndexColumnIdx"),
    ):
        assert classes.forName(name).getDeclaredField(field).getName() == field
