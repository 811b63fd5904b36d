"""How Lance's API says things: ids, bodies, errors, limits, rights, and a server without Lance."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import (
    DropTableRequest,
    LanceNamespace,
    ListTablesRequest,
    PermissionDeniedError,
    UnauthenticatedError,
)

from penstock.formats.lance.rest.api import BASES, LANCE
from penstock.formats.lance.rest.operations import OPERATIONS
from penstock.lake.lake import Lake
from penstock.server.access import TokenGate
from penstock.server.limits import Limits
from tests.lance.rest.talking import Talk, file_of, lance_at, some_rows
from tests.server.running import Local, local


@pytest.fixture
def table(talk: Talk) -> str:
    """The path of a table with three rows."""
    assert talk("/namespace/ws/create", {}).status == 200
    assert talk("/table/ws$t/create", some_rows(1, 2, 3)).status == 200
    return "/table/ws$t"


def test_every_operation_of_lances_namespaces_has_a_route_below_every_address() -> None:
    names = {name for name in vars(LanceNamespace) if not name.startswith("_")}
    assert {one.name for one in OPERATIONS} == names - {"namespace_id", "create_empty_table"}
    assert len(LANCE.routes) == len(OPERATIONS) * len(BASES)


def test_rows_are_taken_as_a_stream_or_a_file_whatever_they_are_called(talk: Talk, table: str) -> None:
    assert talk(f"{table}/insert", some_rows(4)).body == {"num_inserted_rows": 1, "version": 2}
    assert talk(f"{table}/insert", file_of(some_rows(5))).body["version"] == 3
    kind = "application/vnd.apache.arrow.file"
    assert talk(f"{table}/insert", file_of(some_rows(6)), content_type=kind).body["version"] == 4
    assert talk(f"{table}/insert", some_rows(7), content_type="text/csv").status == 400
    assert talk(f"{table}/count_rows", {}).body == 6


def test_a_query_gives_rows_by_filter_by_columns_and_by_neighbourhood(talk: Talk, table: str) -> None:
    nothing: dict[str, Any] = {"vector": {"single_vector": []}}
    assert talk.rows(f"{table}/query", {"k": 2, "offset": 1, **nothing})["id"].to_pylist() == [2, 3]
    columns = {"columns": {"column_aliases": {"double": "id * 2"}}}
    found = talk.rows(f"{table}/query", {"k": 9, "filter": "id > 1", **nothing, **columns})
    assert found.to_pydict() == {"double": [4, 6]}
    near = talk.rows(f"{table}/query", {"k": 1, "vector": {"single_vector": [2.9, 1.0]}})
    assert near["id"].to_pylist() == [3]
    several = {"vector": {"multi_vector": [[1.0, 1.0], [3.0, 1.0]]}}
    assert talk.rows(f"{table}/query", {"k": 1, **several})["id"].to_pylist() == [1, 3]
    assert talk.rows(f"{table}/query", {"k": 9, "version": 1, **nothing}).num_rows == 3


def test_text_is_searched_by_words_and_by_what_is_made_of_them(talk: Talk, table: str) -> None:
    index = {"column": "text", "index_type": "INVERTED", "with_position": True}
    assert talk(f"{table}/create_scalar_index", index).status == 200

    def found(query: object) -> list[int]:
        asked = {"k": 9, "vector": {}, "full_text_query": query}
        return sorted(talk.rows(f"{table}/query", asked)["id"].to_pylist())

    assert found({"string_query": {"query": "2"}}) == [2]
    assert found({"string_query": {"query": "row", "columns": ["text"]}}) == [1, 2, 3]
    row, two = ({"match": {"terms": terms, "column": "text"}} for terms in ("row", "2"))
    boolean = {"boolean": {"must": [row], "must_not": [two], "should": []}}
    assert found({"structured_query": {"query": boolean}}) == [1, 3]
    assert found({"structured_query": {"query": {"phrase": {"terms": "row 3", "column": "text"}}}}) == [3]
    neither = {"k": 9, "vector": {}, "full_text_query": {"structured_query": {"query": {}}}}
    said = talk(f"{table}/query", neither)
    assert (said.status, said.code) == (400, 13)


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "word"),
    [
        ("/table/ws$t/delete", {}, 400, 13, "'predicate' is missing"),
        ("/table/ws$t/query", {"k": "x", "vector": {}}, 400, 13, "'k' must be a whole number"),
        ("/table/ws$t/query", {"k": 2**70, "vector": {}}, 400, 13, "64 bits"),
        ("/table/ws$t/version/describe", {"version": -1.5}, 400, 13, "'version'"),
        ("/table/ws$t/delete", {"predicate": "id = ("}, 400, 13, "sql parser error"),
        ("/table/ws$t/delete", {"predicate": "nope = 1"}, 404, 12, "No field named nope"),
        ("/table/ws$t/update", {"updates": [["id", "'a'"]]}, 400, 13, "Cannot cast"),
        ("/table/ws$t/drop_columns", {"columns": ["id", "text", "vector"]}, 400, 13, "all columns"),
        ("/table/ws$t/restore", {"version": 99}, 404, 11, "no version 99"),
        ("/table/ws$t/index/nope/drop", None, 404, 6, "no index 'nope'"),
        ("/table/ws$t/tags/version", {"tag": "nope"}, 404, 8, "nope"),
        ("/table/ws$t/count_rows", {"branch": "nope"}, 404, 22, "nope"),
        ("/table/ws$nope/count_rows", {}, 404, 4, "ws.nope"),
        ("/table/ws$$t/describe", {}, 400, 13, "empty part"),
        ("/table/ws$t/describe?delimiter=", {}, 400, 13, "delimiter"),
        ("/table/ws$t/create?properties=[]", b"", 400, 13, "properties"),
        ("/namespace/nope/describe", {}, 404, 1, "nope"),
        ("/transaction/nope/describe", {}, 404, 10, "nope"),
        ("/table/ws$t/backfill_column", {"column": "id"}, 406, 0, "backfill"),
        ("/materialized_view/ws$t/refresh", {}, 406, 0, "materialized"),
    ],
)
def test_what_is_wrong_is_said_by_a_code_and_in_words(
    talk: Talk, table: str, path: str, body: object, status: int, code: int, word: str
) -> None:
    assert table
    said = talk(path, body)
    assert (said.status, said.code) == (status, code), said.body
    assert word in said.error
    assert ".rs:" not in said.error
    assert said.body["instance"] == said.headers["x-request-id"]


def test_a_table_that_is_only_declared_says_so(talk: Talk) -> None:
    talk("/table/t/declare", {})
    said = talk("/table/t/count_rows", {})
    assert (said.status, said.code) == (409, 19)
    assert "no version yet" in said.error
    assert talk("/table/t/create", some_rows(1)).body["version"] == 1


def test_rows_that_cannot_be_written_leave_a_table_that_can_still_be_created(talk: Talk) -> None:
    assert talk("/table/t/create", b"junk").status == 400
    assert talk("/table/t/exists", {}).status == 404


def written(folder: Path) -> list[Path]:
    """The files of tables' rows and versions. Others come and go while versions are promoted."""
    return sorted(one for kind in ("*.lance", "*.txn", "*.arrow", "*.idx") for one in folder.rglob(kind))


