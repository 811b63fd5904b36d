"""Conditions that are said to mean the same to Spark and to Penstock are true for the same rows."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.partition_conditions import evaluate_condition
from penstock.formats.delta.rows.file_writer import partition_text
from penstock.formats.rows.schema import Field, StructType
from penstock.formats.rows.spark_conditions import has_same_meaning_in_spark
from penstock.lake.lake import Lake
from penstock.spark.analysis import explain_analysis
from penstock.spark.reader import read
from penstock.spark.schemas import to_spark_schema
from tests.spark.reading_tables import VALUES
from tests.spark.test_read import CONDITIONS, RECORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = [
    "id = 3.0",
    "id < 2.5",
    "id = 1e0",
    "id = ' 3'",
    "id = '3.0'",
    "id != 1 and id is not null",
    "id not in (1, null)",
    "id > 9223372036854775807",
    "id < 9223372036854775808",
    "not (id = 1 or text = 'a')",
    "flag",
    "not flag",
    "flag != false",
    "flag = 'true'",
    "flag = 'yes'",
    "flag = 1",
    "day = '2026-1-2'",
    "day = '2026-01-02 12:00:00'",
    "day < '2026'",
    "day = ' 2026-01-02'",
    "day > timestamp '2026-01-01 12:00:00'",
    "day between '2026-01-01' and '2026-01-02'",
    "at = date '2026-01-01'",
    "at > '2026-01-01'",
    "at > '2026-01-01T00:00:00Z'",
    "local >= date '2026-01-01'",
    "local < '2026-01-01 02:00:00+01:00'",
    "text = 2",
    "text > 1",
    "text = ''",
    "text < 'b'",
    "text > 'Z'",
    "text like '2_26%'",
    "not text like '2%'",
    "text in ('2', 'x')",
    "real = 1",
    "real != 1",
    "real > '1e1'",
    "real = 'inf'",
    "real in (1, 'NaN')",
    "real in ('1', '2.0')",
    "id in (1, '02')",
    "not id in (1, '02') or flag is null",
    "`id`in ('03')",
    "day in ('2026-01-02', '2026-01-03')",
    "at in ('2026-01-01')",
    "flag in ('true')",
    "text in (1, '2')",
    "text in ('1', '2') and id = 1",
    "money between 0.05 and 0.1",
    "money > 0.099999",
    "money = 1",
    "id = true",
]


@pytest.mark.parametrize(("zone", "is_strict"), [("UTC", True), ("UTC", False), ("Europe/Berlin", True)])
def test_a_condition_that_means_the_same_is_true_for_the_same_rows(
    spark: SparkSession, lake: Lake, zone: str, is_strict: bool
) -> None:
    """Both ways: files are left out, and partitions replaced, by what Penstock makes of it."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    table = lake.create_table("t", data=pa.Table.from_pylist(RECORDS, VALUES))
    snapshot = table.snapshot()
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.ansi.enabled", is_strict)
    alike = [one for one in [*CONDITIONS, *ODD] if has_same_meaning_in_spark(one, snapshot.schema, zone)]
    assert len(alike) > 25
    answers = {row[0]: row[1:] for row in read(spark, "t").select("id", *map(F.expr, alike)).collect()}
    kinds = {one.name: str(one.type) for one in snapshot.schema.fields}
    for at, where in enumerate(alike):
        wanted = {number for number, truths in answers.items() if truths[at]}
        assert set(table.to_arrow(columns=["id"], where=where)["id"].to_pylist()) == wanted, where
        # The same rows as partitions, one each.
        for record in RECORDS:
            values = {name: partition_text(kinds[name], value) for name, value in record.items()}
            found = evaluate_condition(where, snapshot.metadata.schema_string, values)
            assert (found == {True}, True in found) == (record["id"] in wanted,) * 2, (where, record)


@pytest.mark.parametrize(
    ("where", "is_read"),
    [
        ("real > 1e400", False),
        ("real > -1.5E+999", False),
        (f"money > {'9' * 39}", False),
        (f"real < 0.{'1' * 40}", False),
        ("real > 1e300", True),
        (f"text = '{'9' * 39}e999'", True),
    ],
)
def test_numbers_that_spark_does_not_read_mean_nothing(
    started_spark: SparkSession, where: str, is_read: bool
) -> None:
    schema = StructType(
        (
            Field(name="real", type="double", nullable=True),
            Field(name="money", type="decimal(10,2)", nullable=True),
            Field(name="text", type="string", nullable=True),
        )
    )
    assert has_same_meaning_in_spark(where, schema, "UTC") is is_read
    rows = started_spark.createDataFrame([], to_spark_schema(schema))
    with nullcontext() if is_read else pytest.raises(InvalidRequest), explain_analysis():
        rows.where(where)
