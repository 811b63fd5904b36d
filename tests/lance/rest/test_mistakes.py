"""Mistakes that people make: each is told for what it is, with a way out, and none is the server's fault."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.namespace import RestNamespace

from penstock.formats.lance.rest.api import LANCE
from penstock.lake.lake import Lake
from penstock.server.access import TokenGate
from tests.lance.rest.talking import Said, Talk, lance_at, some_rows
from tests.server.running import local

STATE, INVALID, BRANCH, VERSION, DENIED, UNSUPPORTED = 19, 13, 22, 11, 15, 0


@pytest.fixture
def table(talk: Talk) -> Talk:
    """A table ``ws$t`` of one version, and one that is is declared, but has no version yet."""
    talk("/namespace/ws/create", {})
    assert talk("/table/ws$t/create", some_rows(1, 2, 3)).status == 200
    assert talk("/table/ws$bare/declare", {}).status == 200
    return talk


def told(said: Said) -> tuple[int, int]:
    return said.status, said.code


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("alter_columns", {"alterations": [{"path": "id", "rename": "text"}]}),
        (
            "alter_columns",
            {"alterations": [{"path": "id", "rename": "x"}, {"path": "text", "rename": "x"}]},
        ),
        ("add_columns", {"new_columns": [{"name": "id", "expression": "1"}]}),
        ("add_columns", {"new_columns": [{"name": "q", "expression": "id / 0"}]}),
        ("update", {"updates": [["id", "id / 0"]]}),
        ("delete", {"predicate": "id / 0 = 1"}),
        ("count_rows", {"predicate": "id / 0 = 1"}),
        ("query", {"k": 1, "vector": {}, "filter": "id / 0 = 1"}),
        ("query", {"k": 1, "vector": {"multi_vector": [[]]}}),
        ("count_rows", {"predicate": "random(id, id.x) > 1"}),
        ("update", {"predicate": "round(vector || 'a') > 1", "updates": [["id", "1"]]}),
        ("add_columns", {"new_columns": [{"name": "a.b", "expression": "1"}]}),
        ("add_columns", {"new_columns": [{"name": "q", "expression": "generate_series('a', id, 1)"}]}),
        ("create_scalar_index", {"column": "text", "index_type": "FTS", "language": "Klingon"}),
    ],
)
def test_an_expression_or_a_name_that_cannot_be_is_the_clients_mistake(
    table: Talk, path: str, body: Any
) -> None:
    said = table(f"/table/ws$t/{path}", body)
    assert told(said) == (400, INVALID)
    assert "Schema {" not in said.error
    assert len(said.error) < 520


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("count_rows", {"predicate": "?"}),
        ("update", {"updates": [["id", "$1"]]}),
        ("add_columns", {"new_columns": [{"name": "q", "expression": "$1"}]}),
    ],
)
def test_an_expression_that_lance_has_a_bug_with_is_not_a_fault_of_the_server(
    table: Talk, path: str, body: Any
) -> None:
    said = table(f"/table/ws$t/{path}", body)
    assert told(said) == (406, UNSUPPORTED)
    assert "Try to express the request differently" in said.error
    assert table("/table/ws$t/count_rows", {}).body == 3


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a b", ".", "x.lock", "\0", "x" * 300])
@pytest.mark.parametrize("path", ["query", "restore", "stats"])
def test_a_name_that_no_branch_can_have_is_the_clients_mistake(table: Talk, path: str, name: str) -> None:
    """Lance makes a path of it before it looks whether there is one."""
    bodies: dict[str, Any] = {"query": {"k": 1, "vector": {}}, "restore": {"version": 1}, "stats": {}}
    said = table(f"/table/ws$t/{path}", {**bodies[path], "branch": name})
    assert told(said) == (400, INVALID)
    assert "name of a branch" in said.error


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("restore", {"version": 1, "branch": "nope"}),
        ("insert?branch=nope", some_rows(1)),
        ("query", {"k": 1, "vector": {}, "branch": "nope"}),
        ("stats", {"branch": "nope"}),
        ("update", {"updates": [["id", "1"]], "branch": "nope"}),
        ("branches/create", {"name": "x", "from_branch": "nope"}),
        ("tags/create", {"tag": "x", "branch": "nope", "version": 1}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_branch_that_the_table_does_not_have_is_named(table: Talk, path: str, body: Any) -> None:
    said = table(f"/table/ws$t/{path}", body)
    assert told(said) == (404, BRANCH)
    assert "no branch 'nope'" in said.error
    assert "/" not in said.error.replace("ws.t", "")


def test_a_table_that_is_only_declared_says_so_and_how_it_gets_rows(table: Talk) -> None:
    asked: list[tuple[str, Any]] = [("count_rows", {}), ("stats", {}), ("delete", {"predicate": "id = 1"})]
    for path, body in asked:
        said = table(f"/table/ws$bare/{path}", body)
        assert told(said) == (409, STATE)
        assert "is declared, but has no version yet" in said.error
        assert "create_table" in said.error
    asked = [("branches/create", {"name": "x"}), ("tags/create", {"tag": "x", "version": 1})]
    for path, body in asked:
        said = table(f"/table/ws$bare/{path}", body)
        assert told(said) == (404, VERSION)
        assert "is declared, but has no version yet" in said.error


def test_a_table_whose_files_somebody_removed_is_not_said_to_be_declared(table: Talk) -> None:
    place = Path(table("/table/ws$t/describe", {}).body["location"])
    shutil.rmtree(place / "data")
    for path, body in (("count_rows", {"predicate": "id = 1"}), ("query", {"k": 1, "vector": {}})):
        said = table(f"/table/ws$t/{path}", body)
        assert told(said) == (409, STATE)
        assert "a file of this version is missing, data/" in said.error
        assert "restore" in said.error
        assert str(place) not in said.error
    shutil.rmtree(place)
    said = table("/table/ws$t/count_rows", {})
    assert said.status in (404, 409)
    assert "declared" not in said.error


def test_what_cannot_be_deleted_or_named_says_what_can(table: Talk) -> None:
    said = table("/table/ws$t/version/delete", {"ranges": [{"start_version": 0, "end_version": -1}]})
    assert told(said) == (409, STATE)
    assert "newest" in said.error
    assert "up to 1" in said.error
    said = table("/table/ws$t/tags/create", {"tag": "x" * 300, "version": 1})
    assert told(said) == (400, INVALID)
    assert "at most" in said.error
    assert len(said.error) < 200


def test_a_new_table_needs_its_namespace_and_the_answer_says_how_to_make_it(table: Talk) -> None:
    for path, body in (("declare", {}), ("create", some_rows(1))):
        said = table(f"/table/nope$t/{path}", body)
        assert told(said) == (404, 1)
        assert "there is no namespace 'nope'" in said.error
        assert "create" in said.error


def test_an_ended_transaction_cannot_be_cancelled_nor_run_on(table: Talk, lake: Lake) -> None:
    transaction = lake.transaction()
    table.client.ask("POST", f"/lance/tx/{transaction.id}/v1/namespace/more/create", {})

    def become(status: str) -> Said:
        action = {"actions": [{"setStatusAction": {"status": status}}]}
        return table(f"/transaction/{transaction.id}/alter", action)

    assert become("Succeeded").body["status"] == "Succeeded"
    assert become("Succeeded").body["status"] == "Succeeded"
    for status in ("Canceled", "Failed", "Running"):
        said = become(status)
        assert told(said) == (409, STATE)
    assert "revert" in become("Canceled").error
    other = lake.transaction()
    transaction = other
    assert become("Canceled").body["status"] == "Canceled"
    assert become("Canceled").body["status"] == "Canceled"
    assert told(become("Succeeded")) == (409, STATE)


@pytest.mark.parametrize("status", ["Succeeded", "Canceled"])
@pytest.mark.parametrize("mode", [None, "fail", "skip"])
def test_a_transaction_that_is_ended_with_properties_is_so_again_and_has_no_others(
    table: Talk, lake: Lake, status: str, mode: str | None
) -> None:
    transaction = lake.transaction()
    table.client.ask("POST", f"/lance/tx/{transaction.id}/v1/namespace/more/create", {})

    def end(run: str) -> Said:
        noting = {"setPropertyAction": {"key": "run", "value": run, "mode": mode}}
        actions = [noting, {"setStatusAction": {"status": status}}]
        return table(f"/transaction/{transaction.id}/alter", {"actions": actions})

    first = end("7")
    assert first.body["status"] == status
    assert first.body["properties"]["run"] == "7"
    assert end("7").body == first.body
    if mode != "skip":
        assert told(end("8")) == (409, STATE)
    assert transaction.info.properties == {"run": "7"}


def test_a_namespace_is_created_and_dropped_once_under_one_key(table: Talk) -> None:
    def ask(what: str, key: str, **more: Any) -> Said:
        return table(f"/namespace/once/{what}", more, idempotency_key=key)

    for _ in range(2):
        made = ask("create", "a", properties={"owner": "ada"})
        assert (made.status, made.body["properties"]) == (200, {"owner": "ada"})
    assert told(ask("create", "b")) == (409, 2)
    for _ in range(2):
        gone = ask("drop", "c")
        assert (gone.status, gone.body["properties"]) == (200, {"owner": "ada"})
    assert told(ask("drop", "d")) == (404, 1)
    assert ask("create", "a", properties={"owner": "ada"}).status == 200  # it was, and is not there any more
    assert told(table("/namespace/once/exists", {})) == (404, 1)


def test_a_table_is_dropped_once_under_one_key(table: Talk) -> None:
    first = table("/table/ws$t/drop", None, idempotency_key="gone")
    assert first.status == 200
    assert table("/table/ws$t/drop", None, idempotency_key="gone").body == first.body
    assert told(table("/table/ws$t/drop", None)) == (404, 4)


def test_a_path_with_a_zero_byte_is_a_mistake_of_the_client(table: Talk, lake: Lake) -> None:
    folder = str(lake.lance().describe_table({"id": ["ws", "t"]}).location).lstrip("/")
    for number in (-5, 2):
        body = {"version": number, "manifest_path": f"{folder}/_versions/\0"}
        assert table("/table/ws$t/version/create", body).status == 400


def test_all_tables_are_listed_with_the_delimiter_that_was_asked_for(table: Talk) -> None:
    assert table("/table?delimiter=.", method="GET").body["tables"] == ["ws.bare", "ws.t"]
    first = table("/table?delimiter=::&limit=1", method="GET").body
    assert first["tables"] == ["ws::bare"]
    rest = table(f"/table?delimiter=::&page_token={first['page_token']}", method="GET").body
    assert rest == {"tables": ["ws::t"]}
    assert table("/table", method="GET").body["tables"] == ["ws$bare", "ws$t"]


def test_in_a_batch_a_refused_place_and_a_denied_table_name_their_operation(table: Talk, lake: Lake) -> None:
    ops: list[Any] = [
        {"declare_table": {"id": ["ws", "q"]}},
        {"declare_table": {"id": ["ws", "r"], "location": "/etc/x"}},
    ]
    said = table("/table/batch-commit", {"operations": ops})
    assert told(said) == (400, INVALID)
    assert said.error.startswith("operation 1: ")
    token = lake.create_token("part", "write:main:ws.q*", "read")
    with local(lake.catalogue, [LANCE], gate=TokenGate(lake.catalogue)) as server:
        guarded = Talk(server, "/lance")
        ops = [{"declare_table": {"id": ["ws", "q"]}}, {"declare_table": {"id": ["ws", "r"]}}]
        said = guarded("/table/batch-commit", {"operations": ops}, authorization=f"Bearer {token}")
        assert told(said) == (403, DENIED)
        assert said.error.startswith("operation 1: ")
        ops[1]["declare_table"] = {"id": ["ws", "q2"], "location": "/etc/x"}
        said = guarded("/table/batch-commit", {"operations": ops}, authorization=f"Bearer {token}")
        assert told(said) == (403, DENIED)
        assert said.error.startswith("operation 1: ")


def test_a_token_is_also_taken_as_an_api_key(table: Talk, lake: Lake) -> None:
    token = lake.create_token("reader", "read")
    with local(lake.catalogue, [LANCE], gate=TokenGate(lake.catalogue)) as server:
        far = lance_at(f"{server.url}/lance", **{"headers.x-api-key": token})
        assert lance.dataset(namespace_client=far, table_id=["ws", "t"]).count_rows() == 3
        guarded = Talk(server, "/lance")
        assert guarded("/table/ws$t/count_rows", {}, x_api_key=token).body == 3
        assert guarded("/table/ws$t/count_rows", {}, x_api_key="penstock_x_y").status == 401
        assert guarded("/table/ws$t/count_rows", {}).status == 401
        both = guarded("/table/ws$t/count_rows", {}, authorization="Basic eDp5", x_api_key=token)
        assert both.status == 401


@pytest.mark.parametrize("name", ["ü", "per%20cent", "a.b", "a/b"])
def test_lances_own_client_uses_names_of_all_kinds(namespace: RestNamespace, name: str) -> None:
    lance.write_dataset(some_rows(1), namespace_client=namespace, table_id=["ws", name])
    assert lance.dataset(namespace_client=namespace, table_id=["ws", name]).count_rows() == 1


def test_a_delimiter_of_ones_own_makes_room_for_lances_in_names(namespace: RestNamespace, talk: Talk) -> None:
    other = lance_at(namespace.namespace_id().split('"')[1], delimiter="::")
    lance.write_dataset(some_rows(1), namespace_client=other, table_id=["ws", "a$b"])
    assert lance.dataset(namespace_client=other, table_id=["ws", "a$b"]).count_rows() == 1
    assert talk("/table?delimiter=::", method="GET").body["tables"] == ["ws::a$b"]