def test_where_nothing_can_be_written_nothing_is(
    talk: Talk, server: Local, table: str, tmp_path: Path
) -> None:
    then = Talk(server, "/lance/at/main")
    before = written(tmp_path)
    for path, body in (
        (f"{table}/insert", some_rows(4)),
        ("/table/new/create", some_rows(4)),
        (f"{table}/delete", {"predicate": "id = 1"}),
        (f"{table}/tags/create", {"tag": "a", "version": 1}),
    ):
        said = then(path, body)
        assert (said.status, said.code) == (400, 13), said.body
    assert written(tmp_path) == before
    assert talk(f"{table}/count_rows", {}).body == 3


def test_a_branch_or_a_transaction_that_is_none_is_not_found(server: Local) -> None:
    for base in ("/lance/branch/nope", "/lance/at/nope", "/lance/tx/nope"):
        assert Talk(server, base)("/namespace/$/list", method="GET").status == 404, base


def test_a_body_that_is_too_large_is_refused_in_lances_form(lake: Lake) -> None:
    with local(lake.catalogue, [LANCE], limits=Limits(body_max_bytes=1000)) as server:
        said = Talk(server, "/lance")("/table/t/create", some_rows(*range(1000)))
        assert (said.status, said.code) == (413, 13)


@pytest.fixture
def guarded(lake: Lake) -> Iterator[Local]:
    """A server that asks for tokens."""
    with local(lake.catalogue, [LANCE], gate=TokenGate(lake.catalogue)) as running:
        yield running


def test_who_shows_no_token_or_may_not_is_told_in_lances_form(
    lake: Lake, guarded: Local, tmp_path: Path
) -> None:
    with pytest.raises(UnauthenticatedError):
        lance_at(f"{guarded.url}/lance").list_tables(ListTablesRequest(id=[]))
    lake.branch("main").create_namespace("ws")
    tokens = {"reader": lake.create_token("reader", "read"), "writer": lake.create_token("writer", "write")}
    talk = Talk(guarded, "/lance")

    def said(who: str, path: str, body: object) -> int:
        return talk(path, body, authorization=f"Bearer {tokens[who]}").status

    assert said("writer", "/table/ws$t/create", some_rows(1)) == 200
    assert said("reader", "/table/ws$t/count_rows", {}) == 200
    before = written(tmp_path)
    assert said("reader", "/table/ws$t/insert", some_rows(2)) == 403
    assert said("reader", "/table/ws$t/create_scalar_index", {"column": "id", "index_type": "BTREE"}) == 403
    detached = {"version": -5, "manifest_path": "x", "naming_scheme": "V2"}
    assert said("reader", "/table/ws$t/version/create", detached) == 403
    assert written(tmp_path) == before, "nothing was written for who may not write"
    reader = lance_at(f"{guarded.url}/lance", **{"header.Authorization": f"Bearer {tokens['reader']}"})
    with pytest.raises(PermissionDeniedError):
        reader.drop_table(DropTableRequest(id=["ws", "t"]))


WITHOUT_LANCE = """
import sys
for name in ("lance", "lance_namespace", "lance_namespace_urllib3_client", "pydantic", "pyarrow"):
    sys.modules[name] = None
from penstock.lake.opener import open_lake
from penstock.server.openapi import describe_apis
from penstock.server.run import load_apis
from tests.server.running import local
with open_lake("memory:") as lake, local(lake.catalogue, load_apis()) as server:
    reply = server.ask("POST", "/lance/v1/table/t/describe", {})
    assert (reply.status, reply.json["code"]) == (406, 0), reply
    assert "pip install 'penstock[lance]'" in reply.json["error"], reply
    assert server.get("/lance/v1/table").status == 406
    assert server.get("/api/v2/trees").status == 200
    describe_apis(load_apis())
"""


def test_a_server_without_lance_says_how_to_get_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LANCE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_server_does_not_load_lance_before_it_is_asked_for() -> None:
    program = (
        "import sys; from penstock.server.run import load_apis; load_apis(); "
        "assert not {'lance', 'lance_namespace', 'pydantic', 'pyarrow'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
