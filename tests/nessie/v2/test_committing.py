"""Commits through Nessie's API."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from threading import Barrier, Thread
from uuid import uuid4

import pytest

from penstock.formats.files.files import File
from penstock.formats.files.intents import NAME, WriteIntent, encode_write
from penstock.formats.lance.intents import DeclareStep, NumberedStep, Steps, encode_steps
from penstock.formats.lance.lake.calls import AlterLance, CommitLance
from penstock.formats.lance.state import NAME as LANCE
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.operations import Change
from tests.nessie.v2.talking import EMPTY, Talk, delete, put, table


def commit(nessie: Talk, status: int, at: str, *operations: object) -> str:
    body = {"commitMeta": {"message": "m"}, "operations": operations}
    found: str = nessie.refused(status, "POST", f"/trees/{at}/history/commit", body)["message"]
    return found


def declare(lake: Lake, name: str, folder: Path, branch: str = "main") -> None:
    """A Lance table, of whose state other clients see nothing."""
    lake.add_root(str(folder))
    declared = DeclareStep(id=uuid4(), location=str(folder / name), properties={"a": "b"})
    steps = encode_steps(Steps((NumberedStep(0, declared),)))
    lake.kernel.commit(branch, [Change(Key(name), LANCE, steps)])


def test_ids_of_contents_follow_nessies_rules(nessie: Talk) -> None:
    stranger = str(uuid4())
    assert "must not have a content ID" in commit(nessie, 400, f"main@{EMPTY}", put("t", table(1, stranger)))
    head = nessie.commit(f"main@{EMPTY}", put("t", table(1)))
    known = nessie.content("main", "t")["id"]
    assert "has no content ID" in commit(nessie, 400, f"main@{head}", put("t", table(2)))
    assert known in commit(nessie, 400, f"main@{head}", put("t", table(2, stranger)))
    assert "Invalid UUID" in commit(nessie, 400, f"main@{head}", put("t", table(2, "nonsense")))
    head = nessie.commit(f"main@{head}", delete("t"), put("moved", table(1, known)))
    assert nessie.content("main", "moved")["id"] == known
    head = nessie.commit(f"main@{head}", delete("moved"), put("moved", table(3)))
    assert nessie.content("main", "moved")["id"] != known


def test_ids_of_new_contents_are_told(nessie: Talk) -> None:
    body = {
        "commitMeta": {"message": "m"},
        "operations": [put("a", table(1)), put("ns", {"type": "NAMESPACE", "elements": ["ns"]})],
    }
    added = nessie.post(f"/trees/main@{EMPTY}/history/commit", body)["addedContents"]
    told = {".".join(one["key"]["elements"]): one["contentId"] for one in added}
    assert told == {name: nessie.content("main", name)["id"] for name in ("a", "ns")}


@pytest.mark.parametrize("kind", ["Lance", "files"])
def test_a_managed_table_is_renamed_as_it_is_and_never_changed(
    nessie: Talk, lake: Lake, kind: str, tmp_path: Path
) -> None:
    if kind == "Lance":
        declare(lake, "events", tmp_path)
    else:
        clicks = File(f"20261101-{'0' * 12}/{'1' * 32}/", 3, 0)
        made = encode_write(WriteIntent(put=(("day=1/clicks.csv", clicks),), creates=True))
        lake.kernel.commit("main", [Change(Key("events"), NAME, made)])
    stored = lake.table("events").content
    shown = nessie.content("main", "events")
    assert shown["type"] == "DELTA_LAKE_TABLE"
    head = nessie.commit(f"main@{nessie.head('main')}", delete("events"), put("logs", shown))
    assert lake.table("logs").content == stored
    changed = {**shown, "metadataLocationHistory": ["s3://lake/other"]}
    assert "cannot be changed" in commit(nessie, 400, f"main@{head}", put("logs", changed))
    head = nessie.commit(f"main@{head}", put("logs", shown))
    assert lake.table("logs").content == stored
    nessie.commit(f"main@{head}", delete("logs"))
    assert lake.tables() == []


def test_what_differs_only_in_unseen_state_still_is_a_difference(
    nessie: Talk, lake: Lake, tmp_path: Path
) -> None:
    declare(lake, "events", tmp_path)
    before = nessie.head("main")
    lake.do(CommitLance(operations=(AlterLance(key=Key("events"), properties={"owner": "us"}),)))
    assert nessie.keys(f"/trees/main@{before}/diff/main") == ["events"]
    assert nessie.keys(f"/trees/main@{before}/diff/main?key=events") == ["events"]


def test_commits_of_different_tables_from_one_hash_all_land(nessie: Talk) -> None:
    writers = 8
    start = Barrier(writers)
    landed: list[str] = []

    def write(number: int) -> None:
        start.wait()
        landed.append(nessie.commit(f"main@{EMPTY}", put(f"t{number}", table(number))))

    threads = [Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(landed)) == writers
    assert len(nessie.pages("/trees/main/entries?max-records=5", "entries")) == 2


def test_of_commits_of_one_table_from_one_hash_one_lands_and_the_others_are_told_why(nessie: Talk) -> None:
    head = nessie.commit(f"main@{EMPTY}", put("t", table(0)))
    known = nessie.content("main", "t")["id"]
    writers = 6
    start = Barrier(writers)
    statuses: list[int] = []

    def write(number: int) -> None:
        body = {"commitMeta": {"message": "m"}, "operations": [put("t", table(number, known))]}
        start.wait()
        reply = nessie.ask("POST", f"/trees/main@{head}/history/commit", body)
        statuses.append(reply.status)
        if reply.status == 409:
            assert reply.json["errorCode"] == "REFERENCE_CONFLICT"
            assert [one["conflictType"] for one in reply.json["errorDetails"]["conflicts"]] == [
                "VALUE_DIFFERS"
            ]

    threads = [Thread(target=write, args=(number,)) for number in range(1, writers + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [409] * (writers - 1)


def test_namespaces_are_checked_before_anything_else(nessie: Talk) -> None:
    head = nessie.commit(f"main@{EMPTY}", put("t", table(1)))
    identity = nessie.content("main", "t")["id"]
    nessie.commit(f"main@{head}", put("t", table(2, identity)))
    body = {
        "commitMeta": {"message": "m"},
        "operations": [put("t", table(3, identity)), put("a.b.c", table(1)), put("x.y", table(1))],
    }
    error = nessie.refused(409, "POST", f"/trees/main@{head}/history/commit", body)
    told = [(one["conflictType"], one["key"]["elements"]) for one in error["errorDetails"]["conflicts"]]
    assert told == [
        ("NAMESPACE_ABSENT", ["a", "b"]),
        ("NAMESPACE_ABSENT", ["a"]),
        ("NAMESPACE_ABSENT", ["x"]),
    ]


def test_headers_add_to_what_a_commit_says(nessie: Talk) -> None:
    nessie.commit(
        f"main@{EMPTY}",
        put("t", table(1)),
        nessie_commit_message="from the header",
        nessie_commit_authors="Grace, , Edsger",
        nessie_commit_signedoffby="Alan",
        nessie_commit_property_team="storage",
    )
    meta = nessie.get("/trees/main/history")["logEntries"][0]["commitMeta"]
    assert meta["message"] == "from the header"
    assert meta["authors"] == ["Ada", "Grace", "Edsger"]
    assert meta["allSignedOffBy"] == ["Alan"]
    assert meta["allProperties"] == {"team": ["storage"]}


def test_a_repeated_request_with_the_same_key_is_done_once(nessie: Talk) -> None:
    first = nessie.commit(f"main@{EMPTY}", put("t", table(1)), idempotency_key="once")
    again = nessie.commit(f"main@{EMPTY}", put("t", table(1)), idempotency_key="once")
    assert first == again == nessie.head("main")


def test_too_many_operations_are_refused(nessie: Talk) -> None:
    operations = [put(f"t{number}", table(number)) for number in range(51)]
    assert "at most 50 operations" in commit(nessie, 400, f"main@{EMPTY}", *operations)


def test_a_commit_may_start_from_any_ancestor_of_the_branch(nessie: Talk) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev", root)
    side = nessie.commit(f"dev@{root}", put("b", table(1)))
    nessie.post(f"/trees/main@{root}/history/merge", {"fromRefName": "dev", "fromHash": side})
    nessie.commit(f"main@{side}", put("c", table(1)))
    assert nessie.keys("/trees/main/entries") == ["a", "b", "c"]
    nessie.branch("other", root)
    stray = nessie.commit(f"other@{root}", put("d", table(1)))
    message = commit(nessie, 404, f"main@{stray}", put("e", table(1)))
    assert message == f"Could not find commit '{stray}' in reference 'main'."


@pytest.mark.parametrize(
    "time",
    [
        "1970-01-01T00:00:00Z",
        "1969-07-20T20:17:40Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "2020-02-03T04:05:06.123456Z",
    ],
)
def test_a_commit_was_written_when_its_author_says(nessie: Talk, time: str) -> None:
    nessie.commit(f"main@{EMPTY}", put("root", table(1)))
    body = {"commitMeta": {"message": "m", "authorTime": time}, "operations": [put("a", table(1))]}
    made = nessie.post(f"/trees/main@{nessie.head('main')}/history/commit", body)["targetBranch"]["hash"]
    (entry,) = nessie.get("/trees/main/history?max-records=1")["logEntries"]
    assert entry["commitMeta"]["authorTime"] == time
    nessie.branch("picked", EMPTY)
    nessie.post(
        f"/trees/picked@{EMPTY}/history/transplant", {"fromRefName": "main", "hashesToTransplant": [made]}
    )
    (entry,) = nessie.get("/trees/picked/history")["logEntries"]
    assert entry["commitMeta"]["authorTime"] == time


def test_a_header_that_is_sent_several_times_has_several_values(nessie: Talk) -> None:
    body = {"commitMeta": {"message": "in the body"}, "operations": [put("a", table(1))]}
    data = json.dumps(body).encode()
    with closing(nessie.client.connection()) as connection:
        connection.putrequest("POST", f"/api/v2/trees/main@{EMPTY}/history/commit")
        for name, value in (
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(data))),
            ("Nessie-Commit-Message", "one"),
            ("Nessie-Commit-Message", "two"),
            ("Nessie-Commit-Authors", "Ada, Grace"),
            ("Nessie-Commit-Authors", "Alan"),
            ("Nessie-Commit-Property-foo", "bar"),
            ("Nessie-Commit-Property-foo", "baz, and more"),
        ):
            connection.putheader(name, value)
        connection.endheaders(data)
        assert connection.getresponse().status == 200
    (entry,) = nessie.get("/trees/main/history")["logEntries"]
    meta = entry["commitMeta"]
    assert (meta["message"], meta["authors"]) == ("one", ["Ada", "Grace", "Alan"])
    assert meta["allProperties"] == {"foo": ["bar", "baz, and more"]}


@pytest.mark.parametrize("name", ["a", "renamed"])
def test_a_content_keeps_its_type(nessie: Talk, name: str) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    identity = nessie.content("main", "a")["id"]
    renamed = [delete("a")] if name != "a" else []
    for other in (
        {"type": "ICEBERG_VIEW", "metadataLocation": "s3://lake/v", "versionId": 1, "schemaId": 1},
        {"type": "NAMESPACE", "elements": [name], "properties": {}},
        {"type": "DELTA_LAKE_TABLE", "metadataLocationHistory": [], "checkpointLocationHistory": []},
    ):
        body = {
            "commitMeta": {"message": "m"},
            "operations": [*renamed, put(name, {**other, "id": identity})],
        }
        error = nessie.refused(400, "POST", f"/trees/main@{root}/history/commit", body)
        assert "a content keeps its type" in error["message"]
    assert nessie.content("main", "a")["type"] == "ICEBERG_TABLE"
