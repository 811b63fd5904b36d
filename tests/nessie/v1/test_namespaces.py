"""Namespaces, which version 1 has requests of its own for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nessie.v1.talking import EMPTY, Nessie, delete, key, namespace, put, table


def _create(nessie: Nessie, *elements: str, **properties: str) -> Any:
    path = f"/namespaces/namespace/main/{'.'.join(element.replace('.', '%1D') for element in elements)}"
    reply = nessie.ask("PUT", path, namespace(*elements, **properties))
    assert reply.status == 200, reply.body
    return reply.json


def _last(nessie: Nessie) -> Any:
    entry = nessie.get("/trees/tree/main/log?fetch=ALL&maxRecords=1")["logEntries"][0]
    return entry["commitMeta"]["message"], entry["operations"]


def test_a_namespace_is_created_changed_and_deleted(nessie: Nessie) -> None:
    made = _create(nessie, "a", owner="ada", old="x")
    assert made == {"id": made["id"], **namespace("a", owner="ada", old="x")}
    assert nessie.get("/namespaces/namespace/main/a") == made
    assert _last(nessie)[0] == "create namespace 'a'"
    change = {"propertyUpdates": {"owner": "bob", "new": "y"}, "propertyRemovals": ["old", "never"]}
    reply = nessie.ask("POST", "/namespaces/namespace/main/a", change)
    assert (reply.status, reply.body) == (204, b"")
    changed = {"id": made["id"], **namespace("a", owner="bob", new="y")}
    assert nessie.get("/namespaces/namespace/main/a") == changed
    message, operations = _last(nessie)
    assert message == "update properties for namespace 'a'"
    assert operations[0]["content"] == changed
    reply = nessie.ask("DELETE", "/namespaces/namespace/main/a")
    assert (reply.status, reply.body) == (204, b"")
    assert _last(nessie) == ("delete namespace 'a'", [{"type": "DELETE", "key": key("a")}])
    assert nessie.refused("GET", "/namespaces/namespace/main/a") == (
        *(404, "NAMESPACE_NOT_FOUND"),
        "Namespace 'a' does not exist",
    )


def test_namespaces_are_listed_also_below_one_and_at_a_commit(nessie: Nessie) -> None:
    _create(nessie, "a")
    before = nessie.head()
    for elements in (("a", "b"), ("a", "b", "c"), ("a.b",), ("ab",), ("z",)):
        _create(nessie, *elements)
    nessie.commit(put(table(1), "a", "t"))

    def listed(query: str) -> list[str]:
        return [".".join(each["elements"]) for each in nessie.get(f"/namespaces/main{query}")["namespaces"]]

    assert sorted(listed("")) == ["a", "a.b", "a.b", "a.b.c", "ab", "z"]
    assert listed("?name=a") == ["a", "a.b", "a.b.c"]
    assert listed("?name=a%1Db") == ["a.b"]
    assert listed("?name=none") == []
    assert listed(f"?hashOnRef={before}") == ["a"]
    assert nessie.get("/namespaces/namespace/main/a%1Db")["elements"] == ["a.b"]


def test_a_namespace_is_only_created_where_nothing_is_and_its_parent_is(nessie: Nessie) -> None:
    nessie.commit(put(table(1), "t"))
    _create(nessie, "a")
    body = namespace("a")
    exists = (409, "NAMESPACE_ALREADY_EXISTS")
    path = "/namespaces/namespace/main/"
    assert nessie.refused("PUT", f"{path}a", body) == (*exists, "Namespace 'a' already exists")
    message = "Another content object with name 't' already exists"
    assert nessie.refused("PUT", f"{path}t", namespace("t")) == (*exists, message)
    assert nessie.refused("PUT", f"{path}c.d", namespace("c", "d")) == (
        *(404, "REFERENCE_NOT_FOUND"),
        "Namespace 'c' must exist.",
    )
    wrong = (400, "BAD_REQUEST")
    assert nessie.refused("PUT", f"{path}b") == (*wrong, "createNamespace.namespace: must not be null")
    assert nessie.refused("PUT", f"{path}b", namespace()) == (*wrong, "Namespace name must not be empty")
    named = namespace("b") | {"id": "f4d43dba-1578-49d0-9f13-b1be009d13d0"}
    message = "New value for key 'b' must not have a content ID"
    assert nessie.refused("PUT", f"{path}b", named) == (*wrong, message)


def test_a_namespace_that_is_not_empty_is_not_deleted(nessie: Nessie) -> None:
    for elements in (("tables",), ("spaces",), ("spaces", "inner")):
        _create(nessie, *elements)
    nessie.commit(put(table(1), "tables", "t"))
    path = "/namespaces/namespace/main/"
    assert nessie.refused("DELETE", f"{path}tables") == (
        *(409, "NAMESPACE_NOT_EMPTY"),
        "Namespace 'tables' is not empty",
    )
    assert nessie.refused("DELETE", f"{path}spaces") == (
        *(404, "REFERENCE_NOT_FOUND"),
        "Namespace 'spaces' is not empty.",
    )


def test_only_namespaces_on_branches_are_changed(nessie: Nessie) -> None:
    first = nessie.commit(put(table(1), "t"), put(namespace("a"), "a"))
    tag = {"type": "TAG", "name": "v1", "hash": first}
    assert nessie.ask("POST", "/trees/tree?sourceRefName=main", tag).status == 200
    absent = (404, "NAMESPACE_NOT_FOUND")
    for method, body in (("POST", {"propertyUpdates": {"x": "y"}}), ("DELETE", None)):
        for name in ("t", "none"):
            told = nessie.refused(method, f"/namespaces/namespace/main/{name}", body)
            assert told == (*absent, f"Namespace '{name}' does not exist")
        for name in ("v1", "no"):
            told = nessie.refused(method, f"/namespaces/namespace/{name}/a", body)
            assert told == (404, "REFERENCE_NOT_FOUND", f"Named reference '{name}' not found")
    assert nessie.refused("POST", "/namespaces/namespace/main/a")[0] == 400


def test_a_commit_is_named_by_its_hash_only(nessie: Nessie) -> None:
    for path in ("/namespaces/main", "/namespaces/namespace/main/a"):
        told = nessie.refused("GET", f"{path}?hashOnRef={nessie.head()}~1")
        assert told[:2] == (400, "BAD_REQUEST")
        assert told[2].startswith("Hash must consist of the hex representation of 4-32 bytes - but was: ")


def test_a_client_that_reads_a_namespace_and_puts_it_back_changed_keeps_all_properties(
    nessie: Nessie,
) -> None:
    made = _create(nessie, "a", owner="ada", location="s3://lake/a")
    for name in ("first", "second"):
        read = nessie.get("/contents/a?ref=main")
        read["properties"][name] = "1"
        nessie.commit(put(read, "a"))
    kept = {**made, "properties": {"owner": "ada", "location": "s3://lake/a", "first": "1", "second": "1"}}
    assert nessie.get("/contents/a?ref=main") == kept
    (several,) = nessie.ask("POST", "/contents?ref=main", {"requestedKeys": [key("a")]}).json["contents"]
    assert several["content"] == kept
    assert _last(nessie)[1][0]["content"] == kept
    (differing,) = nessie.get(f"/diffs/main*{EMPTY}...main")["diffs"]
    assert differing["to"] == kept
    del kept["properties"]["owner"]
    nessie.commit(put(kept, "a"))
    assert nessie.get("/contents/a?ref=main") == kept


def test_pynessie_is_shown_a_namespace_that_it_can_parse_and_its_puts_keep_the_properties(
    nessie: Nessie,
) -> None:
    pynessie = {"User-Agent": "python-requests/2.32.3"}
    made = _create(nessie, "a", owner="ada", location="s3://lake/a")
    shown = {name: value for name, value in made.items() if name != "properties"}
    assert nessie.ask("GET", "/contents/a?ref=main", **pynessie).json == shown
    log = nessie.ask("GET", "/trees/tree/main/log?fetch=ALL", **pynessie).json
    assert log["logEntries"][0]["operations"][0]["content"] == shown

    def commit(*operations: Any) -> None:
        body = {"commitMeta": {"message": "by pynessie"}, "operations": operations}
        path = f"/trees/branch/main/commit?expectedHash={nessie.head()}"
        assert nessie.ask("POST", path, body, **pynessie).status == 200

    commit(put(shown, "a"))
    commit(delete("a"), put({**shown, "elements": ["b"]}, "b"))
    held = nessie.get("/contents/b?ref=main")
    assert held == {**made, "elements": ["b"]}
    commit(put({**shown, "elements": ["b"], "properties": {"owner": "grace"}}, "b"))
    held["properties"]["owner"] = "grace"
    assert nessie.get("/contents/b?ref=main") == held


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("POST", {"propertyUpdates": {}}), ("DELETE", None)]
)
def test_a_client_that_reads_details_is_told_which_namespace_is_missing(
    nessie: Nessie, method: str, body: object
) -> None:
    path = "/namespaces/namespace/main/a.none"
    told = nessie.ask(method, path, body, **{"Nessie-Client-Spec": "2"}).json
    assert told["errorDetails"] == {"type": "CONTENT_KEY", "contentKey": key("a", "none")}
    assert "errorDetails" not in nessie.ask(method, path, body).json
