"""Queries that must find nothing: which tables they name, and what is no query."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.spark.audit_queries import list_table_names


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
    assert [".".join(one.key) for one in list_table_names(sql)] == tables


@pytest.mark.parametrize("sql", ["drop table sales.orders", "insert into a.b values (1)", "", "-- nothing"])
def test_what_is_no_query_is_refused(sql: str) -> None:
    with pytest.raises(InvalidRequest):
        list_table_names(sql)
