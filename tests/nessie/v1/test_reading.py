"""Contents, keys, histories and differences, as clients of version 1 see them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.lake import calls
from penstock.model.keys import Key
from penstock.model.nessie import IcebergView
from penstock.model.operations import Put
from tests.nessie.v1.talking import EMPTY, Nessie, delete, key, namespace, put, table


def test_a_content_is_read_at_a_branch_a_commit_or_the_default_branch(nessie: Nessie) -> None:
    first = nessie.commit(put(table(1), "t"), put(namespace("a.b"), "a.b"))
    stored = nessie.get("/contents/t?ref=main")
    assert stored == table(1, stored["id"])
    nessie.commit(put(table(2, stored["id"]), "t"))
    assert nessie.get("/contents/t")["snapshotId"] == 2
    for where in (f"ref=main&hashOnRef={first}", f"hashOnRef={first}", "ref=main&hashOnRef=~1"):
        assert nessie.get(f"/contents/t?{where}")["snapshotId"] == 1
    assert nessie.get(f"/contents/t?ref=DETACHED&hashOnRef={first}")["snapshotId"] == 1
    assert nessie.get("/contents/a%1Db?ref=main")["elements"] == ["a.b"]


def test_several_contents_are_read_at_once(nessie: Nessie) -> None:
    nessie.commit(put(table(1), "t"))
    wanted = {"requestedKeys": [key("t"), key("none")]}
    answer = nessie.ask("POST", "/contents?ref=main", wanted).json
    assert answer == {"contents": [{"key": key("t"), "content": nessie.get("/contents/t")}]}


def test_every_type_has_the_fields_that_pynessie_needs(nessie: Nessie) -> None:
    contents = (
        Put(Key("view"), IcebergView(metadata_location="s3://lake/v")),
        Put(Key("lance"), LanceTable()),
        Put(Key("files"), FilesTable()),
    )
    nessie.lake.catalogue.do(calls.CommitOperations(operations=contents))

    def get(path: str) -> Any:
        return nessie.ask("GET", path, **{"User-Agent": "python-requests/2.32.3"}).json

    assert not {"sqlText", "dialect"} & nessie.get("/contents/view").keys()  # which others miss in Nessie too
    view = get("/contents/view")
    assert (view["sqlText"], view["dialect"]) == ("", "")
    for name in ("lance", "files"):
        shown = get(f"/contents/{name}")
        assert shown.pop("id")
        assert shown == {
            "type": "DELTA_LAKE_TABLE",
            "lastCheckpoint": name,
            "metadataLocationHistory": [],
            "checkpointLocationHistory": [],
        }
    diffs = get(f"/diffs/*{EMPTY}...main")["diffs"]
    shown = {each["key"]["elements"][0]: each["to"] for each in diffs}
    assert shown["view"] == view
    assert shown["lance"] == get("/contents/lance")
    log = get("/trees/tree/main/log?fetch=ALL")["logEntries"][0]
    assert all(each["content"] == shown[each["key"]["elements"][0]] for each in log["operations"])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (
            "/contents/x?ref=main",
            (404, "CONTENT_NOT_FOUND", "Could not find content for key 'x' in reference"),
        ),
        ("/contents/x?ref=a%20b", (400, "BAD_REQUEST", "getContent.ref: Reference name must start with")),
        ("/contents/x?ref=main@1234abcd", (400, "BAD_REQUEST", "getContent.ref: Reference name must start")),
        ("/contents/x?hashOnRef=zzz", (400, "BAD_REQUEST", "getContent.hashOnRef: Hash with optional")),
        ("/contents/x?ref=DETACHED", (400, "BAD_REQUEST", "Expected hash must be provided")),
        ("/trees/tree/no/entries", (404, "REFERENCE_NOT_FOUND", "Named reference 'no' not found")),
        ("/trees/tree/main/entries?hashOnRef=zzz", (400, "BAD_REQUEST", "getEntries.params.hashOnRef: Hash")),
        ("/trees/tree/main/entries?filter=x%20y", (400, "BAD_REQUEST", "filter 'x y' is refused")),
        (
            "/trees/tree/main/log?startHash=zzz",
            (400, "BAD_REQUEST", "getCommitLog.params.startHash: Hash must"),
        ),
        ("/trees/tree/main/log?endHash=zzz", (400, "BAD_REQUEST", "getCommitLog.params.endHash: Hash with")),
        (
            "/trees/tree/main/log?endHash=1234abcd",
            (404, "REFERENCE_NOT_FOUND", "Commit '1234abcd' not found"),
        ),
        ("/diffs/main...no", (404, "REFERENCE_NOT_FOUND", "Named reference 'no' not found")),
        ("/diffs/main@1234abcd...main", (404, "REFERENCE_NOT_FOUND", "Named reference 'main@1234abcd' not")),
        ("/diffs/main*zzz...main", (400, "BAD_REQUEST", "Hash with optional relative part must consist")),
    ],
)
def test_wrong_reads_are_told_what_is_wrong(
    empty_nessie: Nessie, path: str, told: tuple[int, str, str]
) -> None:
    status, code, message = empty_nessie.refused("GET", path)
    assert (status, code) == told[:2]
    assert message.startswith(told[2])


def _names(nessie: Nessie, query: str = "") -> list[str]:
    found = nessie.get(f"/trees/tree/main/entries?{query}")["entries"]
    assert all(set(each) == {"name", "type"} for each in found)
    return [".".join(each["name"]["elements"]) for each in found]


def test_keys_are_listed_all_at_once_page_by_page_or_to_a_depth(nessie: Nessie) -> None:
    tables = [put(table(number), "a", "b", f"t{number}") for number in range(6)]
    first = nessie.commit(put(namespace("a"), "a"), put(namespace("a", "b"), "a", "b"), *tables)
    nessie.commit(put(table(9), "z"))
    everything = ["a", "a.b", *(f"a.b.t{number}" for number in range(6)), "z"]
    assert _names(nessie) == everything
    assert _names(nessie, f"hashOnRef={first}") == everything[:-1]
    page = nessie.get("/trees/tree/main/entries?maxRecords=3")
    assert page["hasMore"]
    assert _names(nessie, f"pageToken={page['token']}") == everything[3:]
    assert _names(nessie, "namespaceDepth=1") == ["a", "z"]
    assert _names(nessie, "namespaceDepth=2") == ["a.b"]
    assert _names(nessie, "namespaceDepth=3") == everything[2:-1]
    below = nessie.get("/trees/tree/main/entries?namespaceDepth=1&maxRecords=1")
    assert below["entries"] == [{"name": key("a"), "type": "NAMESPACE"}]
    assert _names(nessie, f"namespaceDepth=1&pageToken={below['token']}") == ["z"]


def test_a_filter_chooses_before_keys_are_cut_to_a_depth(nessie: Nessie) -> None:
    nessie.commit(put(namespace("a"), "a"), put(namespace("b"), "b"), put(table(1), "a", "t"))
    only_tables = quote("entry.contentType in ['ICEBERG_TABLE']")
    assert _names(nessie, f"filter={only_tables}") == ["a.t"]
    assert _names(nessie, f"filter={only_tables}&namespaceDepth=1") == ["a"]


def test_a_history_is_shown_as_version_1_knows_it(nessie: Nessie) -> None:
    meta = {"author": "Ada", "signedOffBy": "Grace", "properties": {"team": "x"}}
    first = nessie.commit(put(table(1), "t"), put(table(2), "u"), meta={"message": "one", **meta})
    second = nessie.commit(delete("u"), meta={"message": "two"})
    newest, oldest = nessie.get("/trees/tree/main/log?fetch=ALL")["logEntries"]
    shown = oldest["commitMeta"]
    assert shown.pop("commitTime") == shown.pop("authorTime")
    assert shown == {"hash": first, "committer": "", "message": "one", **meta}
    assert oldest["parentCommitHash"] == EMPTY
    assert [set(each) for each in oldest["operations"]] == [{"type", "key", "content", "expectedContent"}] * 2
    assert newest["operations"] == [{"type": "DELETE", "key": key("u")}]
    assert newest["commitMeta"]["author"] == ""
    assert newest["commitMeta"]["signedOffBy"] is None
    assert newest["commitMeta"]["properties"] == {}
    assert _history(nessie) == [second, first]


def _history(nessie: Nessie, query: str = "", name: str = "main") -> list[str]:
    found = nessie.get(f"/trees/tree/{name}/log?{query}")["logEntries"]
    assert all(each["operations"] is None for each in found)
    return [each["commitMeta"]["hash"] for each in found]


def test_a_history_is_limited_on_both_sides_and_filtered(nessie: Nessie) -> None:
    one, two, three = (
        nessie.commit(put(table(number), f"t{number}"), meta={"author": f"author {number}"})
        for number in range(3)
    )
    assert _history(nessie, f"startHash={two}") == [three, two]
    assert _history(nessie, f"endHash={two}") == [two, one]
    assert _history(nessie, f"startHash={two}&endHash={two}") == [two]
    assert _history(nessie, f"endHash={two}", "DETACHED") == [two, one]
    assert _history(nessie, "endHash=~1") == [two, one]
    by_author = quote("commit.author == 'author 1' || commit.author == 'author 0'")
    assert _history(nessie, f"filter={by_author}") == [two, one]
    since = quote("timestamp(commit.commitTime) < timestamp('2020-01-01T00:00:00+00:00')")
    assert _history(nessie, f"filter={since}") == []
    page = nessie.get("/trees/tree/main/log?maxRecords=1")
    assert (page["hasMore"], page["token"]) == (True, two)
    assert _history(nessie, f"pageToken={two}") == [two, one]


def _diffs(nessie: Nessie, one: str, other: str) -> list[Any]:
    answer = nessie.get(f"/diffs/{one}...{other}")
    assert set(answer) == {"hasMore", "token", "diffs"}
    found: list[Any] = answer["diffs"]
    return found


def test_two_commits_are_compared_however_they_are_named(nessie: Nessie) -> None:
    first = nessie.commit(put(table(1), "t"))
    nessie.branch("dev")
    second = nessie.commit(*(put(table(n), f"n{n}") for n in range(6)), delete("t"), branch="dev")
    names = [f"n{number}" for number in range(6)] + ["t"]
    for one, other in (
        ("main", "dev"),
        (f"main*{first}", f"dev*{second}"),
        (f"main%2A{first}", f"dev%2A{second}"),
        (f"*{first}", "dev"),
        (f"DETACHED*{first}", f"*{second}"),
        ("dev*~1", "dev"),
    ):
        found = _diffs(nessie, one, other)
        assert [each["key"]["elements"][0] for each in found] == names
        assert found[0]["from"] is None
        assert found[-1]["to"] is None
    assert _diffs(nessie, "main", "main") == []


def test_a_commit_is_not_read_by_a_name_that_does_not_lead_to_it(nessie: Nessie) -> None:
    nessie.branch("dev")
    other = nessie.commit(put(table(1), "t"), branch="dev")
    for path in (f"/contents/t?ref=main&hashOnRef={other}", f"/trees/tree/main/log?endHash={other}"):
        assert nessie.refused("GET", path)[:2] == (404, "REFERENCE_NOT_FOUND")
