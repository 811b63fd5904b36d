"""Entries, contents, histories and differences through Nessie's API."""

from __future__ import annotations

from itertools import product
from urllib.parse import quote

import pytest

from penstock.server.nessie import pages
from tests.nessie.v2.talking import EMPTY, Talk, delete, put, table

NAMES = ["a", "a.b", "a.b.t1", "a.b.t2", "a.v", "ab", "b", "b.t", "z"]


@pytest.fixture
def head(nessie: Talk) -> str:
    """Nine keys, of which ``a``, ``a.b`` and ``b`` are namespaces."""
    namespace = {"type": "NAMESPACE", "elements": []}
    operations = [
        put(name, namespace if name in ("a", "a.b", "b") else table(number))
        for number, name in enumerate(NAMES)
    ]
    return nessie.commit(f"main@{EMPTY}", *operations)


def expected(low: str = "", high: str = "zz", prefix: str = "") -> list[str]:
    """The names in a range, found by looking at each."""

    def elements(name: str) -> list[str]:
        return name.split(".") if name else []

    start = elements(prefix)
    return [
        name
        for name in NAMES
        if elements(low) <= elements(name) <= elements(high) and elements(name)[: len(start)] == start
    ]


def all_keys(nessie: Talk, path: str) -> list[str]:
    field, name = ("diffs", "key") if "/diff/" in path else ("entries", "name")
    return [".".join(one[name]["elements"]) for page in nessie.pages(path, field) for one in page]


@pytest.mark.usefixtures("head")
def test_a_range_has_the_keys_from_one_to_another(nessie: Talk) -> None:
    lows = ("", "a", "a.b", "a.b.t11", "a.c", "aa", "b.t", "zz")
    for low, high in product(lows, ("zz", "z", "a.b", "a.b.t1", "a", "0")):
        query = f"max-records=2&min-key={low}&max-key={high}"
        assert all_keys(nessie, f"/trees/main/entries?{query}") == expected(low, high), query
        assert all_keys(nessie, f"/trees/main@{EMPTY}/diff/main?{query}") == expected(low, high), query


@pytest.mark.usefixtures("head")
def test_a_prefix_has_a_key_and_all_below_it(nessie: Talk) -> None:
    for prefix in ("a", "a.b", "a.b.t", "ab", "b", "z", "nothing"):
        query = f"max-records=1&prefix-key={prefix}"
        assert all_keys(nessie, f"/trees/main/entries?{query}") == expected(prefix=prefix), query
        assert all_keys(nessie, f"/trees/main@{EMPTY}/diff/main?{query}") == expected(prefix=prefix), query


@pytest.mark.usefixtures("head")
def test_given_keys_are_listed_in_order_and_in_pages(nessie: Talk) -> None:
    query = "key=z&key=a.b.t1&key=missing&key=b.t&key=z"
    found = nessie.pages(f"/trees/main/entries?max-records=2&{query}", "entries")
    assert [[".".join(one["name"]["elements"]) for one in page] for page in found] == [
        ["a.b.t1", "b.t"],
        ["z"],
    ]
    assert nessie.keys(f"/trees/main/entries?min-key=b&{query}") == ["b.t", "z"]
    assert nessie.keys(f"/trees/main@{EMPTY}/diff/main?{query}") == ["a.b.t1", "b.t", "z"]


def test_a_page_shows_the_commit_that_the_first_one_was_read_at(nessie: Talk, head: str) -> None:
    first = nessie.get(f"/trees/main@{head}/entries?max-records=4")
    nessie.commit(f"main@{head}", delete("b.t"), put("a.b.t3", table(3)))
    rest = nessie.keys(f"/trees/main@{head}/entries?page-token={first['token']}")
    assert rest == NAMES[4:]


@pytest.mark.usefixtures("head")
def test_a_filter_that_finds_little_gives_short_pages_that_lead_on(
    nessie: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "SCAN_MAX", 3)
    wanted = quote("entry.name == 'z'")
    found = nessie.pages(f"/trees/main/entries?max-records=2&filter={wanted}", "entries")
    assert [len(page) for page in found] == [0, 0, 1]


def test_a_history_goes_on_at_the_hash_that_its_token_is(nessie: Talk) -> None:
    hashes = [EMPTY]
    for number in range(12):
        hashes.append(nessie.commit(f"main@{hashes[-1]}", put(f"t{number}", table(number))))
    found = nessie.pages("/trees/main/history?max-records=4", "logEntries")
    assert [one["commitMeta"]["hash"] for page in found for one in page] == hashes[:0:-1]
    assert [one["parentCommitHash"] for page in found for one in page] == hashes[-2::-1]
    assert nessie.get("/trees/main/history?max-records=4")["token"] == hashes[8]
    last = nessie.get(f"/trees/main/history?max-records=3&limit-hash={hashes[10]}")
    assert [one["commitMeta"]["hash"] for one in last["logEntries"]] == hashes[12:9:-1]
    assert last["hasMore"] is False


