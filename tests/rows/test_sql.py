"""SQL over tables of all formats."""

from __future__ import annotations

import gc
import math
import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import (
    CommitConflict,
    Denied,
    InvalidRequest,
    KeyNotFound,
    NotManaged,
    PenstockError,
    ReferenceNotFound,
)
from penstock.formats.rows.arrow_types import pa
from penstock.lake.lake import Lake
from penstock.lake.sql import duckdb_limits
from penstock.lake.sql.datasets import RowDataset
from penstock.model.nessie import IcebergTable
from penstock.server.access import TokenGate
from tests.queue.hooks import wait_until
from tests.remote.serving import serving
from tests.rows.conftest import KEYS, ROWS

every_format = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())


@every_format
def test_a_query_reads_tables_of_every_format(lake: Lake, key: str) -> None:
    found = lake.sql(f"select id, amount * 2 as twice from {key} where day = 'a' order by id")
    assert found.fetchall() == [(1, 3.0), (2, None)]
    assert found.schema.names == ["id", "twice"]
    assert found.to_polars(["twice"], "id = 1").to_dicts() == [{"twice": 3.0}]
    assert found.count() == 2
    assert found.count("id > 1") == 1
    assert len(found.to_pandas()) == 2
    assert pl.DataFrame(found).shape == (2, 2)


def test_tables_of_all_formats_are_joined(lake: Lake) -> None:
    joined = " join ".join(f"{key} t{n}" for n, key in enumerate(KEYS.values()))
    for number in range(1, len(KEYS)):
        joined = joined.replace(f" t{number}", f" t{number} on t{number}.id = t0.id")
    assert lake.sql(f"select count(*), sum(t0.id) from {joined}").fetchall() == [(4, 10)]


def test_all_tables_are_of_one_commit_and_others_are_named_with_theirs(lake: Lake) -> None:
    lake.branch("dev").create()
    lake.branch("release/1.0").create()
    lake.table("sales.orders", "dev").append({"id": [5], "day": ["c"], "amount": [1.0]})
    counted = 'select count(*) from "sales.orders@dev" union all select count(*) from sales.orders'
    result = lake.sql(counted)
    assert result.fetchall() == [(5,), (4,)]
    lake.table("sales.orders").append({"id": [6], "day": ["c"], "amount": [1.0]})
    lake.table("sales.orders", "dev").append({"id": [7], "day": ["c"], "amount": [1.0]})
    assert result.fetchall() == [(5,), (4,)]  # the commits that it was asked at
    assert lake.sql(counted).fetchall() == [(6,), (5,)]
    assert lake.sql("select count(*) from sales.orders", ref="dev").fetchall() == [(6,)]
    assert lake.sql('select count(*) from sales."orders@release/1.0"').fetchall() == [(4,)]
    assert lake.at("main~1").sql("select count(*) from sales.orders").fetchall() == [(4,)]


def test_names_of_the_query_itself_are_no_tables(lake: Lake) -> None:
    assert lake.sql("with orders as (select 7 as n) select n from orders; -- once").fetchall() == [(7,)]
    assert lake.sql("select 1 /* ; */ ;").fetchall() == [(1,)]
    assert lake.sql("select * from range(2)").fetchall() == [(0,), (1,)]


def test_a_name_of_the_query_itself_may_be_that_of_the_table_behind_it(lake: Lake) -> None:
    lake.create_table("plain", data={"n": [1, 2, 3]})
    query = "with plain as (select * from plain where n > 1) select count(*) as c from plain"
    assert lake.sql(query).fetchall() == [(2,)]
    steps = "with recursive t(n) as (select 1 union all select n + 1 from t where n < 4) select max(n) from t"
    assert lake.sql(steps).fetchall() == [(4,)]


def test_a_number_that_no_double_holds_is_a_number(lake: Lake) -> None:
    assert lake.sql("select count(*) from sales.orders where id < 1e400").fetchall() == [(4,)]


def test_queries_of_others_have_bounds(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_limits, "LOOKED_MAX_BYTES", 1024**2)
    query = "select range from range(500_000) order by hash(range)"
    assert lake.sql(query).to_arrow().num_rows == 500_000
    with duckdb_limits.bound_queries(8 * 1024**2), pytest.raises(InvalidRequest) as refused:
        lake.sql(query).to_arrow()
    assert "needs more memory than it may use" in refused.value.message
    assert "SET " not in refused.value.message, "settings are locked"


