"""Merges and transplants through Nessie's API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.formats.lance.lake.calls import GetLanceTable
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from tests.nessie.v2.talking import EMPTY, Talk, delete, put, table
from tests.nessie.v2.test_committing import declare


class Fork:
    """``dev`` changed ``a``, deleted ``b`` and added ``c``; ``main`` changed ``a`` otherwise."""

    def __init__(self, nessie: Talk) -> None:
        self.root = nessie.commit(f"main@{EMPTY}", put("a", table(1)), put("b", table(1)))
        self.a = nessie.content("main", "a")["id"]
        nessie.branch("dev", self.root)
        self.dev = nessie.commit(
            f"dev@{self.root}", put("a", table(2, self.a)), delete("b"), put("c", table(2)), message="on dev"
        )
        self.main = nessie.commit(f"main@{self.root}", put("a", table(3, self.a)))

    def merge(self, nessie: Talk, **told: object) -> Any:
        body = {"fromRefName": "dev", "fromHash": self.dev, **told}
        return nessie.ask("POST", f"/trees/main@{self.main}/history/merge", body)


@pytest.fixture
def fork(nessie: Talk) -> Fork:
    return Fork(nessie)


def test_a_conflict_is_an_error_or_the_answer(nessie: Talk, fork: Fork) -> None:
    error = fork.merge(nessie)
    assert error.status == 409
    assert error.json["message"] == "The following keys have been changed in conflict: 'a'"
    answer = fork.merge(nessie, isReturnConflictAsResult=True).json
    assert (answer["wasSuccessful"], answer["wasApplied"]) == (False, False)
    assert answer["resultantTargetHash"] is None
    assert answer["commonAncestor"] == fork.root
    conflicts = {".".join(one["key"]["elements"]): "conflict" in one for one in answer["details"]}
    assert conflicts == {"a": True, "b": False, "c": False}
    assert nessie.head("main") == fork.main


@pytest.mark.parametrize("name", ["isDryRun", "dryRun"])
def test_a_trial_changes_nothing(nessie: Talk, fork: Fork, name: str) -> None:
    answer = fork.merge(nessie, **{name: True, "defaultKeyMergeMode": "FORCE"}).json
    assert (answer["wasSuccessful"], answer["wasApplied"]) == (True, False)
    assert answer["resultantTargetHash"] is None
    assert nessie.head("main") == fork.main


def test_keys_are_forced_dropped_or_settled_by_a_content(nessie: Talk, fork: Fork) -> None:
    settled = {
        "key": {"elements": ["a"]},
        "mergeBehavior": "NORMAL",
        "expectedTargetContent": table(3, fork.a),
        "resolvedContent": table(9, fork.a),
    }
    dropped = {"key": {"elements": ["b"]}, "mergeBehavior": "DROP"}
    answer = fork.merge(nessie, keyMergeModes=[settled, dropped])
    assert answer.status == 200, answer.body
    assert nessie.content("main", "a") == table(9, fork.a)
    assert nessie.keys("/trees/main/entries") == ["a", "b", "c"]
    assert answer.json["resultantTargetHash"] == nessie.head("main")
    assert answer.json["effectiveTargetHash"] == fork.main


def test_a_merge_whose_expected_content_is_another_is_a_conflict(nessie: Talk, fork: Fork) -> None:
    settled = {
        "key": {"elements": ["a"]},
        "mergeBehavior": "NORMAL",
        "expectedTargetContent": table(1, fork.a),
        "resolvedContent": table(9, fork.a),
    }
    answer = fork.merge(nessie, keyMergeModes=[settled], isReturnConflictAsResult=True).json
    assert answer["details"][0]["conflict"]["conflictType"] == "VALUE_DIFFERS"


@pytest.mark.parametrize(
    ("modes", "says"),
    [
        (
            [{"key": {"elements": ["never"]}, "mergeBehavior": "DROP"}],
            "The following keys were not used: [never]",
        ),
        ([{"key": {"elements": ["a"]}, "mergeBehavior": "DROP"}] * 2, "Duplicate key a"),
        (
            [{"key": {"elements": ["a"]}, "mergeBehavior": "NORMAL", "resolvedContent": table(9)}],
            "requires setting MergeKeyBehavior.expectedTarget",
        ),
        (
            [{"key": {"elements": ["a"]}, "mergeBehavior": "FORCE", "resolvedContent": table(9)}],
            "must be null for MergeBehavior.FORCE",
        ),
    ],
    ids=["unused", "twice", "unexpected", "forced"],
)
def test_what_a_merge_is_told_of_keys_must_fit(
    nessie: Talk, fork: Fork, modes: list[object], says: str
) -> None:
    answer = fork.merge(nessie, keyMergeModes=modes, defaultKeyMergeMode="FORCE")
    assert answer.status == 400
    assert says in answer.json["message"]
    assert nessie.head("main") == fork.main


def test_merging_again_brings_only_what_is_new(nessie: Talk, fork: Fork) -> None:
    first = fork.merge(nessie, defaultKeyMergeMode="FORCE").json["resultantTargetHash"]
    again = fork.merge(nessie).json
    assert (again["wasApplied"], again["resultantTargetHash"], again["details"]) == (False, first, [])
    assert again["commonAncestor"] == fork.dev


def test_a_merge_says_who_was_merged_unless_it_is_told_what_to_say(nessie: Talk, fork: Fork) -> None:
    fork.merge(nessie, defaultKeyMergeMode="FORCE")
    entry = nessie.get("/trees/main/history?max-records=1")["logEntries"][0]
    assert entry["commitMeta"]["message"] == f"Merged dev at {fork.dev} into main at {fork.main}"
    nessie.branch("more", nessie.head("main"))
    head = nessie.commit(f"more@{nessie.head('main')}", put("d", table(1)))
    body = {"fromRefName": "more", "fromHash": head, "commitMeta": {"message": "told", "authors": ["Eve"]}}
    nessie.post(f"/trees/main@{fork.main}/history/merge", body)
    meta = nessie.get("/trees/main/history?max-records=1")["logEntries"][0]["commitMeta"]
    assert (meta["message"], meta["authors"]) == ("told", ["Eve"])


def test_the_source_must_lead_to_the_hash_that_is_merged(nessie: Talk, fork: Fork) -> None:
    body = {"fromRefName": "main", "fromHash": fork.dev}
    error = nessie.refused(404, "POST", f"/trees/main@{fork.main}/history/merge", body)
    assert error["message"] == f"Could not find commit '{fork.dev}' in reference 'main'."
    nameless = {"fromRefName": "DETACHED", "fromHash": fork.dev, "defaultKeyMergeMode": "FORCE"}
    nessie.post(f"/trees/main@{fork.main}/history/merge", nameless)


def test_branches_with_nothing_in_common_are_not_merged(nessie: Talk, fork: Fork) -> None:
    nessie.branch("other")
    lone = nessie.commit(f"other@{EMPTY}", put("x", table(1)))
    body = {"fromRefName": "other", "fromHash": lone}
    error = nessie.refused(404, "POST", f"/trees/main@{fork.main}/history/merge", body)
    assert error["message"] == f"No common ancestor in parents of {fork.main} and {lone}"


def test_what_was_merged_before_counts_as_common(nessie: Talk, lake: Lake, fork: Fork) -> None:
    nessie.branch("other")
    lone = nessie.commit(f"other@{EMPTY}", put("x", table(1)))
    lake.merge("other", "main")
    more = nessie.commit(f"other@{lone}", put("y", table(1)))
    body = {"fromRefName": "other", "fromHash": more}
    assert nessie.post(f"/trees/main@{fork.main}/history/merge", body)["commonAncestor"] == lone


def test_a_managed_table_is_brought_with_all_that_clients_do_not_see(
    nessie: Talk, lake: Lake, tmp_path: Path
) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev", root)
    declare(lake, "events", tmp_path, "dev")
    body = {"fromRefName": "dev", "fromHash": nessie.head("dev")}
    nessie.post(f"/trees/main@{root}/history/merge", body)
    there, here = (lake.do(GetLanceTable(at=at, key=Key("events"))) for at in ("dev", "main"))
    assert (here.id, here.location, here.properties) == (there.id, there.location, {"a": "b"})


def test_commits_are_transplanted_in_order_or_not_at_all(nessie: Talk) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev", root)
    one = nessie.commit(f"dev@{root}", put("b", table(1)), message="one")
    two = nessie.commit(f"dev@{one}", put("c", table(1)), message="two")
    head = nessie.commit(f"main@{root}", put("d", table(1)))
    path = f"/trees/main@{head}/history/transplant"
    backwards = {"fromRefName": "dev", "hashesToTransplant": [two, one]}
    assert nessie.refused(400, "POST", path, backwards)["message"] == "Sequence of hashes is not contiguous."
    answer = nessie.post(path, {"fromRefName": "dev", "hashesToTransplant": [one, two], "message": "ignored"})
    assert answer["commonAncestor"] is None
    assert answer["effectiveTargetHash"] == head
    log = nessie.get("/trees/main/history?max-records=3")["logEntries"]
    assert [entry["commitMeta"]["message"] for entry in log] == ["two", "one", "a commit"]
    again = nessie.post(path, {"fromRefName": "dev", "hashesToTransplant": [one, two]})
    assert (again["wasApplied"], again["details"]) == (False, [])


def test_one_commit_is_transplanted_under_another_message(nessie: Talk) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev", root)
    one = nessie.commit(f"dev@{root}", put("b", table(1)), message="one")
    body = {"fromRefName": "dev", "hashesToTransplant": [f"{one}"], "message": "picked"}
    nessie.post(f"/trees/main@{root}/history/transplant", body)
    meta = nessie.get("/trees/main/history?max-records=1")["logEntries"][0]["commitMeta"]
    assert (meta["message"], meta["authors"]) == ("picked", ["Ada"])


def test_a_transplant_may_be_told_of_keys_that_it_does_not_touch(nessie: Talk) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev", root)
    one = nessie.commit(f"dev@{root}", put("b", table(1)))
    body = {
        "fromRefName": "dev",
        "hashesToTransplant": [one],
        "keyMergeModes": [{"key": {"elements": ["never"]}, "mergeBehavior": "FORCE"}],
    }
    answer = nessie.post(f"/trees/main@{root}/history/transplant", body)
    assert answer["wasApplied"] is True
    assert nessie.keys("/trees/main/entries") == ["a", "b"]


def test_a_property_of_a_namespace_that_both_sides_changed_is_a_conflict(nessie: Talk) -> None:
    def namespace(location: str, identity: str | None = None) -> dict[str, Any]:
        properties = {"location": location, "owner": "ada"}
        return {"type": "NAMESPACE", "id": identity, "elements": ["n"], "properties": properties}

    root = nessie.commit(f"main@{EMPTY}", put("n", namespace("s3://root")))
    identity = nessie.content("main", "n")["id"]
    nessie.branch("dev", root)
    dev = nessie.commit(f"dev@{root}", put("n", namespace("s3://dev", identity)))
    main = nessie.commit(f"main@{root}", put("n", namespace("s3://main", identity)))
    for way, body in (
        ("merge", {"fromRefName": "dev", "fromHash": dev}),
        ("transplant", {"fromRefName": "dev", "hashesToTransplant": [dev]}),
    ):
        path = f"/trees/main@{main}/history/{way}"
        for told in ({}, {"isDryRun": True}):
            error = nessie.refused(409, "POST", path, body | told)
            (conflict,) = error["errorDetails"]["conflicts"]
            assert (conflict["conflictType"], conflict["key"]["elements"]) == ("VALUE_DIFFERS", ["n"])
    assert nessie.content("main", "n")["properties"]["location"] == "s3://main"
    body = {"fromRefName": "dev", "fromHash": dev, "defaultKeyMergeMode": "FORCE"}
    assert nessie.post(f"/trees/main@{main}/history/merge", body)["wasApplied"]
    assert nessie.content("main", "n")["properties"]["location"] == "s3://dev"


def test_a_merge_of_a_branch_that_took_back_all_it_changed_is_not_applied(nessie: Talk) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    identity = nessie.content("main", "a")["id"]
    nessie.branch("dev", root)
    there = nessie.commit(f"dev@{root}", put("a", table(2, identity)))
    back = nessie.commit(f"dev@{there}", put("a", table(1, identity)))
    path, body = f"/trees/main@{root}/history/merge", {"fromRefName": "dev", "fromHash": back}
    answer = nessie.post(path, body)
    assert (answer["wasApplied"], answer["wasSuccessful"]) == (False, True)
    assert answer["resultantTargetHash"] == nessie.head("main") == root

    # The key was changed and changed back: it can be dropped, but there is nothing to take by force.
    def mode(key: str, behavior: str) -> dict[str, Any]:
        return {"keyMergeModes": [{"key": {"elements": [key]}, "mergeBehavior": behavior}]}

    dropped = nessie.post(path, body | mode("a", "DROP"))
    assert (dropped["wasApplied"], dropped["details"][0]["mergeBehavior"]) == (False, "DROP")
    for key, behavior in (("a", "FORCE"), ("never", "DROP")):
        message = nessie.refused(400, "POST", path, body | mode(key, behavior))["message"]
        assert message.endswith(f"The following keys were not used: [{key}]")


def test_a_commit_that_changes_nothing_is_transplanted(nessie: Talk) -> None:
    root = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev", root)
    first = nessie.commit(f"dev@{root}", put("b", table(1)), message="first")
    same = put("a", table(1, nessie.content("main", "a")["id"]))
    second = nessie.commit(f"dev@{first}", same, message="second")
    third = nessie.commit(f"dev@{second}", put("c", table(1)), message="third")
    body = {"fromRefName": "dev", "hashesToTransplant": [first, second, third]}
    main = nessie.commit(f"main@{root}", put("m", table(1)), message="main")
    assert nessie.post(f"/trees/main@{main}/history/transplant", body)["wasApplied"]
    log = nessie.get("/trees/main/history?max-records=4")["logEntries"]
    assert [each["commitMeta"]["message"] for each in log] == ["third", "second", "first", "main"]
