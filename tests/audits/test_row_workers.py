"""What a branch expects, asked by row workers as a server has it: the same of every format, within limits."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import pytest

from penstock.errors import CommitVetoed, InvalidRequest
from penstock.formats.rows.arrow_types import pa
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from tests.audits.lakes import POSITIVE, ids, orders
from tests.server.running import shared_pool


@pytest.fixture
def lake(lake: Lake) -> Iterator[Lake]:
    """A lake that asks as a server does."""
    assert isinstance(lake.catalogue, Embedded)
    lake.catalogue.engine.pool = shared_pool()
    yield lake
    lake.catalogue.engine.pool = None


def test_rows_of_a_delta_table_that_nobody_has_yet_are_asked(lake: Lake) -> None:
    lake.expect("positive", POSITIVE)
    with pytest.raises(CommitVetoed, match=r"it finds 1 row, such as id = -3, amount = -3\.0"):
        lake.table("sales.orders").append(orders(-3))
    with lake.transaction() as transaction:
        transaction.table("sales.orders").append(orders(3))
        transaction.table("sales.orders").append(orders(4))
    assert ids(lake) == [1, 2, 3, 4]


def test_rows_of_a_lance_table_that_nobody_has_yet_are_asked(lake: Lake) -> None:
    lake.branch().create_namespace("ws")
    lance.write_dataset(orders(1), namespace_client=lake.lance(), table_id=["ws", "items"])
    lake.expect("positive items", "select id from ws.items where amount < 0")
    with pytest.raises(CommitVetoed, match="it finds 1 row, such as id = -3"):
        lake.table("ws.items").append(orders(-3))
    lake.table("ws.items").append(orders(3))
    assert ids(lake, key="ws.items") == [1, 3]


def test_files_that_nobody_has_yet_are_asked(lake: Lake) -> None:
    lake.branch().create_namespace("ws")
    files = lake.table("ws.files").files
    files.write({"a.csv": b"id,amount\n1,1\n"})
    lake.expect("positive files", "select id from ws.files where amount < 0")
    with pytest.raises(CommitVetoed, match="it finds 1 row, such as id = 2"):
        files.write({"b.csv": b"id,amount\n2,-1\n"})
    files.write({"b.csv": b"id,amount\n2,1\n"})


def test_a_table_without_columns_is_not_asked(lake: Lake) -> None:
    lake.branch().create_namespace("ws")
    lake.lance().declare_table({"id": ["ws", "items"]})
    lake.expect("positive items", "select id from ws.items where amount < 0")
    lance.write_dataset(pa.table({"other": [1]}), namespace_client=lake.lance(), table_id=["ws", "later"])


def test_a_query_that_cannot_be_asked_says_why(lake: Lake) -> None:
    with pytest.raises((CommitVetoed, InvalidRequest), match='"nowhere" not found'):
        lake.expect("odd", "select nowhere from sales.orders")
