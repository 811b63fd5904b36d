"""Queries that must find nothing, asked on Spark of the tables of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import ChecksFailed, InvalidRequest
from penstock.formats.delta.rows.arrow_types import pa
from penstock.lake.audits.audited import Audit, Audited
from penstock.lake.lake import Lake
from penstock.spark.auditing import tables_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select * from sales.orders", ["sales.orders"]),
        (
            "select * from sales.orders o left join `sales`.`new orders` using (id), x",
            ["sales.orders", "sales.new orders", "x"],
        ),
        ("with t as (select 1 from a.b) select f(x, y.z) from t, c.d order by 1, 2", ["a.b", "c.d"]),
        ("select 'from x.y' -- from q.r\n from range(3), s.t where n in (select n from u.v)", ["s.t", "u.v"]),
        ("/* from a.b */ (select * from s.t)", ["s.t"]),
    ],
    ids=["one", "joined", "given", "text", "brackets"],
)
def test_names_that_stand_for_tables_are_found(sql: str, tables: list[str]) -> None:
    assert [".".join(one.key) for one in tables_in(sql)] == tables


@pytest.mark.parametrize("sql", ["drop table sales.orders", "insert into a.b values (1)", "", "-- nothing"])
def test_what_is_no_query_is_refused(sql: str) -> None:
    with pytest.raises(InvalidRequest):
        tables_in(sql)


def test_a_branch_is_audited_by_spark_and_published(lake: Lake, spark: SparkSession) -> None:
    lake.create_table("sales.orders", data=pa.table({"id": [1, 2], "amount": [1.0, 2.0]}))
    lake.create_table("sales.customers", data=pa.table({"id": [1, 2]}))
    lake.branch("dev").create()
    lake.table("sales.orders", "dev").append(pa.table({"id": [3], "amount": [-1.0]}))

    def counted(audited: Audited) -> bool:
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
