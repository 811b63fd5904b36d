"""A session whose commit protocol somebody changed under a job: the job says so, and commits nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.spark import jar
from penstock.spark.writer import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARKS_OWN = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"


def test_a_job_that_another_commit_protocol_wrote_says_which_setting_to_set_back(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spark.range(1), "numbers")
    head, before = lake.branch().head, spark.conf.get(jar.COMMIT_PROTOCOL_SETTING)
    monkeypatch.setattr(jar, "has_protocol", lambda _: True)  # it was, when the job began
    spark.conf.set(jar.COMMIT_PROTOCOL_SETTING, SPARKS_OWN)
    try:
        with pytest.raises(
            InvalidRequest, match=f"commit protocol {SPARKS_OWN} instead of Penstock's; nothing was committed"
        ) as refused:
            write(spark.range(1), "numbers")
    finally:
        spark.conf.set(jar.COMMIT_PROTOCOL_SETTING, str(before))
    assert (
        f"spark.conf.set('{jar.COMMIT_PROTOCOL_SETTING}', '{jar.COMMIT_PROTOCOL}')" in refused.value.message
    )
    assert lake.branch().head == head
    write(spark.range(1), "numbers")
