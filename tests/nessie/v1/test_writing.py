"""Commits, merges and transplants, as clients of version 1 ask for them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.nessie.v1.talking import EMPTY, Nessie, delete, key, put, table

UNKNOWN = "11" * 32


def test_a_commit_as_pynessie_sends_it_is_made(nessie: Nessie) -> None:
    nothing = dict.fromkeys(("hash", "commitTime", "authorTime", "committer", "signedOffBy", "properties"))
    first = nessie.commit(
        put(table(1), "t") | {"expectedContent": None}, meta={"message": "x", "author": "Ada", **nothing}
    )
    stored = nessie.get("/contents/t")
    second = nessie.commit(put(table(2, stored["id"]), "t") | {"expectedContent": table(7, stored["id"])})
    assert nessie.get("/contents/t") == table(2, stored["id"])
    log = nessie.get("/trees/tree/main/log")["logEntries"]
    assert [each["commitMeta"]["hash"] for each in log] == [second, first]
    assert log[1]["commitMeta"]["author"] == "Ada"


def test_a_commit_at_an_older_hash_conflicts_only_if_its_keys_changed(nessie: Nessie) -> None:
    first = nessie.commit(put(table(1), "t"))
    identity = nessie.get("/contents/t")["id"]
    nessie.commit(put(table(2, identity), "t"))
    stale = {"commitMeta": {"message": "stale"}, "operations": [put(table(3, identity), "t")]}
    assert nessie.refused("POST", f"/trees/branch/main/commit?expectedHash={first}", stale) == (
        *(409, "REFERENCE_CONFLICT"),
        "Values of existing and expected content for key 't' are different.",
    )
    other = {"commitMeta": {"message": "other"}, "operations": [put(table(3), "u")]}
    assert nessie.ask("POST", f"/trees/branch/main/commit?expectedHash={first}", other).status == 200


BODIES: dict[str, dict[str, Any]] = {
    "commit": {"commitMeta": {"message": "x"}, "operations": [delete("t")]},
    "merge": {"fromRefName": "main", "fromHash": EMPTY},
    "transplant": {"fromRefName": "main", "hashesToTransplant": [UNKNOWN]},
}
OPERATIONS = {
    "commit": "commitMultipleOperations",
    "merge": "mergeRefIntoBranch",
    "transplant": "transplantCommitsIntoBranch",
}


@pytest.mark.parametrize("what", BODIES)
def test_every_write_names_a_branch_and_the_hash_that_it_knows(nessie: Nessie, what: str) -> None:
    named, body = OPERATIONS[what], BODIES[what]
    for path, told in (
        (f"main/{what}", f"{named}.expectedHash: must not be null"),
        (f"main/{what}?expectedHash=fail", f"{named}.expectedHash: Hash must consist of the hex"),
        (f"main/{what}?expectedHash={EMPTY}~1", f"{named}.expectedHash: Hash must consist of the hex"),
        (f"a%20b/{what}?expectedHash={EMPTY}", f"{named}.branchName: Reference name must start"),
    ):
        status, code, message = nessie.refused("POST", f"/trees/branch/{path}", body)
        assert (status, code) == (400, "BAD_REQUEST")
        assert message.startswith(told)
    status, code, message = nessie.refused("POST", f"/trees/branch/main/{what}?expectedHash={EMPTY}")
    assert (status, code) == (400, "BAD_REQUEST")
    assert message.startswith(named)
    assert message.endswith(": must not be null")
    status, code, _ = nessie.refused("POST", f"/trees/branch/no/{what}?expectedHash={EMPTY}", body)
    assert (status, code) == (404, "REFERENCE_NOT_FOUND")


def test_a_commit_at_a_hash_that_is_not_of_the_branch_is_refused(nessie: Nessie) -> None:
    assert nessie.refused("POST", f"/trees/branch/main/commit?expectedHash={UNKNOWN}", BODIES["commit"]) == (
        *(404, "REFERENCE_NOT_FOUND"),
        f"Could not find commit '{UNKNOWN}' in reference 'main'.",
    )


def test_a_merge_is_tried_made_and_not_repeated(nessie: Nessie) -> None:
    base = nessie.commit(put(table(1), "t"))
    nessie.branch("dev")
    source = nessie.commit(put(table(2), "u"), branch="dev")
    path = f"/trees/branch/main/merge?expectedHash={base}"
    merge = {"fromRefName": "dev", "fromHash": source}
    tried = nessie.ask("POST", path, merge | {"isDryRun": True}).json
    assert (tried["wasApplied"], tried["resultantTargetHash"]) == (False, None)
    made = nessie.ask("POST", path, merge).json
    after = nessie.head()
    assert made == {
        "wasApplied": True,
        "wasSuccessful": True,
        "resultantTargetHash": after,
        "commonAncestor": base,
        "targetBranch": "main",
        "effectiveTargetHash": base,
        "expectedHash": base,
        "sourceCommits": [],
        "targetCommits": None,
        "details": [
            {
                "key": key("u"),
                "mergeBehavior": "NORMAL",
                "conflictType": "NONE",
                "sourceCommits": [],
                "targetCommits": [],
            }
        ],
    }
    again = nessie.ask("POST", path, merge).json
    assert (again["wasApplied"], again["details"], nessie.head()) == (False, [], after)
    told = nessie.get("/trees/tree/main/log?maxRecords=1")["logEntries"][0]["commitMeta"]["message"]
    assert told == f"Merged dev at {source} into main at {base}"


def test_a_conflict_is_an_error_or_an_answer_as_the_client_likes(nessie: Nessie) -> None:
    base = nessie.commit(put(table(1), "t"))
    identity = nessie.get("/contents/t")["id"]
    nessie.branch("dev")
    source = nessie.commit(put(table(2, identity), "t"), branch="dev")
    head = nessie.commit(put(table(3, identity), "t"))
    path = f"/trees/branch/main/merge?expectedHash={base}"
    merge = {"fromRefName": "dev", "fromHash": source}
    assert nessie.refused("POST", path, merge) == (
        *(409, "REFERENCE_CONFLICT"),
        "The following keys have been changed in conflict: 't'",
    )
    told = nessie.ask("POST", path, merge | {"isReturnConflictAsResult": True}).json
    assert (told["wasSuccessful"], told["details"][0]["conflictType"]) == (False, "UNRESOLVABLE")
    assert nessie.head() == head
    forced = nessie.ask("POST", path, merge | {"defaultKeyMergeMode": "FORCE"}).json
    assert forced["wasApplied"]
    assert nessie.get("/contents/t")["snapshotId"] == 2


def test_commits_are_transplanted(nessie: Nessie) -> None:
    base = nessie.commit(put(table(1), "t"))
    nessie.branch("dev")
    nessie.commit(put(table(2), "u"), branch="dev", meta={"message": "not this one"})
    wanted = nessie.commit(put(table(3), "v"), branch="dev", meta={"message": "this one", "author": "Dee"})
    body = {"fromRefName": "dev", "hashesToTransplant": [wanted], "keepIndividualCommits": True}
    made = nessie.ask("POST", f"/trees/branch/main/transplant?expectedHash={base}", body).json
    assert (made["wasApplied"], made["commonAncestor"], made["sourceCommits"]) == (True, None, [])
    newest = nessie.get("/trees/tree/main/log")["logEntries"][0]["commitMeta"]
    assert (newest["hash"], newest["message"], newest["author"]) == (nessie.head(), "this one", "Dee")
    assert [each["name"] for each in nessie.get("/trees/tree/main/entries")["entries"]] == [
        key("t"),
        key("v"),
    ]


def test_a_transplant_of_one_commit_can_be_told_what_to_say(nessie: Nessie) -> None:
    base = nessie.commit(put(table(1), "t"))
    nessie.branch("dev")
    wanted = nessie.commit(put(table(3), "v"), branch="dev", meta={"message": "original"})
    body = {"fromRefName": "dev", "hashesToTransplant": [wanted]}
    path = f"/trees/branch/main/transplant?expectedHash={base}&message=picked"
    assert nessie.ask("POST", path, body).status == 200
    assert nessie.get("/trees/tree/main/log")["logEntries"][0]["commitMeta"]["message"] == "picked"


@pytest.mark.parametrize(
    ("what", "body", "told"),
    [
        ("merge", {"keepIndividualCommits": True}, "Merge operations only support squashed now."),
        (
            "transplant",
            {"keepIndividualCommits": False},
            "Transplant operations only support unsquashed now.",
        ),
        ("merge", {"fromRefName": "a b"}, "mergeRefIntoBranch.merge.fromRefName: Reference name must start"),
        (
            "transplant",
            {"hashesToTransplant": []},
            "hashesToTransplant: size must be between 1 and 2147483647",
        ),
        ("commit", {"operations": []}, "operations.operations: size must be between 1 and 2147483647"),
        ("commit", {"commitMeta": {"message": "x", "hash": UNKNOWN}}, "Cannot set the commit hash"),
    ],
)
def test_wrong_writes_are_told_what_is_wrong(
    empty_nessie: Nessie, what: str, body: dict[str, Any], told: str
) -> None:
    path = f"/trees/branch/main/{what}?expectedHash={EMPTY}"
    status, code, message = empty_nessie.refused("POST", path, BODIES[what] | body)
    assert (status, code) == (400, "BAD_REQUEST")
    assert told in message


def test_all_that_is_wrong_with_a_request_is_told_at_once(empty_nessie: Nessie) -> None:
    operation = "commitMultipleOperations"
    status, _, told = empty_nessie.refused("POST", "/trees/branch/in%20valid/commit")
    assert status == 400
    assert [each.split(": ")[0] for each in re.split(rf", (?={operation})", told)] == [
        f"{operation}.operations",
        f"{operation}.branchName",
        f"{operation}.expectedHash",
    ]
    body = {"commitMeta": {"message": "m"}, "operations": []}
    told = empty_nessie.refused("POST", "/trees/branch/main/commit?expectedHash=x", body)[2]
    assert told == (
        f"{operation}.operations.operations: size must be between 1 and 2147483647, "
        f"{operation}.expectedHash: Hash must consist of the hex representation of 4-32 bytes"
    )
    told = empty_nessie.refused("DELETE", "/trees/branch/1")[2]
    assert told.endswith(", deleteReference.expectedHash: must not be null")
    assert told.startswith("deleteReference.referenceName: ")
