"""Values of partition columns, with and without the jar, as Spark itself reads a directory of these paths."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.answers import TableLayout
from penstock.lake.lake import Lake
from penstock.spark.reader import read
from tests.spark.files_read.file_tables import keep, put
from tests.spark.reading_tables import in_each_engine, shown, using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = "spark.sql.timeType.enabled"
NULL = "__HIVE_DEFAULT_PARTITION__"
WHOLE = ["0", "-1", "+7", "007", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "٣"]
LARGE = [
    "9223372036854775808",
    "-12345678901234567890",
    "9" * 38,
    "9" * 39,
    "1e5",
    "1E+3",
    "5.",
    "0e3",
    "1.5e1",
]
REAL = ["1.5", "1.0", ".5", "1e-2", "1e38", "1e400", "NaN", "-Infinity", "1d", "2F", "0x1p3", " 1", "1 "]
DAYS = ["2026-11-14", "2024-02-29", "0001-01-01"]
MOMENTS = ["2026-11-14 10:00:00", "2026-11-14 10:00:00.5", "1969-12-31 23:59:59"]
CLOCKS = ["10:00:00", "23:59:59.25", "00:00:00.123456"]
TEXTS = [
    *(
        "abc",
        "true",
        "null",
        "nan",
        "0x10",
        "1_000",
        "1L",
        "-",
        "+",
        "1e",
        "ü",
        "a b",
        "100%",
        "a=b",
        "a#b?c&d+e",
    ),
    *(
        "2026-02-30",
        "2023-02-29",
        "2026-13-01",
        "2026-1-4",
        "2026-11",
        "2026-11-14 ",
        "2026-11-14Z",
        "10000-01-01",
    ),
    *("2026-11-14T10:00:00", "2026-11-14 10:00", "2026-11-14 25:00:00", "2026-11-14 10:00:00.123"),
    *("10:00", "24:00:00", "10:00:00.", "10:00:00.1234567", "%31"),
]
KINDS = [WHOLE, LARGE, REAL, DAYS, MOMENTS, CLOCKS, TEXTS, [NULL]]
AT_ONCE = 16
"""So many columns in one table: each is a case, and a read costs what it costs."""


def escaped(text: str) -> str:
    """As Spark's writer names a folder. One value is left escaped that need not be."""
    return (
        text
        if text == "%31"
        else "".join(quote(one, safe="") if one in "\"#%'*/:=?\\{[]^" else one for one in text)
    )


def cases() -> list[list[str]]:
    """Every value on its own, and mixtures of all kinds."""
    chosen = random.Random(14)
    alone = [[one] for kind in KINDS for one in kind]
    pairs = [
        [chosen.choice(one), chosen.choice(other)] for at, one in enumerate(KINDS) for other in KINDS[at:]
    ]
    return alone + pairs + [[chosen.choice(chosen.choice(KINDS)) for _ in range(3)] for _ in range(24)]


def directory_of(columns: Sequence[Sequence[str]], root: Path) -> Path:
    """A directory with one partition column for each of these lists of values."""
    most = max(map(len, columns))
    rows = [
        [f"c{at}={escaped(one[row % len(one)])}" for at, one in enumerate(columns)] for row in range(most)
    ]
    return put(root, {f"{'/'.join(folders)}/x{at}.txt": f"{at}\n" for at, folders in enumerate(rows)})


@in_each_engine
def test_types_and_values_are_those_of_spark(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str
) -> None:
    using(spark, engine).conf.set(
        TIMES, "true"
    )  # without it, not even the rows that Spark reads can be shown
    everything = cases()
    chunks = [everything[at : at + AT_ONCE] for at in range(0, len(everything), AT_ONCE)]
    for at, chunk in enumerate(chunks if engine == "jar" else chunks[::4]):
        directory = directory_of(chunk, tmp_path / str(at))
        keep(lake, directory, f"t{at}")
        expected = spark.read.text(str(directory))
        found = read(spark, f"t{at}", format="text")
        assert found.schema == expected.schema, chunk
        # NaN equals nothing, and is told as what it is.
        assert [repr(row) for row in shown(found)] == [repr(row) for row in shown(expected)]


@in_each_engine
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.sources.partitionColumnTypeInference.enabled", "false"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
        ("spark.sql.session.timeZone", "America/New_York"),
        ("spark.sql.ansi.enabled", "false"),
    ],
    ids=["no inference", "times without zones", "another zone", "not ANSI"],
)
def test_settings_of_the_session_hold(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str, name: str, value: str
) -> None:
    directory = directory_of([["007", "8"], MOMENTS, DAYS[:2] + MOMENTS[:1], ["1.5", NULL]], tmp_path / "d")
    keep(lake, directory)
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        expected = spark.read.text(str(directory))
        found = read(using(spark, engine), "raw.events", format="text")
        assert (found.schema, shown(found)) == (expected.schema, shown(expected))
    finally:
        spark.conf.set(name, before)


@in_each_engine
def test_a_known_schema_says_the_types(spark: SparkSession, lake: Lake, tmp_path: Path, engine: str) -> None:
    kinds = (
        "a STRING, b BIGINT, c DECIMAL(10,2), d TIMESTAMP, e DATE, f BOOLEAN, g DOUBLE, h BINARY, i SMALLINT"
    )
    values = [["007"], ["7"], ["1.50"], ["2026-11-14"], ["2026-11-14"], ["true"], ["1"], ["ab"], ["7", NULL]]
    directory = directory_of(values, tmp_path / "d")
    names = kinds.replace(",2", ";2").split(", ")
    wanted = ", ".join(f"c{at} {one.partition(' ')[2]}".replace(";2", ",2") for at, one in enumerate(names))
    schema = spark.createDataFrame([], f"value STRING, {wanted}").schema
    keep(lake, directory, layout=TableLayout(format="text", schema=schema.json()))
    expected = spark.read.schema(schema).text(str(directory))
    found = read(using(spark, engine), "raw.events")
    assert (found.schema, shown(found)) == (expected.schema, shown(expected))
    assert shown(read(spark, "raw.events", schema=f"value STRING, {wanted}")) == shown(expected)


def test_times_of_day_take_a_setting_without_the_jar(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    keep(lake, directory_of([CLOCKS[:1]], tmp_path / "d"))
    using(spark, "fallback").conf.set(TIMES, "false")
    with pytest.raises(InvalidRequest, match=f"need {TIMES}=true in the session"):
        read(spark, "raw.events", format="text")
    rows = read(spark, "raw.events", format="text", schema="value STRING, c0 STRING")
    assert shown(rows) == [("0", "10:00:00")]


@in_each_engine
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_value_that_is_none_of_the_known_type_is_an_error(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str, ansi: str
) -> None:
    from pyspark.errors import PySparkException

    keep(lake, put(tmp_path / "d", {"day=someday/x.txt": "1\n"}))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises((InvalidRequest, PySparkException), match="someday"):
            read(using(spark, engine), "raw.events", format="text", schema="value STRING, day DATE").collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")
