"""Features of Delta tables that Delta Spark made or writes after a release: what a lake does to them is read
back by Delta Spark, and what it would not take is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.interop.delta.homes import Home, home_on
from tests.interop.delta.session import DeltaSpark, SparkError
from tests.servers.process import Missing

KEY = "orders"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    try:
        started = DeltaSpark(tmp_path_factory.mktemp("spark"))
    except Missing as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Home:
    return home_on("disk", request)


@pytest.fixture
def lake(disk: Home) -> Iterator[Lake]:
    with disk.lake() as lake:
        yield lake


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"n{one}" for one in numbers]})


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def ids_to_spark(spark: DeltaSpark, name: str, where: str = "true") -> list[int]:
    return sorted(row[0] for row in spark.sql(f"SELECT id FROM {name} WHERE {where}"))


# -- clustering --------------------------------------------------------------------------------------------


def clustered_by(spark: DeltaSpark, name: str) -> list[str]:
    (row,) = spark.sql(f"DESCRIBE DETAIL {name}")
    found: list[str] = row[8]
    return found


def test_a_table_clustered_by_spark_lives_in_a_lake_and_goes_back(
    spark: DeltaSpark, disk: Home, lake: Lake
) -> None:
    location = f"{disk.tables}/clustered"
    name = f"delta.`{location}`"
    spark.sql(
        f"CREATE TABLE clustered (id BIGINT, name STRING) USING delta CLUSTER BY (name) LOCATION '{location}'"
    )
    spark.sql("INSERT INTO clustered VALUES (1, 'n1'), (2, 'n2')")
    spark.sql("OPTIMIZE clustered")
    lake.delta.adopt(location, KEY)
    table = lake.table(KEY)
    table.append(rows(3))
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(4))
    table.append(rows(5))
    dev.merge_into("main")
    table.overwrite(rows(6))
    table.restore(version=table.version - 1)
    lake.delta.checkpoint(KEY)
    table.backfill_to_version()
    assert ids_to_spark(spark, name) == ids(table) == [1, 2, 3, 4, 5]
    assert ids_to_spark(spark, name, "name = 'n4'") == [4]
    assert clustered_by(spark, name) == ["name"]
    lake.delta.release(KEY)
    spark.sql("INSERT INTO clustered VALUES (7, 'n7')")
    spark.sql("OPTIMIZE clustered FULL")
    assert ids_to_spark(spark, name) == [1, 2, 3, 4, 5, 7]
    spark.sql("DROP TABLE clustered")


def test_a_table_that_a_lake_made_clustered_is_clustered_by_spark_once_it_is_released(
    spark: DeltaSpark, lake: Lake
) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2), cluster_by="name")
    table.append(rows(3))
    table.backfill_to_version()
    location = table.location
    name = f"delta.`{location}`"
    assert clustered_by(spark, name) == ["name"]
    lake.delta.release(KEY)
    spark.sql(f"INSERT INTO {name} VALUES (4, 'n4')")
    spark.sql(f"OPTIMIZE {name}")
    spark.sql(f"ALTER TABLE {name} CLUSTER BY (id)")
    lake.delta.adopt(location, KEY)
    table.append(rows(5))
    table.backfill_to_version()
    assert table.snapshot().clustering == (("id",),)
    assert ids_to_spark(spark, name) == ids(table) == [1, 2, 3, 4, 5]


# -- constraints -------------------------------------------------------------------------------------------


def test_constraints_of_spark_are_kept_by_a_lake_and_constraints_of_a_lake_by_spark(
    spark: DeltaSpark, disk: Home, lake: Lake
) -> None:
    location = f"{disk.tables}/constrained"
    name = f"delta.`{location}`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) USING delta")
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT positive CHECK (id > 0)")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'n1')")
    lake.delta.adopt(location, KEY)
    table = lake.table(KEY)
    table.append(rows(2))
    with pytest.raises(InvalidRequest, match="'positive'"):
        table.append(rows(-2))
    assert ids_to_spark(spark, name) == [1, 2]
    lake.delta.release(KEY)
    made = lake.create_table("made", data=rows(1), properties={"delta.constraints.small": "id < 100"})
    made.backfill_to_version()
    other = made.location
    assert ids_to_spark(spark, f"delta.`{other}`") == [1]
    lake.delta.release("made")
    for place, condition, wrong in ((location, "positive", -1), (other, "small", 100)):
        with pytest.raises(SparkError, match=f"(?i){condition}"):
            spark.sql(f"INSERT INTO delta.`{place}` VALUES ({wrong}, 'x')")
        spark.sql(f"INSERT INTO delta.`{place}` VALUES (3, 'n3')")
    assert ids_to_spark(spark, name) == [1, 2, 3]


# -- mapped columns ----------------------------------------------------------------------------------------


def test_a_table_whose_columns_spark_mapped_lives_in_a_lake_and_goes_back(
    spark: DeltaSpark, disk: Home, lake: Lake
) -> None:
    for mode in ("name", "id"):
        location = f"{disk.tables}/{mode}"
        name = f"delta.`{location}`"
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, title STRING, gone STRING, day STRING, s STRUCT<x: INT>)"
            f" USING delta PARTITIONED BY (day) TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
        )
        spark.sql(f"INSERT INTO {name} VALUES (1, 'a', 'x', 'mon', struct(1))")
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN title TO name")
        spark.sql(f"ALTER TABLE {name} DROP COLUMN gone")
        key = f"mapped.{mode}"
        lake.delta.adopt(location, key)
        table = lake.table(key)
        made = rows(2).append_column("day", [["tue"]]).append_column("s", [[{"x": 2}]])
        table.append(made)
        dev = lake.branch(f"dev-{mode}").create()
        lake.delta.add_columns(key, pa.schema([("more", pa.int64())]), branch=dev.name)
        lake.table(key, dev.name).append(rows(3).append_column("more", [[30]]))
        if mode == "name":  # both sides have given the same id
            lake.delta.add_columns(key, pa.schema([("ours", pa.string())]))
        table.overwrite(rows(4).append_column("day", [["tue"]]), partitions={"day": "tue"})
        dev.merge_into("main")
        lake.delta.checkpoint(key)
        table.backfill_to_version()
        wanted = [[1, "a", "mon", 1, None], [3, "n3", None, None, 30], [4, "n4", "tue", None, None]]
        asked = f"SELECT id, name, day, s.x, more FROM {name} ORDER BY id"
        assert spark.sql(asked) == wanted
        assert ids_to_spark(spark, name, "day = 'tue' AND id > 0") == [4]
        lake.delta.release(key)
        spark.sql(f"INSERT INTO {name} (id, day) VALUES (5, 'wed')")
        spark.sql(f"ALTER TABLE {name} ADD COLUMN last STRING")
        spark.sql(f"UPDATE {name} SET name = 'z' WHERE id = 4")
        assert ids_to_spark(spark, name) == [1, 3, 4, 5]
        lake.delta.adopt(location, key)
        assert ids(lake.table(key)) == [1, 3, 4, 5]


def test_spark_reads_and_writes_a_table_whose_columns_a_lake_mapped(spark: DeltaSpark, lake: Lake) -> None:
    for mode in ("name", "id"):
        key = f"made.{mode}"
        table = lake.delta.create(key, data=rows(1), properties={"delta.columnMapping.mode": mode})
        lake.delta.rename_column(key, "name", "odd name")
        table.append(pa.table({"id": [2], "odd name": ["b"]}))
        lake.delta.drop_column(key, "odd name")
        lake.delta.add_columns(key, pa.schema([("odd name", pa.string())]))
        table.append(pa.table({"id": [3], "odd name": ["c"]}))
        table.backfill_to_version()
        name = f"delta.`{table.location}`"
        assert spark.sql(f"SELECT id, `odd name` FROM {name} ORDER BY id") == [[1, None], [2, None], [3, "c"]]
        lake.delta.release(key)
        spark.sql(f"INSERT INTO {name} VALUES (4, 'd')")
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN `odd name` TO plain")
        spark.sql(f"OPTIMIZE {name}")
        assert ids_to_spark(spark, name, "plain IN ('c', 'd')") == [3, 4]
