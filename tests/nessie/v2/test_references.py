"""Branches and tags through Nessie's API."""

from __future__ import annotations

import pytest

from penstock.lake.lake import Lake
from tests.nessie.v2.talking import EMPTY, Talk, put, table


def test_references_come_page_by_page_first_branches_then_tags(nessie: Talk) -> None:
    for name in ("b1", "b2", "a/b", "z", "b3"):
        nessie.branch(name)
    for name in ("t1", "a-tag"):
        nessie.branch(name, kind="TAG")
    for size in (1, 2, 3, 5):
        pages = nessie.pages(f"/trees?max-records={size}", "references")
        assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
        names = [one["name"] for page in pages for one in page]
        assert names == ["a/b", "b1", "b2", "b3", "main", "z", "a-tag", "t1"]


def test_a_page_is_never_longer_than_the_server_allows(nessie: Talk) -> None:
    for number in range(8):
        nessie.branch(f"b{number}")
    answer = nessie.get("/trees?max-records=1000")
    assert len(answer["references"]) == 5
    assert answer["hasMore"] is True


def test_a_page_begins_where_the_token_says_also_if_that_reference_is_gone(nessie: Talk) -> None:
    for name in ("a", "b", "c", "d"):
        nessie.branch(name)
    token = nessie.get("/trees?max-records=2")["token"]
    assert bytes.fromhex(token) == b"refs/heads/c"
    assert nessie.ask("DELETE", f"/trees/c@{EMPTY}").status == 200
    assert [one["name"] for one in nessie.get(f"/trees?page-token={token}")["references"]] == ["d", "main"]


@pytest.mark.parametrize("token", ["zz", "6", "ff", b"elsewhere/x".hex()])
def test_a_token_that_is_none_is_refused(nessie: Talk, token: str) -> None:
    assert nessie.refused(400, "GET", f"/trees?page-token={token}")["errorCode"] == "BAD_REQUEST"


def test_a_filter_goes_on_to_the_next_reference_that_it_keeps(nessie: Talk) -> None:
    for number in range(12):
        nessie.branch(f"b{number:02}")
    pages = nessie.pages("/trees?max-records=2&filter=ref.name.endsWith('1')", "references")
    assert [[one["name"] for one in page] for page in pages] == [["b01", "b11"]]


def test_a_branch_is_compared_with_the_default_branch_by_first_parents(nessie: Talk) -> None:
    at = [nessie.commit(f"main@{EMPTY}", put("t0", table(0)))]
    for number in range(1, 6):
        at.append(nessie.commit(f"main@{at[-1]}", put(f"t{number}", table(number))))
    nessie.branch("dev", at[2])
    first = nessie.commit(f"dev@{at[2]}", put("d0", table(0)))
    last = nessie.commit(f"dev@{first}", put("d1", table(1)))
    metadata = nessie.get("/trees/dev?fetch=ALL")["reference"]["metadata"]
    assert metadata["numCommitsAhead"] == 2
    assert metadata["numCommitsBehind"] == 3
    assert metadata["commonAncestorHash"] == at[2]
    assert metadata["numTotalCommits"] == 5
    assert metadata["commitMetaOfHEAD"]["hash"] == last
    nessie.post(f"/trees/main@{at[-1]}/history/merge", {"fromRefName": "dev", "fromHash": last})
    assert nessie.get("/trees/dev?fetch=ALL")["reference"]["metadata"]["commonAncestorHash"] == at[2]


def test_branches_that_share_nothing_meet_at_the_empty_lake(nessie: Talk) -> None:
    nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("other")
    nessie.commit(f"other@{EMPTY}", put("b", table(1)))
    metadata = nessie.get("/trees/other?fetch=ALL")["reference"]["metadata"]
    assert metadata["commonAncestorHash"] == EMPTY
    assert (metadata["numCommitsAhead"], metadata["numCommitsBehind"]) == (1, 1)


