"""Days are written in the calendar that all readers of a table know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.spark.job.jobs import CALENDARS
from penstock.lake.lake import Lake
from penstock.spark.writer import write
from tests.spark.reading_tables import ENGINES, using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("setting", "engine"), list(zip(CALENDARS, ENGINES, strict=True)))
def test_days_in_the_old_calendar_are_refused_and_other_rows_are_not(
    spark: SparkSession, lake: Lake, setting: str, engine: str
) -> None:
    spark = using(spark, engine)
    days = spark.sql("select array(named_struct('day', date '1500-01-01')) as days")
    spark.conf.set(setting, "legacy")
    with pytest.raises(InvalidRequest, match=f"{setting} is LEGACY"):
        write(days, "days")
    write(spark.range(1), "numbers")
    spark.conf.set(setting, "CORRECTED")
    write(days, "days")
    (row,) = lake.table("days").to_arrow().to_pylist()
    assert str(row["days"][0]["day"]) == "1500-01-01"
