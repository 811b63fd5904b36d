"""Rows of tables of every format, for people and the libraries that they use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import CommitConflict, InvalidRequest, KeyNotFound, NotManaged, PenstockError
from penstock.formats.delta.protocol.actions import Add, Remove
from penstock.formats.rows.arrow_types import pa, pc
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.nessie import IcebergTable
from tests.formats.delta.rows import inline_vector, vector_data
from tests.remote.serving import serving
from tests.rows.conftest import KEYS, ROWS

every_format = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


@every_format
def test_libraries_take_a_table_as_it_is(lake: Lake, key: str) -> None:
    table = lake.table(key)
    expected = ROWS.to_pylist()
    assert by_id(pa.table(table)) == expected
    assert by_id(pl.DataFrame(table).to_arrow()) == expected
    orders = table
    assert orders is table  # DuckDB finds it by the name of the variable
    assert duckdb.sql("select sum(id), count(*) from orders").fetchall() == [(10, 4)]
    assert by_id(table.to_arrow()) == expected
    assert by_id(table.scan().to_arrow()) == expected
    frame = table.to_pandas(["id"])
    assert type(frame).__module__.startswith("pandas")
    assert sorted(frame["id"]) == [1, 2, 3, 4]
    assert table.to_polars(where="id > 2").shape == (2, 3)


@every_format
def test_a_look_at_a_table(lake: Lake, key: str) -> None:
    table = lake.table(key)
    assert table.arrow_schema.names == ["id", "day", "amount"]
    assert [field.name for field in table.schema.fields] == ["id", "day", "amount"]
    assert table.head(3).num_rows == 3
    assert table.head(1, ["amount"]).schema.names == ["amount"]
    assert table.head(0).num_rows == 0
    assert table.count() == 4
    assert table.count("day = 'a'") == 2
    assert table.num_rows in (4, None)
    with pytest.raises(InvalidRequest, match="must be 0 or greater, got -1"):
        table.head(-1)


@every_format
def test_rows_of_a_commit_stay_and_a_branch_has_its_own(lake: Lake, key: str) -> None:
    before = lake.at("main")
    lake.branch("dev").create()
    scan = lake.table(key).scan()
    lake.table(key, "dev").write({"id": [5], "day": ["c"], "amount": [0.5]}, mode="append")
    assert lake.table(key).count() == 4
    assert lake.table(key, "dev").count() == 5
    lake.branch("dev").merge_into("main")
    assert lake.table(key).count() == 5
    assert before.table(key).count() == 4
    assert scan.count() == 4
    assert scan.to_arrow().num_rows == 4
    lake.restore(key, to=before.id)
    assert by_id(lake.table(key).to_arrow()) == ROWS.to_pylist()


@every_format
def test_rows_are_read_here_where_a_server_answers(lake: Lake, key: str) -> None:
    with serving(lake.catalogue) as served, penstock.open(served.url) as remote:
        table = remote.table(key)
        assert by_id(pa.table(table)) == ROWS.to_pylist()
        assert table.count() == 4
        assert table.count("id > 3") == 1


@every_format
def test_an_expression_of_arrow_chooses_rows(lake: Lake, key: str) -> None:
    table = lake.table(key)
    found = table.to_batches(["day"], pc.field("id") > 2).read_all()
    assert sorted(found["day"].to_pylist(), key=str) == [None, "b"]
    assert by_id(table.to_batches(where=pc.field("day") == "a").read_all()) == ROWS.to_pylist()[:2]


def test_what_is_no_table_has_no_rows(lake: Lake) -> None:
    with pytest.raises(KeyNotFound, match=r"(?s)there is no 'sales\.order' .*Did you mean 'sales\.orders'"):
        lake.table("sales.order").head()
    lake.branch().put("ice.t", IcebergTable(metadata_location="s3://b/m.json"))
    with pytest.raises(NotManaged, match=r"'ice\.t' is an Iceberg table, and the lake cannot read its rows"):
        lake.table("ice.t").count()
    with pytest.raises(InvalidRequest, match="has no column 'amout'; did you mean 'amount'"):
        lake.table("sales.orders").to_pandas(["amout"])


def test_a_table_is_written_from_another(lake: Lake) -> None:
    lake.table("sales.copy").write(lake.table("sales.orders"))
    lake.table("sales.copy").append(lake.table("sales.orders"))
    assert lake.table("sales.copy").count() == 8


# -- statistics ----------------------------------------------------------------------------------------------


def delete_rows(table: Table, positions: list[int]) -> None:
    """Delete rows of the first file by a deletion vector."""
    snapshot = table.snapshot()
    add = next(iter(snapshot.files()))
    vector = inline_vector(vector_data(positions), len(positions))
    changed = msgspec.structs.replace(add, deletion_vector=vector)
    table.commit(snapshot.version + 1, [_remove(add), changed])


def _remove(add: Add) -> Remove:
    return Remove(
        path=add.path,
        data_change=True,
        deletion_timestamp=1,
        partition_values=add.partition_values,
        deletion_vector=add.deletion_vector,
    )


def test_rows_are_counted_from_statistics_only_where_these_are_exact(lake: Lake) -> None:
    table = lake.create_table(
        "sales.vectored",
        data=pa.table({"id": [*range(10)]}),
        properties={"delta.enableDeletionVectors": "true"},
    )
    delete_rows(table, [2, 5])
    assert table.num_rows == table.count() == table.to_arrow().num_rows == 8
    snapshot = table.snapshot()
    assert (snapshot.num_rows, snapshot.count(), snapshot.head(3).num_rows) == (8, 8, 3)
    other = lake.create_table("sales.plain", data=pa.table({"id": [*range(10)]}))
    (add,) = other.snapshot().files()
    Path(other.location, "copy.parquet").write_bytes(Path(other.location, add.path).read_bytes())
    other.append_actions([msgspec.structs.replace(add, path="copy.parquet", stats=None)])
    assert (other.num_rows, other.count()) == (None, 20)


def test_files_are_left_out_by_what_their_statistics_say(lake: Lake) -> None:
    table = lake.create_table("sales.parts", data=pa.table({"id": [0], "day": ["a"]}), partition_by=["day"])
    for number in range(1, 6):
        table.append(pa.table({"id": [number * 10], "day": ["ab"[number % 2]]}))
    for add in list(table.snapshot().files("id = 30")):
        Path(table.location, add.path).unlink()
    assert by_id(table.to_batches(where=pc.field("id") > 30).read_all()) == [
        {"id": 40, "day": "a"},
        {"id": 50, "day": "b"},
    ]
    assert table.to_batches(where=pc.field("day") == "a").read_all().num_rows == 3
    with pytest.raises(PenstockError, match="there is no such file"):
        table.to_batches(where=pc.field("id") >= 30).read_all()


VALUES: dict[str, Any] = {
    "i": st.none() | st.integers(-3, 3),
    "s": st.none() | st.text("ab\u00e9\U0001f600", max_size=3),
    "f": st.none() | st.sampled_from([float("nan"), -0.0, 0.0, 1.5, float("inf")]),
    "b": st.none() | st.booleans(),
}
TYPES = pa.schema({"i": pa.int32(), "s": pa.string(), "f": pa.float64(), "b": pa.bool_()})
DEFAULTS = {"i": 0, "s": "", "f": 0.0, "b": False}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "null": lambda a, _: a.is_null(),
    "in": lambda a, b: a.isin([b]),
}


@given(
    st.lists(st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(
        st.sampled_from(list(VALUES)).flatmap(
            lambda name: st.tuples(st.just(name), st.sampled_from(list(COMPARE)), VALUES[name])
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["and", "or", "not"]),
)
def test_no_row_is_lost_by_what_statistics_say(
    files: list[list[dict[str, Any]]], parts: list[tuple[str, str, Any]], joined: str
) -> None:
    expressions = []
    for name, sign, value in parts:
        value = DEFAULTS[name] if value is None else value
        expressions.append(COMPARE[sign](pc.field(name), pa.scalar(value, TYPES.field(name).type)))
    condition = expressions[0]
    for expression in expressions[1:]:
        condition = condition & expression if joined == "and" else condition | expression
    if joined == "not":
        condition = ~condition
    with TemporaryDirectory() as folder, penstock.open(Path(folder, "lake"), create=True) as lake:
        table = lake.create_table("t", schema=TYPES)
        for rows in files:
            table.append(pa.Table.from_pylist(rows, TYPES))
        every = table.to_arrow()
        expected = sorted(map(repr, every.filter(condition).to_pylist()))
        assert sorted(map(repr, table.to_batches(where=condition).read_all().to_pylist())) == expected


# -- transactions --------------------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize("look", ["count", "head", "stream", "num_rows"])
def test_what_is_looked_at_in_a_transaction_counts_as_read(lake: Lake, key: str, look: str) -> None:
    def read(table: Table) -> object:
        if look == "stream":
            return pa.table(table).num_rows
        return table.num_rows if look == "num_rows" else getattr(table, look)()

    tx = lake.transaction("main", message="sum", isolation="serializable")
    read(tx.table(key))
    tx.table("sales.sums").write({"n": [1]})
    lake.table(key).write({"id": [9], "day": ["z"], "amount": [9.0]}, mode="append")
    with pytest.raises(CommitConflict):
        tx.land()
