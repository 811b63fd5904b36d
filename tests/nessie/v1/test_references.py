"""Branches and tags, as clients of version 1 see them."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.nessie.v1.talking import EMPTY, Nessie, put, table


def test_an_empty_lake_has_an_empty_default_branch(nessie: Nessie) -> None:
    main = {"type": "BRANCH", "name": "main", "hash": EMPTY}
    assert nessie.get("/config") == {"defaultBranch": "main", "maxSupportedApiVersion": 2}
    assert nessie.get("/trees/tree") == main
    assert nessie.get("/trees/tree/main") == main
    assert nessie.get("/trees") == {"hasMore": False, "token": None, "references": [main]}


def test_a_branch_and_a_tag_are_created_assigned_and_deleted(nessie: Nessie) -> None:
    first = nessie.commit(put(table(1), "t"))
    for kind, name in (("BRANCH", "dev/one"), ("TAG", "v1.0")):
        made = {"type": kind, "name": name, "hash": first}
        assert nessie.ask("POST", "/trees/tree?sourceRefName=main", made).json == made
        assert nessie.refused("POST", "/trees/tree?sourceRefName=main", made) == (
            *(409, "REFERENCE_ALREADY_EXISTS"),
            f"Named reference '{name}' already exists.",
        )
        path = f"/trees/{kind.lower()}/{quote(name, safe='')}?expectedHash="
        target = {"type": "BRANCH", "name": "main", "hash": EMPTY, "metadata": None}
        reply = nessie.ask("PUT", path + first, target)
        assert (reply.status, reply.body) == (204, b"")
        assert nessie.get(f"/trees/tree/{quote(name, safe='')}")["hash"] == EMPTY
        status, code, message = nessie.refused("DELETE", path + first)
        assert (status, code) == (409, "REFERENCE_CONFLICT")
        assert message == f"Named-reference '{name}' is not at expected hash '{first}', but at '{EMPTY}'."
        reply = nessie.ask("DELETE", path + EMPTY)
        assert (reply.status, reply.body) == (204, b"")
    assert [each["name"] for each in nessie.get("/trees")["references"]] == ["main"]


def test_a_reference_is_assigned_to_a_commit_without_a_name(nessie: Nessie) -> None:
    nessie.branch("dev")
    first = nessie.commit(put(table(1), "t"))
    target = {"type": "DETACHED", "name": "DETACHED", "hash": first, "metadata": None}
    assert nessie.ask("PUT", f"/trees/branch/dev?expectedHash={EMPTY}", target).status == 204
    assert nessie.head("dev") == first


def test_without_a_source_any_commit_can_be_named(nessie: Nessie) -> None:
    first = nessie.commit(put(table(1), "t"))
    made = {"type": "BRANCH", "name": "dev", "hash": first}
    assert nessie.ask("POST", "/trees/tree", made).json == made


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("GET", "/trees/tree/no", None, (404, "REFERENCE_NOT_FOUND", "Named reference 'no' not found")),
        ("GET", "/trees/tree/a%20b", None, (400, "BAD_REQUEST", "getReferenceByName.params.refName: Ref")),
        ("POST", "/trees/tree", {"type": "TAG", "name": "t"}, (400, "BAD_REQUEST", "Target hash must be")),
        ("POST", "/trees/tree", None, (400, "BAD_REQUEST", "createReference.reference: must not be null")),
        ("POST", "/trees/tree", {"type": "DETACHED", "hash": EMPTY}, (400, "BAD_REQUEST", "Illegal use of")),
        ("PUT", "/trees/branch/main", {}, (400, "BAD_REQUEST", "")),
        (
            *("PUT", "/trees/branch/main", {"type": "BRANCH", "name": "main", "hash": EMPTY}),
            (400, "BAD_REQUEST", "assignReference.expectedHash: must not be null"),
        ),
        (
            *(
                "PUT",
                f"/trees/tag/main?expectedHash={EMPTY}",
                {"type": "BRANCH", "name": "main", "hash": EMPTY},
            ),
            (400, "BAD_REQUEST", "Expected reference type TAG does not match existing reference BranchName"),
        ),
        (
            *("PUT", f"/trees/branch/main?expectedHash={EMPTY}", None),
            (400, "BAD_REQUEST", "assignReference.assignTo: must not be null"),
        ),
        (
            "DELETE",
            "/trees/branch/main",
            None,
            (400, "BAD_REQUEST", "deleteReference.expectedHash: must not"),
        ),
        (
            *("DELETE", "/trees/branch/dev?expectedHash=fail", None),
            (400, "BAD_REQUEST", "deleteReference.expectedHash: Hash must consist of the hex representation"),
        ),
        (
            *("DELETE", f"/trees/branch/main?expectedHash={EMPTY}", None),
            (400, "BAD_REQUEST", "Default branch 'main' cannot be deleted."),
        ),
        (
            *("DELETE", f"/trees/branch/a%20b?expectedHash={EMPTY}", None),
            (400, "BAD_REQUEST", "deleteReference.referenceName: Reference name must start with a letter"),
        ),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(
    empty_nessie: Nessie, method: str, path: str, body: object, told: tuple[int, str, str]
) -> None:
    status, code, message = empty_nessie.refused(method, path, body)
    assert (status, code) == told[:2]
    assert message.startswith(told[2])


def test_a_list_has_all_references_unless_its_reader_wants_fewer(nessie: Nessie) -> None:
    names = [f"b{number}" for number in range(6)]
    for name in names:
        nessie.branch(name)
    everything = nessie.get("/trees")
    assert [each["name"] for each in everything["references"]] == [*names, "main"]
    assert (everything["hasMore"], everything["token"]) == (False, None)
    first = nessie.get("/trees?maxRecords=3")
    rest = nessie.get(f"/trees?maxRecords=4&pageToken={first['token']}")
    assert [each["name"] for each in first["references"] + rest["references"]] == [*names, "main"]
    assert (first["hasMore"], rest["hasMore"]) == (True, False)


def test_more_is_told_of_references_if_it_is_asked_for(nessie: Nessie) -> None:
    first = nessie.commit(
        put(table(1), "t"), meta={"message": "one", "author": "Ada", "properties": {"team": "x"}}
    )
    nessie.branch("dev")
    nessie.commit(put(table(2), "u"), branch="dev", meta={"message": "two"})
    shown = {each["name"]: each["metadata"] for each in nessie.get("/trees?fetch=ALL")["references"]}
    assert shown["dev"]["numCommitsAhead"] == 1
    assert shown["dev"]["commonAncestorHash"] == first
    assert shown["main"]["commitMetaOfHEAD"].keys() == {
        *("hash", "committer", "author", "signedOffBy", "message", "commitTime", "authorTime", "properties"),
    }
    assert shown["main"]["commitMetaOfHEAD"]["author"] == "Ada"
    assert shown["main"]["commitMetaOfHEAD"]["properties"] == {"team": "x"}
    assert nessie.get("/trees/tree/dev?fetch=ALL")["metadata"] == shown["dev"]
    kept = nessie.get("/trees?fetch=ALL&filter=" + quote("commit.message == 'two'"))["references"]
    assert [each["name"] for each in kept] == ["dev"]
