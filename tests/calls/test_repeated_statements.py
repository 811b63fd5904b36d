"""Statements of SQL whose answer a driver without Python has lost, and sends again: each is done once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.lake.sql_catalog.procedures import PROCEDURES
from penstock.lake.sql_catalog.steps import READS, WITHOUT_PYTHON
from penstock.model.references import Kind
from penstock.server.native import PREFIX
from tests.disks import disks_are_not_waited_for
from tests.remote.serving import Served, serving
from tests.transactions.pipelines import ids, rows

__all__ = ["disks_are_not_waited_for"]

COLUMNS: Final = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
ORDERS: Final = ("sales", "orders")
STATEMENT: Final = "a" * 32

STATEMENTS: Final[dict[str, dict[str, Any]]] = {
    "create": {"names": ("sales", "new"), "schema": COLUMNS},
    "alter": {
        "names": ORDERS,
        "changes": [{"kind": "SetProperty", "name": "team", "value": "a"}],
    },
    "drop": {"names": ORDERS},
    "rename": {"names": ORDERS, "to": ("sales", "renamed")},
    "create_namespace": {"names": ("new",)},
    "alter_namespace": {"names": ("sales",), "properties": {"team": "a"}},
    "drop_namespace": {"names": ("sales",), "cascade": True},
    "write_view": {
        "names": ("sales", "recent"),
        "mode": "create",
        "view": {"text": "SELECT id FROM sales.orders", "columns": COLUMNS},
    },
}
CALLS: Final[dict[str, dict[str, Any]]] = {
    "create_branch": {"name": "new"},
    "create_tag": {"name": "v1", "from_ref": "dev"},
    "drop_branch": {"name": "dev"},
    "drop_tag": {"name": "old", "if_exists": True},
    "assign_branch": {"name": "dev", "to_ref": "main"},
    "assign_tag": {"name": "old", "to_ref": "dev"},
    "merge_branch": {"branch": "dev"},
    "revert": {"ref": "main"},
    "restore": {"table": "sales.orders", "to_ref": "main~1"},
    "publish": {"branch": "dev"},
    "begin_transaction": {},
}
OTHERWISE: Final = {"use_reference", "commit_transaction", "rollback_transaction", "optimize"}
"""Procedures that write nothing, are tried below, or are refused."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="ann") as lake:
        lake.table("sales.orders").write(rows(1))
        lake.branch("dev").create()
        lake.tag("old").create()
        lake.table("sales.orders").write(rows(2))
        lake.table("sales.orders", "dev").write(rows(3))
        yield lake


def state_of(lake: Lake) -> dict[str, Any]:
    """What a repeated statement would change once more."""
    references = [*lake.references(Kind.BRANCH), *lake.references(Kind.TAG)]
    open_transactions = lake.transactions()
    return {
        "heads": {reference.name: reference.id for reference in references},
        "tables": [str(table.key) for table in lake.tables()],
        "transactions": {info.branch: lake.branch(info.branch).head for info in open_transactions},
    }


def ask_twice(server: Served, lake: Lake, step: str, request: dict[str, Any]) -> Any:
    """The answer of a statement. Sent again, it is answered alike, and changes nothing more."""
    before = state_of(lake)
    first = server.ask("POST", f"{PREFIX}/spark-catalog/{step}", request)
    after = state_of(lake)
    assert first.status == 200, first.json
    assert after != before
    second = server.ask("POST", f"{PREFIX}/spark-catalog/{step}", request)
    assert (second.status, second.json) == (200, first.json)
    assert state_of(lake) == after
    return first.json


def test_every_statement_that_writes_has_an_example() -> None:
    others = {"call", "maintain", "commit_rows", "truncate"}  # below, safe by itself, and of a job
    assert WITHOUT_PYTHON.keys() - READS - others == STATEMENTS.keys()
    changing = {
        name for name, procedure in PROCEDURES.items() if procedure.is_outside and not procedure.is_long
    }
    assert changing - OTHERWISE == CALLS.keys() - {"begin_transaction"}


@pytest.mark.parametrize("step", STATEMENTS)
def test_a_statement_is_done_once(lake: Lake, step: str) -> None:
    with serving(lake.catalogue) as server:
        ask_twice(server, lake, step, {**STATEMENTS[step], "statement": STATEMENT})


@pytest.mark.parametrize("procedure", CALLS)
def test_a_call_is_done_once(lake: Lake, procedure: str) -> None:
    call = {"procedure": procedure, "arguments": CALLS[procedure], "statement": STATEMENT}
    with serving(lake.catalogue) as server:
        ask_twice(server, lake, "call", call)


def test_a_truncation_leaves_rows_alone_that_came_since(lake: Lake) -> None:
    with serving(lake.catalogue) as server:
        table = server.ask("POST", f"{PREFIX}/spark-catalog/table", {"names": ORDERS}).json
        request = {"names": ORDERS, "table": table, "statement": STATEMENT}
        ask_twice(server, lake, "truncate", request)
        lake.table("sales.orders").write(rows(7))
        assert server.ask("POST", f"{PREFIX}/spark-catalog/truncate", request).status == 200
    assert ids(lake, "sales.orders") == [7]


@pytest.mark.parametrize("procedure", ["commit_transaction", "rollback_transaction"])
def test_a_transaction_ends_once(lake: Lake, procedure: str) -> None:
    with serving(lake.catalogue) as server:
        begin = {"procedure": "begin_transaction", "statement": STATEMENT}
        branch = ask_twice(server, lake, "call", begin)["transaction"]
        session = {"ref": branch, "transaction": branch}
        ask_twice(server, lake, "drop", {"names": ORDERS, **session, "statement": "b" * 32})
        end = {"procedure": procedure, **session, "statement": "c" * 32}
        ask_twice(server, lake, "call", end)
    assert lake.table("sales.orders").exists is (procedure == "rollback_transaction")


def test_the_same_id_for_another_statement_is_not_taken_for_it(lake: Lake) -> None:
    with serving(lake.catalogue) as server:
        ask_twice(
            server,
            lake,
            "call",
            {"procedure": "create_branch", "arguments": {"name": "new"}, "statement": STATEMENT},
        )
        other = {"procedure": "create_branch", "arguments": {"name": "other"}, "statement": STATEMENT}
        assert server.ask("POST", f"{PREFIX}/spark-catalog/call", other).status == 200
    assert lake.branch("other").exists