def test_keys_of_any_length_and_letters_are_named(lake: Lake) -> None:
    for key in ("one", "a.b.c", "a.e.c.d", 'odd."na""me; drop"', "main.t"):
        lake.table(key).write({"n": [1]})
    assert lake.sql("select n from one").fetchall() == [(1,)]
    assert lake.sql("select n from a.b.c").fetchall() == [(1,)]
    assert lake.sql('select n from "a.e.c.d"').fetchall() == [(1,)]
    assert lake.sql("select n from main.t").fetchall() == [(1,)]
    assert lake.sql('select n from odd."na""me; drop"').fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("sql", "error", "says"),
    [
        (
            "select * from sales.order",
            KeyNotFound,
            r"no 'sales\.order' at 'main'\n  Did you mean 'sales\.orders'",
        ),
        ('select * from "sales.orders@maine"', ReferenceNotFound, "(?s)maine.*Did you mean 'main'"),
        ("select * from ice.t", NotManaged, "an Iceberg table, and the lake cannot read its rows"),
        ("select amout from sales.orders", InvalidRequest, 'Candidate bindings: "amount"'),
        ("delete from sales.orders", InvalidRequest, "a query must be a SELECT"),
        ("create table x as select 1", InvalidRequest, "a query must be a SELECT"),
        ("select 1; select 2", InvalidRequest, "expected one query, got 2"),
        ("", InvalidRequest, "expected one query, got 0"),
        ("selec", InvalidRequest, "syntax error"),
        ("select * from read_text('/etc/passwd')", InvalidRequest, "not the function 'read_text'"),
        ("select * from '/etc/passwd'", KeyNotFound, "there is no '/etc/passwd'"),
        (
            "select getvariable('x') from duckdb_settings()",
            InvalidRequest,
            "not the function 'duckdb_settings'",
        ),
        ("select current_setting('temp_directory')", InvalidRequest, "not the function 'current_setting'"),
        ("select main.Current_Setting('threads')", InvalidRequest, "not the function 'current_setting'"),
        (
            "with duckdb_databases as (select * from duckdb_databases) select * from duckdb_databases",
            KeyNotFound,
            "there is no 'duckdb_databases'",
        ),
        (
            'with a as (select * from "/etc/hosts.csv"), "/etc/hosts.csv" as (select 1) select * from a',
            KeyNotFound,
            "there is no '/etc/hosts.csv'",
        ),
        (
            "with recursive a as (select 1 as x from a union all select x + 1 from a) select * from a",
            KeyNotFound,
            "there is no 'a'",
        ),
        ('select * from "@dev"', InvalidRequest, "'@dev' is not a table"),
        ("select cast(day as int) from sales.orders", InvalidRequest, "Could not convert string"),
    ],
)
def test_what_is_wrong_with_a_query_is_told(
    lake: Lake, sql: str, error: type[PenstockError], says: str
) -> None:
    lake.branch().put("ice.t", IcebergTable(metadata_location="s3://b/m.json"))
    with pytest.raises(error, match=says):
        lake.sql(sql).to_arrow()


def test_only_what_a_query_needs_is_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[tuple[str, Any, bool]] = []
    read = RowDataset.read

    def watched(self: RowDataset, columns: Any, condition: Any) -> Any:
        scans.append((str(self._rows.key), columns, condition is not None))
        return read(self, columns, condition)

    monkeypatch.setattr(RowDataset, "read", watched)
    table = lake.table("sales.orders")
    for add in list(table.snapshot().files("id >= 3")):
        Path(table.location, add.path).unlink()
    assert (
        lake.sql("select day from sales.orders where id < 3 and day is not null").fetchall() == [("a",)] * 2
    )
    ((key, columns, is_filtered),) = scans
    assert key == "sales.orders"
    assert "amount" not in columns
    assert is_filtered
    with pytest.raises(PenstockError, match="there is no such file"):
        lake.sql("select day from sales.orders").fetchall()


def test_who_lets_go_of_an_answer_ends_the_query(lake: Lake) -> None:
    lake.sql("select * from range(1000000000)").to_batches()
    endless = lake.sql("select * from range(1000000000)").to_batches()
    assert endless.read_next_batch().num_rows > 0
    assert lake.sql("select * from range(1000000000)").head(3).num_rows == 3
    del endless
    gc.collect()
    wait_until(lambda: not any(thread.name.startswith("penstock-sql") for thread in threading.enumerate()))


