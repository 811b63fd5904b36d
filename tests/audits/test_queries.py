"""Queries: what they name, what they may see, and how much of a table they hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from sys import getrefcount

import pytest

from penstock.errors import InvalidRequest, Unavailable
from penstock.formats.rows.arrow_types import pa
from penstock.formats.rows.reader import TableRows
from penstock.lake.audits.queries import AuditQuery, read_query
from penstock.lake.audits.query_run import SAMPLE_MAX, run_audit_query
from penstock.model.keys import Key

ORDERS = Key.parse("sales.orders")


def rows(key: Key, table: pa.Table) -> TableRows:
    return TableRows(key, table.to_reader)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select * from sales.orders o", ["sales.orders"]),
        ("from sales.orders join b using (id), a.b.c", ["sales.orders", "b", "a.b.c"]),
        ('select * from "sales.orders"', ["sales.orders"]),
        ('select * from "a.b.c.d"', ["a.b.c.d"]),
        ("with x as (select * from s.t) select * from x where n in (select n from X)", ["s.t"]),
        ("select * from s.t where n in (with y as (select 1 as n) select n from y)", ["s.t"]),
        ("select * from s.t, range(3), unnest([1, 2])", ["s.t"]),
        ("select * from s.t union all select * from s.u", ["s.t", "s.u"]),
        ("select (select max(n) from s.u) from s.t", ["s.u", "s.t"]),
    ],
    ids=["one", "three", "quoted", "deep", "given", "given inside", "functions", "union", "scalar"],
)
def test_a_query_tells_which_tables_it_names(sql: str, tables: list[str]) -> None:
    assert sorted(map(str, read_query(sql).tables)) == sorted(tables)


@pytest.mark.parametrize("name", ["n", "s.t", "c.s.t", '"c.s.t"', '"a.b.c.d"', '"odd ""name"""."x y"'])
def test_a_table_is_found_by_its_key_however_it_is_written(name: str) -> None:
    query = read_query(f"select v from {name} where v > 1")
    (key,) = query.tables
    found = run_audit_query(query, {key: rows(key, pa.table({"v": [1, 2]}))})
    assert found is not None
    assert str(found) == "it finds 1 row, such as v = 2"


@pytest.mark.parametrize("name", ["penstock_0", "penstock_1", "temp_1"])
def test_no_key_of_a_table_is_taken_by_something_else(name: str) -> None:
    other, key = Key.parse("s.o"), Key.parse(name)
    query = read_query(f"select n from {name} where n < 0 union all select n from s.o where n is null")
    assert sorted(query.tables) == sorted((key, other))
    for tables in (query.tables, query.tables[::-1]):
        there = {key: rows(key, pa.table({"n": [-5]})), other: rows(other, pa.table({"n": [1]}))}
        assert str(run_audit_query(AuditQuery(query.sql, tables), there)) == "it finds 1 row, such as n = -5"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("timestamp '290000-01-01'", "290000-01-01 00:00:00"),
        ("[timestamp '290000-01-01']", "['290000-01-01 00:00:00']"),
    ],
    ids=["far", "nested"],
)
def test_values_that_python_does_not_have_are_told_in_words(value: str, told: str) -> None:
    query = read_query(f"select {value} as v, n from sales.orders")
    found = run_audit_query(query, {ORDERS: rows(ORDERS, pa.table({"n": [1]}))})
    assert found is not None
    assert found.rows == ({"v": told, "n": "1"},)


def test_some_of_the_rows_are_told_and_whether_there_are_more() -> None:
    query = read_query("select * from sales.orders where n >= 0 order by n")
    many = pa.table({"n": range(1000), "text": ["x" * 500] * 1000})
    found = run_audit_query(query, {ORDERS: rows(ORDERS, many)})
    assert found is not None
    assert [row["n"] for row in found.rows] == [str(one) for one in range(SAMPLE_MAX)]
    assert str(found).startswith("it finds more than 5 rows, such as n = 0, text = 'xxx")
    assert len(str(found)) < 200
    assert run_audit_query(query, {ORDERS: rows(ORDERS, many.slice(0, 0))}) is None


def test_a_table_that_is_named_twice_is_read_twice() -> None:
    query = read_query("select a.n from sales.orders a join sales.orders b on a.n = b.n + 1")
    found = run_audit_query(query, {ORDERS: rows(ORDERS, pa.table({"n": [1, 2, 3]}))})
    assert found is not None
    assert len(found.rows) == 2


def test_a_query_sees_no_files_and_no_variables_of_the_program(tmp_path: Path) -> None:
    secret = pa.table({"n": [42]})
    (tmp_path / "secret.csv").write_text("n\n42\n")
    there = {ORDERS: rows(ORDERS, pa.table({"n": [1]}))}
    for what in (f"'{tmp_path / 'secret.csv'}'", f"read_csv('{tmp_path / 'secret.csv'}')", "secret"):
        with pytest.raises(InvalidRequest, match="the query failed"):
            run_audit_query(AuditQuery(f"select * from sales.orders, {what}", (ORDERS,)), there)
    assert secret.num_rows == 1


@pytest.mark.parametrize(
    "sql",
    ["set enable_external_access = true", "set lock_configuration = false", "install httpfs", "load httpfs"],
)
def test_a_query_cannot_open_what_is_closed(sql: str) -> None:
    there = {ORDERS: rows(ORDERS, pa.table({"n": [1]}))}
    with pytest.raises(InvalidRequest, match="the query failed"):
        run_audit_query(AuditQuery(sql, (ORDERS,)), there)


def test_rows_are_read_as_they_are_needed_and_not_held() -> None:
    schema = pa.schema([("n", pa.int64())])
    rows_each, batches_in_all = 2**17, 4096
    values = bytearray(rows_each * 8)
    begun_with = getrefcount(values)
    held: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(batches_in_all):
            column = pa.Array.from_buffers(pa.int64(), rows_each, [None, pa.py_buffer(values)])
            yield pa.record_batch([column], schema=schema)
            held.append(getrefcount(values) - begun_with)

    query = read_query("select sum(n) as s from sales.orders having s < 0")
    large = TableRows(ORDERS, lambda: pa.RecordBatchReader.from_batches(schema, batches()))
    assert run_audit_query(query, {ORDERS: large}) is None
    assert len(held) == batches_in_all
    read_ahead_by_arrow = 2**30
    assert max(held) * len(values) < read_ahead_by_arrow * 1.25


def test_what_a_table_raises_is_raised() -> None:
    def away() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[1]], names=["n"])
        raise Unavailable("storage does not answer")

    schema = pa.schema([("n", pa.int64())])
    gone = TableRows(ORDERS, lambda: pa.RecordBatchReader.from_batches(schema, away()))
    with pytest.raises(Unavailable, match="storage does not answer"):
        run_audit_query(read_query("select max(n) as n from sales.orders having n > 5"), {ORDERS: gone})


def test_a_column_that_is_not_there_is_told() -> None:
    there = {ORDERS: rows(ORDERS, pa.table({"n": [1]}))}
    with pytest.raises(InvalidRequest, match='"amount" not found'):
        run_audit_query(read_query("select * from sales.orders where amount < 0"), there)
