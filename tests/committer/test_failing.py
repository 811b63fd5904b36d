"""Jobs that fail when part of their files is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from tests.spark.files.cases import by_folder, head, jobs, paths, rows, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_properties_4_5_a_dynamic_overwrite_that_fails_leaves_every_partition_and_no_marker(
    spark: SparkSession, lake: Lake
) -> None:
    """It fails at its last partition, when the files of others are written."""
    save(rows(spark, 0, parts=(1, 2, 3)), partition_by="p")
    before, had = head(lake), by_folder(lake, "raw.events")
    failing = rows(spark, 100, parts=(1, 2, 3)).selectExpr(
        "if(p = 3, raise_error('no such row'), id) as id", "p"
    )
    with pytest.raises(Exception, match="no such row"):
        save(
            failing,
            mode="overwrite",
            partition_by="p",
            partition_overwrite="dynamic",
            success_file=True,
        )
    assert head(lake) == before
    assert by_folder(lake, "raw.events") == had
    assert "_SUCCESS" not in paths(lake, "raw.events")
    assert jobs(lake)[0].state is JobState.ABORTED
