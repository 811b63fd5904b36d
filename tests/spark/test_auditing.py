"""Queries that must find nothing, asked on Spark of the tables of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import ChecksFailed
from penstock.formats.rows.arrow_types import pa
from penstock.lake.audits.audited_branch import Audit, AuditedBranch
from penstock.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_branch_is_audited_by_spark_and_published(lake: Lake, spark: SparkSession) -> None:
    lake.create_table("sales.orders", data=pa.table({"id": [1, 2], "amount": [1.0, 2.0]}))
    lake.create_table("sales.customers", data=pa.table({"id": [1, 2]}))
    lake.branch("dev").create()
    lake.table("sales.orders", "dev").append(pa.table({"id": [3], "amount": [-1.0]}))

    def counted(audited: AuditedBranch) -> bool:
        return bool(audited.read("sales.orders").count() == 3)

    checks: dict[str, Audit] = {
        "counted": counted,
        "positive": "select id, amount from sales.orders where orders.amount < 0",
        "known": "select o.id from sales.orders o left anti join sales.customers c on o.id = c.id",
        "typo": "select amont from sales.orders",
        "nothing": "select * from sales.nothing",
        "good": "select * from sales.customers where id > 2",
    }
    with pytest.raises(ChecksFailed) as failed:
        lake.publish("dev", checks=checks, spark=spark)
    told = {one["name"]: one["reason"] for one in failed.value.details["failed"]}
    assert [*told] == ["positive", "known", "typo", "nothing"]
    assert told["positive"] == "it finds 1 row, such as id = 3, amount = -1.0"
    assert told["known"] == "it finds 1 row, such as id = 3"
    assert "amont" in told["typo"]
    assert "\n" not in told["typo"]
    assert [one for one in spark.catalog.listTables() if one.name.startswith("penstock_")] == []
    lake.publish("dev", checks={"counted": counted, "good": checks["good"]}, spark=spark)
    assert lake.table("sales.orders").to_arrow().num_rows == 3
