"""Statistics from footers are those that the rows themselves give, as far as a footer tells."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.lake.footer_stats import encode_footer_stats
from penstock.formats.delta.lake.job_outputs import JobTarget
from penstock.formats.delta.rows.stats import Statistics, StatsLeaf
from penstock.formats.delta.spark.job import jobs
from penstock.formats.rows.schema import parse_schema
from penstock.lake.lake import Lake
from penstock.spark import write
from tests.spark.reading_tables import in_each_engine, using
from tests.spark.writing_cases import seen, seen_by_others

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "b byte, s short, i int, l long, f float, d double, flag boolean, text string, raw binary, day date, "
    "at timestamp, local timestamp_ntz, small decimal(7,2), middle decimal(16,4), large decimal(38,10), "
    "part struct<x: int, y: struct<z: string>>"
)
TEXTS = [
    "",
    "a",
    "z" * 31,
    "z" * 32,
    "z" * 33,
    "ü" * 40,
    "\x7f" * 50,
    "\U0010ffff" * 40,
    "a\U0010ffff" * 300,
    "q" * 4000,
]


@pytest.mark.verify
@in_each_engine
def test_footers_tell_what_the_rows_do(spark: SparkSession, lake: Lake, tmp_path: Path, engine: str) -> None:
    spark = using(spark, engine)
    df = spark.createDataFrame([_row(random.Random(seed)) for seed in range(60)], SCHEMA).repartition(8)
    leaves = _leaves(df.schema.json())
    place = lake.places.open_place(str(tmp_path / "table"))
    files = jobs.write_rows(df, JobTarget(place=place, columns=tuple(one.path for one in leaves)), uuid4())
    assert sum(one.rows for one in files) == 60
    for file in files:
        data = pq.read_table(f"{place.url}/{file.name}")
        assert json.loads(encode_footer_stats(file, leaves)) == _computed(data, leaves)


@in_each_engine
def test_columns_of_which_a_footer_cannot_tell_have_no_bounds(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str
) -> None:
    spark = using(spark, engine)
    df = spark.sql(
        "select double('nan') as nan, double('inf') as inf,"
        " repeat('x', 5000) as long, cast(null as int) as none, cast(unhex('FF') as string) as odd, 1L as one"
    )
    leaves = [StatsLeaf((name,), kind, (name,)) for name, kind in _leaves_by_name(df.schema.json()).items()]
    place = lake.places.open_place(str(tmp_path / "table"))
    (file,) = jobs.write_rows(df, JobTarget(place=place, columns=tuple(one.path for one in leaves)), uuid4())
    told = json.loads(encode_footer_stats(file, leaves))
    assert told["minValues"] == told["maxValues"] == {"one": 1}
    assert told["nullCount"]["none"] == 1
    assert {name: count for name, count in told["nullCount"].items() if count} == {"none": 1}


@pytest.mark.parametrize("legacy", ["false", "true"])
def test_decimals_are_kept_as_numbers_whatever_the_session_says(
    spark: SparkSession, lake: Lake, tmp_path: Path, legacy: str
) -> None:
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", legacy)
    df = spark.sql("select cast(v as decimal(9,2)) as small from values (-1.5), (2.25) as t(v)").coalesce(1)
    target = JobTarget(place=lake.places.open_place(str(tmp_path / "table")), columns=(("small",),))
    (file,) = jobs.write_rows(df, target, uuid4())
    assert [one.type for one in file.columns] == ["INT32"]
    told = json.loads(encode_footer_stats(file, [StatsLeaf(("small",), "decimal(9,2)", ("small",))]))
    assert (told["minValues"], told["maxValues"]) == ({"small": -1.5}, {"small": 2.25})


def test_readers_that_prune_by_the_statistics_miss_no_row(spark: SparkSession, lake: Lake) -> None:
    rows = [_row(random.Random(seed)) for seed in range(40)]
    df = spark.createDataFrame(rows, SCHEMA).drop("raw", "part").repartition(6)
    write(df, "demo.pruned", properties={"delta.dataSkippingNumIndexedCols": "-1"})
    conditions = [
        "l > 0", "i < -5", "text >= 'z'", "text > 'ü'", "d > 1.0", "f <= 0", "small > 0", "large < 0",
        "\"at\" >= TIMESTAMPTZ '2000-01-01 00:00:00Z'", "day < DATE '1990-01-01'",
        "middle between -50 and 50",
    ]  # fmt: skip
    everything = pa.Table.from_pylist(seen(lake, "demo.pruned"), lake.table("demo.pruned").to_arrow().schema)
    import duckdb

    with duckdb.connect() as connection:
        connection.register("everything", everything)
        for where in conditions:
            counted = connection.sql(f"SELECT count(*) FROM everything WHERE {where}").fetchone()
            assert counted is not None
            assert 0 < counted[0] < 40, where
            assert len(seen_by_others(lake, "demo.pruned", where)) == counted[0], where


def _row(dice: random.Random) -> tuple[Any, ...]:
    def maybe(value: Any) -> Any:
        return None if dice.random() < 0.2 else value

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=dice.randint(-(10**15), 10**15))
    return (
        maybe(dice.randint(-128, 127)),
        maybe(dice.randint(-(2**15), 2**15 - 1)),
        maybe(dice.randint(-10, 10)),
        maybe(dice.choice([-(2**63), -1, 0, 1, 2**63 - 1])),
        maybe(dice.choice([-1.5, 0.1, 3.4e38])),
        maybe(dice.choice([-1e300, -0.5, 2.5, 1e300])),
        maybe(dice.random() < 0.5),
        maybe(dice.choice(TEXTS)),
        maybe(b"\x00\xff"),
        maybe(date(1970, 1, 1) + timedelta(days=dice.randint(-9000, 9000))),
        maybe(moment),
        maybe(moment.replace(tzinfo=None)),
        maybe(Decimal(dice.randint(-(10**7) + 1, 10**7 - 1)).scaleb(-2)),
        maybe(Decimal(dice.randint(-(10**6), 10**6)).scaleb(-4)),
        maybe(Decimal(dice.randint(-(10**28), 10**28)).scaleb(-10)),
        maybe((maybe(dice.randint(-5, 5)), maybe((maybe(dice.choice(TEXTS)),)))),
    )


def _leaves(schema: str) -> list[StatsLeaf]:
    plain = [one for one in parse_schema(schema).fields if isinstance(one.type, str)]
    parts = {("part", "x"): "integer", ("part", "y", "z"): "string"}
    inside = [StatsLeaf(path, kind, path) for path, kind in parts.items()]
    return [*(StatsLeaf((one.name,), one.type, (one.name,)) for one in plain), *inside]


def _leaves_by_name(schema: str) -> dict[str, Any]:
    return {one.name: one.type for one in parse_schema(schema).fields}


def _computed(data: Any, leaves: list[StatsLeaf]) -> Any:
    """What the rows themselves give, less the bounds of what a footer has none of."""
    found = Statistics(leaves)
    for batch in data.combine_chunks().to_batches():
        found.add_batch(batch)
    told = json.loads(found.encode_stats())
    for name in ("text", "f", "d"):
        values = [one for one in data.column(name).to_pylist() if one is not None]
        if any(
            len(str(one).encode()) > 4096 or (isinstance(one, float) and math.isnan(one)) for one in values
        ):
            del told["minValues"][name], told["maxValues"][name]
    return told
