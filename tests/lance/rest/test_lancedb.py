"""LanceDB on a lake: its own client, unmodified, with the work done by itself or by the server."""

from __future__ import annotations

import lancedb
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lancedb.index import FTS, BTree
from lancedb.namespace import LanceNamespaceDBConnection

from penstock.lake.lake import Lake
from tests.lance.rest.talking import some_rows
from tests.server.running import Local

WHO = {"by itself": [], "by the server": ["QueryTable", "CreateTable"]}
WS = ["ws"]


@pytest.fixture(params=WHO, ids=list(WHO))
def database(request: pytest.FixtureRequest, server: Local) -> LanceNamespaceDBConnection:
    made = lancedb.connect_namespace(
        "rest",
        {"uri": f"{server.url}/lance"},
        namespace_client_pushdown_operations=WHO[request.param] or None,
    )
    made.create_namespace(WS)
    return made


def test_a_table_is_created_changed_searched_and_optimised(database: LanceNamespaceDBConnection) -> None:
    table = database.create_table("items", data=some_rows(*range(10)), namespace_path=WS)
    table.add(some_rows(20))
    table.update(where="id = 1", values={"text": "hello world"})
    table.delete("id = 2")
    changed = some_rows(3, 30)
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(changed)
    nearest = table.search([20.0, 1.0]).limit(1).to_list()
    assert [one["id"] for one in nearest] == [20]
    assert table.search().where("id >= 20").limit(9).to_arrow().num_rows == 2
    table.create_index("id", config=BTree())
    table.create_index("text", config=FTS())
    assert [one["id"] for one in table.search("hello", query_type="fts").limit(1).to_list()] == [1]
    table.optimize()
    again = database.open_table("items", namespace_path=WS)
    assert again.count_rows() == 11
    found = again.search().limit(99).to_arrow()
    assert sorted(found["id"].to_pylist()) == [0, 1, *range(3, 10), 20, 30]


def test_time_travel_and_restoring(database: LanceNamespaceDBConnection) -> None:
    table = database.create_table("items", data=some_rows(1), namespace_path=WS)
    table.add(some_rows(2))
    table.checkout(1)
    assert table.count_rows() == 1
    table.restore()
    assert table.version == 3
    assert database.open_table("items", namespace_path=WS).count_rows() == 1


def test_tables_are_listed_created_empty_overwritten_and_dropped(
    database: LanceNamespaceDBConnection, lake: Lake
) -> None:
    database.create_table("empty", schema=pa.schema([("a", pa.int64())]), namespace_path=WS)
    database.create_table("items", data=some_rows(1, 2), namespace_path=WS)
    assert list(database.list_tables(namespace_path=WS).tables) == ["empty", "items"]
    over = database.create_table("items", data=some_rows(7), namespace_path=WS, mode="overwrite")
    assert over.count_rows() == 1
    database.drop_table("items", namespace_path=WS)
    assert list(database.list_tables(namespace_path=WS).tables) == ["empty"]
    assert [str(one.key) for one in lake.tables()] == ["ws.empty"]