def test_a_page_whose_time_is_over_is_short_and_its_token_leads_on(
    nessie: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that finds nothing for long is answered all the same, and the client misses nothing."""
    head = EMPTY
    for number in range(11):
        head = nessie.commit(f"main@{head}", put(f"t{number}", table(number)), message=f"load {number}")
    monkeypatch.setattr(pages, "PAGE_MAX_S", 0.0)
    filters = {
        "/trees/main/history": ("logEntries", "commit.message == 'load 3'"),
        "/trees/main/entries": ("entries", "entry.name == 't3'"),
        "/trees": ("references", "ref.name == 'main'"),
    }
    for path, (field, expression) in filters.items():
        found = nessie.pages(f"{path}?filter={quote(expression)}", field)
        assert [len(page) for page in found if page] == [1], path
        assert len(found) > 1 or path == "/trees"


def test_a_history_tells_what_each_commit_changed_deletes_first(nessie: Talk) -> None:
    first = nessie.commit(f"main@{EMPTY}", put("b", table(1)), put("c", table(1)))
    identity = nessie.content("main", "b")["id"]
    nessie.commit(f"main@{first}", put("a", table(2)), put("b", table(2, identity)), delete("c"))
    entry = nessie.get("/trees/main/history?fetch=ALL&max-records=1")["logEntries"][0]
    told = [(one["type"], one["key"]["elements"]) for one in entry["operations"]]
    assert told == [("DELETE", ["c"]), ("PUT", ["a"]), ("PUT", ["b"])]
    assert entry["operations"][2]["content"] == table(2, identity)
    assert entry["operations"][2]["documentation"] is None
    wanted = quote('operations.exists(op, op.type == "DELETE" && op.key == "c")')
    found = nessie.get(f"/trees/main/history?fetch=ALL&filter={wanted}")["logEntries"]
    assert [one["commitMeta"]["hash"] for one in found] == [nessie.head("main")]


def test_a_merge_shows_all_its_parents(nessie: Talk) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev", root)
    side = nessie.commit(f"dev@{root}", put("b", table(1)))
    nessie.post(f"/trees/main@{root}/history/merge", {"fromRefName": "dev", "fromHash": side})
    newest = nessie.get("/trees/main/history?max-records=1")["logEntries"][0]
    assert newest["commitMeta"]["parentCommitHashes"] == [root, side]
    assert newest["parentCommitHash"] == root


def test_details_of_errors_are_only_for_clients_that_read_them(nessie: Talk) -> None:
    path = "/api/v2/trees/main/contents/missing"
    old = nessie.client.ask("GET", path)
    assert old.status == 404
    assert "errorDetails" not in old.json
    for spec in ("2", "2.1.0", "3"):
        new = nessie.client.ask("GET", path, headers={"nessie-client-spec": spec})
        assert new.json["errorDetails"] == {"type": "CONTENT_KEY", "contentKey": {"elements": ["missing"]}}
    for spec in ("1", "x", "", "1.9"):
        assert "errorDetails" not in nessie.client.ask("GET", path, headers={"nessie-client-spec": spec}).json


@pytest.mark.parametrize(
    "query", ["max-records=x", "fetch=OTHER", "page-token=zz", "limit-hash=x", "filter=x("]
)
def test_a_parameter_that_cannot_be_is_refused_with_a_reason(nessie: Talk, query: str) -> None:
    error = nessie.refused(400, "GET", f"/trees/main/history?{query}")
    assert error["errorCode"] == "BAD_REQUEST"
    assert error["message"]


def test_too_many_keys_at_once_are_refused(nessie: Talk) -> None:
    body = {"requestedKeys": [{"elements": [f"t{number}"]} for number in range(51)]}
    assert "at most 50" in nessie.refused(400, "POST", "/trees/main/contents", body)["message"]


def test_a_difference_is_asked_for_in_every_way_to_write_references(nessie: Talk) -> None:
    first = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("team/dev", first)
    last = nessie.commit(f"team/dev@{first}", put("b", table(1)))
    for at in ("@", "%40"):
        for before, after in (
            (f"main{at}{first}", f"team/dev{at}{last}"),
            (f"main{at}{first}", f"team%2Fdev{at}{last}"),
            (f"{at}{first}", f"DETACHED{at}{last}"),
            (f"team/dev{at}{first}", f"team/dev{at}"),
            ("main", f"{at}{last}"),
        ):
            assert nessie.keys(f"/trees/{before}/diff/{after}") == ["b"], (before, after)
