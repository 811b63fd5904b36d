"""Features of Delta tables that Delta Spark made or writes after a release: what a lake does to them is read
back by Delta Spark, and what it would not take is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.interop.delta.homes import Home, home_on
from tests.interop.delta.session import DeltaSpark
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
    name = f"delta.`{table.location}`"
    assert clustered_by(spark, name) == ["name"]
    lake.delta.release(KEY)
    spark.sql(f"INSERT INTO {name} VALUES (4, 'n4')")
    spark.sql(f"OPTIMIZE {name}")
    spark.sql(f"ALTER TABLE {name} CLUSTER BY (id)")
    lake.delta.adopt(table.location, KEY)
    table.append(rows(5))
    assert table.snapshot().clustering == (("id",),)
    assert ids_to_spark(spark, name) == ids(table) == [1, 2, 3, 4, 5]