def test_recent_changes_are_those_of_the_reference_as_it_was_created_last(nessie: Talk) -> None:
    nessie.branch("dev")
    old = nessie.commit(f"dev@{EMPTY}", put("a", table(1)))
    assert nessie.ask("DELETE", f"/trees/dev@{old}").status == 200
    nessie.branch("dev")
    assert nessie.get("/trees/dev/recent-changes")["previous"] == []
    new = nessie.commit(f"dev@{EMPTY}", put("b", table(1)))
    told = nessie.get("/trees/dev/recent-changes?scan-commits=5")
    assert told["current"]["commitHash"] == new
    assert [state["commitHash"] for state in told["previous"]] == [EMPTY]
    assert told["commitLogConsistency"] == "COMMIT_CONSISTENT"


def test_a_reference_is_assigned_and_deleted_only_where_it_is_expected(nessie: Talk) -> None:
    head = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev")
    to = {"type": "BRANCH", "name": "main", "hash": head}
    error = nessie.refused(409, "PUT", f"/trees/dev@{head}", to)
    assert error["errorDetails"]["conflicts"][0]["conflictType"] == "UNEXPECTED_HASH"
    assert nessie.ask("PUT", f"/trees/dev@{EMPTY}", to).json["reference"]["hash"] == head
    nessie.refused(409, "DELETE", f"/trees/dev@{EMPTY}")
    assert nessie.ask("DELETE", f"/trees/dev@{head}").status == 200
    nessie.refused(404, "GET", "/trees/dev")


def test_a_new_reference_is_put_only_where_its_source_leads(nessie: Talk, lake: Lake) -> None:
    head = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    nessie.branch("dev")
    source = {"type": "BRANCH", "name": "dev", "hash": head}
    error = nessie.refused(404, "POST", "/trees?name=x&type=BRANCH", source)
    assert error["message"] == f"Could not find commit '{head}' in reference 'dev'."
    assert [branch.name for branch in lake.branches()] == ["dev", "main"]


def test_a_name_with_slashes_is_found_in_every_way_to_write_it(nessie: Talk) -> None:
    nessie.branch("team/a/dev")
    for path in ("team/a/dev@", "team%2Fa%2Fdev", f"team/a/dev@{EMPTY}", f"team%2Fa%2Fdev%40{EMPTY}"):
        answer = nessie.get(f"/trees/{path}/entries")
        assert answer["effectiveReference"]["name"] == "team/a/dev"
    assert nessie.ask("GET", "/trees/team/a/dev/entries").status == 404


def test_what_a_relative_reference_comes_to_must_be_on_the_branch_not_where_it_starts(nessie: Talk) -> None:
    one = nessie.commit(f"main@{EMPTY}", put("a", table(1)))
    two = nessie.commit(f"main@{one}", put("b", table(1)))
    nessie.branch("dev", two)
    three = nessie.commit(f"dev@{two}", put("c", table(1)))
    four = nessie.commit(f"dev@{three}", put("d", table(1)))
    assert nessie.keys(f"/trees/main@{three}~1/entries") == ["a", "b"]
    assert nessie.keys(f"/trees/main@{four}~3/entries") == ["a"]
    assert nessie.keys(f"/trees/main@{four}~9/entries") == []
    assert nessie.refused(404, "GET", f"/trees/main@{four}~1/entries")["message"] == (
        f"Could not find commit '{three}' in reference 'main'."
    )
    nessie.branch("left", two)
    nessie.commit(f"main@{three}~1", put("e", table(1)))
    stale = nessie.refused(409, "DELETE", f"/trees/left@{four}~3")
    assert stale["errorDetails"]["conflicts"][0]["conflictType"] == "UNEXPECTED_HASH"
    elsewhere = nessie.refused(409, "DELETE", f"/trees/left@{four}~1")
    assert f"expected hash '{three}'" in elsewhere["message"]
    nessie.refused(404, "DELETE", f"/trees/left@{'ab' * 32}~1")
    assert nessie.ask("DELETE", f"/trees/left@{three}~1").status == 200