VALUES = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3),
        "s": st.none() | st.text("ab\u00e9%", max_size=2),
        "f": st.none() | st.sampled_from([float("nan"), -0.0, 0.0, 1.5, float("inf"), -1.5]),
    }
)
TYPES = pa.schema({"i": pa.int64(), "s": pa.string(), "f": pa.float64()})
CONDITIONS = [
    "i > {i}", "i = {i} or s is null", "not (i < {i})", "i in (1, {i})", "s >= '{s}'", "s like '{s}%'",
    "f > {f}", "f <= {f}", "f = {f}", "f != {f}", "not f > {f}", "f is null and i >= {i}",
    "f in (0.0, 1.5)", "f > 1", "f <= 1",
    "i between {i} and 2",
]  # fmt: skip


@pytest.mark.parametrize(
    "format_name",
    [
        "delta",
        pytest.param("lance", marks=pytest.mark.verify),
        pytest.param("parquet", marks=pytest.mark.verify),
    ],
)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2),
    st.integers(-2, 2),
    st.sampled_from(["'nan'::double", "0.0", "1.5"]),
    st.sampled_from(["", "a", "b"]),
)
def test_a_query_finds_what_duckdb_finds_in_the_whole_table(
    tmp_path_factory: pytest.TempPathFactory,
    format_name: str,
    files: list[list[dict[str, Any]]],
    conditions: list[str],
    i: int,
    f: str,
    s: str,
) -> None:
    where = " and ".join(conditions).format(i=i, f=f, s=s)
    with penstock.open(tmp_path_factory.mktemp("lake") / "lake", create=True) as lake:
        for rows in files:
            lake.table("t").write(pa.Table.from_pylist(rows, TYPES), format=format_name)
        every = lake.table("t").to_arrow()
        found = lake.sql(f"select i, s, f from t where {where}").fetchall()
    with duckdb.connect() as own:
        # Of Arrow's own rows DuckDB would have Arrow choose some, which has other rules for NaN.
        own.register("every", every)
        own.execute("create table t as select * from every")
        expected = own.sql(f"select i, s, f from t where {where}").fetchall()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


REALS = [math.nan, -0.0, 0.0, 7.0, None]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("{} > 5", [0, 3]),
        ("not ({} <= 5)", [0, 3]),
        ("{} in (0.0, 7.0)", [1, 2, 3]),
        ("{} not in (0.0, 7.0)", [0]),
        ("{} >= 0 and {} < 'nan'::float", [1, 2, 3]),
        ("{} in (select {} from t where id < 2)", [0, 1, 2]),
    ],
)
def test_real_numbers_are_compared_as_in_tables_of_duckdb(
    lake: Lake, kind: Any, where: str, expected: list[int]
) -> None:
    reals = pa.array(REALS, kind)
    inside = pa.StructArray.from_arrays([reals], ["f"])
    lake.create_table("t", data=pa.table({"id": range(len(REALS)), "f": reals, "s": inside}))
    for column in ("f", "s.f"):
        found = lake.sql(f"select id from t where {where.format(column, column)} order by id").fetchall()
        assert [number for (number,) in found] == expected


# -- rights and transactions ---------------------------------------------------------------------------------


def test_who_may_not_read_a_table_may_not_query_it(lake: Lake) -> None:
    token = lake.create_token("analyst", "read:main:raw.*")
    with (
        serving(lake.catalogue, gate=TokenGate(lake.catalogue)) as served,
        penstock.open(served.url, token=token) as remote,
    ):
        assert remote.sql("select count(*) from raw.events").fetchall() == [(4,)]
        with pytest.raises((Denied, KeyNotFound)):
            remote.sql("select count(*) from sales.orders")


@every_format
def test_what_a_query_reads_in_a_transaction_counts_as_read(lake: Lake, key: str) -> None:
    tx = lake.transaction("main", message="sum", isolation="serializable")
    tx.table("sales.sums").write({"n": [tx.sql(f"select sum(id)::bigint from {key}").fetchall()[0][0]]})
    assert tx.sql("select n from sales.sums").fetchall() == [(10,)]
    lake.table(key).write(ROWS.slice(0, 1), mode="append")
    with pytest.raises(CommitConflict):
        tx.land()
