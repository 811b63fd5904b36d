"""What a program does with Nessie's Python client. Runs in that client's own environment, not in Penstock's:

    python pynessie_scenarios.py SCENARIO URI BRANCH

BRANCH exists and has no table. A scenario ends without a word, or with the assertion that failed.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.request import Request, urlopen

from pynessie import init  # type: ignore[import-not-found]
from pynessie.error import (  # type: ignore[import-not-found]
    NessieConflictException,
    NessieContentNotFoundException,
    NessieReferenceAlreadyExistsException,
    NessieReferenceConflictException,
    NessieReferenceNotFoundException,
)
from pynessie.model import (  # type: ignore[import-not-found]
    ContentKey,
    Delete,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    Namespace,
    Put,
    Unchanged,
)


def main() -> None:
    scenario, uri, branch = sys.argv[1:]
    client = init(config_dict={"endpoint": f"{uri}/api/v1", "verify": True})
    globals()[scenario](client, branch)


def every_content_comes_back_as_it_went(client: Any, branch: str) -> None:
    contents = {
        "sales": Namespace(None, ["sales"]),
        "sales.orders": table(1),
        "sales.by_day": IcebergView(None, "s3://lake/by_day.json", 3, 4, "spark", "SELECT 1"),
        "clicks": DeltaLakeTable(
            None, "s3://lake/checkpoint", ["s3://lake/checkpoint"], ["s3://lake/1.json"]
        ),
    }
    head = commit(client, branch, *(Put(key(name), content) for name, content in contents.items()))
    for name, content in contents.items():
        found = client.get_content(branch, key(name))
        assert found.id
        content.id = found.id
        assert found == content, found
        assert client.get_content(f"{branch}@{head}", key(name)) == content
        assert client.get_content(branch, key(name), hash_on_ref=head) == content
    assert sorted((entry.kind, entry.name.elements) for entry in client.list_keys(branch).entries) == [
        ("DELTA_LAKE_TABLE", ["clicks"]),
        ("ICEBERG_TABLE", ["sales", "orders"]),
        ("ICEBERG_VIEW", ["sales", "by_day"]),
        ("NAMESPACE", ["sales"]),
    ]


def a_namespaces_properties_are_not_seen_and_stay(client: Any, branch: str) -> None:
    commit(client, branch, Put(key("sales"), Namespace(None, ["sales"])))
    found = client.get_content(branch, key("sales"))
    content = {"type": "NAMESPACE", "id": found.id, "elements": ["sales"], "properties": {"owner": "ada"}}
    operations = [{"type": "PUT", "key": {"elements": ["sales"]}, "content": content}]
    body = {"commitMeta": {"message": "by another client"}, "operations": operations}
    path = f"trees/branch/{branch}/commit?expectedHash={client.get_reference(branch).hash_}"
    by_another_client(path, body)
    assert client.get_content(branch, key("sales")) == found
    assert client.get_log(branch, fetch_all=True)
    commit(client, branch, Put(key("sales"), found), Put(key("sales.orders"), table(1)))
    assert by_another_client(f"contents/sales?ref={branch}") == content


def by_another_client(path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{sys.argv[2]}/api/v1/{path}", data, headers)) as answer:
        return json.load(answer)


def one_commit_carries_several_operations(client: Any, branch: str) -> None:
    commit(client, branch, Put(key("a"), table(1)), Put(key("b"), table(1)), Put(key("c"), table(1)))
    old = client.get_content(branch, key("a"))
    new = table(2, old.id)
    operations = [Put(key("a"), new, old), Delete(key("b")), Unchanged(key("c"))]
    head = commit(client, branch, *operations)
    assert client.get_content(branch, key("a")) == new
    assert [entry.name.elements for entry in client.list_keys(branch).entries] == [["a"], ["c"]]
    (last,) = client.get_log(branch, max_records=1, fetch_all=True)
    assert (last.commit_meta.hash_, last.commit_meta.message) == (head, "a commit")
    assert sorted(type(operation).__name__ for operation in last.operations) == ["Delete", "Put"]


def a_commit_meta_is_complete(client: Any, branch: str) -> None:
    commit(client, branch, Put(key("a"), table(1)))
    (entry,) = client.get_log(branch)
    meta = entry.commit_meta
    assert (meta.author, meta.message) == ("anna", "a commit")
    assert meta.committer is not None
    assert meta.commitTime.tzinfo is not None
    assert meta.authorTime.tzinfo is not None
    assert meta.properties == {}


def a_long_log_comes_in_pages(client: Any, branch: str) -> None:
    hashes = [commit(client, branch, Put(key(f"t{number}"), table(1))) for number in range(7)]
    hashes.reverse()
    assert [entry.commit_meta.hash_ for entry in client.get_log(branch)] == hashes
    assert [entry.commit_meta.hash_ for entry in client.get_log(branch, max_records=3)] == hashes[:3]
    # The token of a page of the log is the hash of the next page's first commit.
    rest = client.get_log(branch, max_records=50, pageToken=hashes[3])
    assert [entry.commit_meta.hash_ for entry in rest] == hashes[3:]


def keys_come_in_pages(client: Any, branch: str) -> None:
    names = [f"t{number}" for number in range(7)]
    commit(client, branch, *(Put(key(name), table(1)) for name in names))
    seen: list[str] = []
    token, pages = None, 0
    while True:
        page = client.list_keys(branch, max_result_hint=3, page_token=token)
        seen += [entry.name.elements[0] for entry in page.entries]
        token, pages = page.token, pages + 1
        if not page.has_more:
            break
    assert (seen, pages) == (names, 3)


def keys_may_hold_dots_and_other_letters(client: Any, branch: str) -> None:
    for elements in (["a.b"], ["größe"], ["with space"], ["q?&#=+"], ["per%cent"], ["sla/sh"]):
        commit(client, branch, Put(ContentKey(elements), table(1)))
        listed = [entry.name.elements for entry in client.list_keys(branch).entries]
        assert elements in listed, listed
        # The client does not escape these two inside a path, as newer clients do.
        if not set("/%") & set(elements[0]):
            assert client.get_content(branch, ContentKey(elements)).snapshot_id == 1


def branches_and_tags_move(client: Any, branch: str) -> None:
    first = commit(client, branch, Put(key("a"), table(1)))
    second = commit(client, branch, Put(key("b"), table(1)))
    dev, tag = f"{branch}/dev", f"{branch}-tag"
    assert client.create_branch(dev, branch, first).hash_ == first
    assert client.create_tag(tag, branch, second).hash_ == second
    client.assign_branch(dev, branch, second)
    assert client.get_reference(dev).hash_ == second
    client.assign_tag(tag, first)
    assert client.get_reference(tag).hash_ == first
    assert client.get_reference(None).name == client.get_default_branch() == "main"
    names = [reference.name for reference in client.list_references(fetch_all=True).references]
    assert {dev, tag, branch} <= set(names)
    client.delete_tag(tag, first)
    client.delete_branch(dev, second)
    fails(NessieReferenceNotFoundException, lambda: client.get_reference(dev))


def merges_and_cherry_picks_answer_with_their_commits(client: Any, branch: str) -> None:
    base = commit(client, branch, Put(key("a"), table(1)))
    dev = f"{branch}-dev"
    client.create_branch(dev, branch, base)
    picked = commit(client, dev, Put(key("b"), table(1)))
    commit(client, dev, Put(key("c"), table(1)))

    answer = client.cherry_pick(branch, dev, base, picked)
    assert (answer.was_applied, answer.was_successful, answer.target_branch) == (True, True, branch)
    assert answer.resultant_target_hash == client.get_reference(branch).hash_
    before = answer.resultant_target_hash
    commit(client, branch, Put(key("d"), table(1)))
    other = f"{branch}-other"
    client.create_branch(other, branch, base)
    merged = client.merge(dev, other)
    assert (merged.common_ancestor, merged.effective_target_hash) == (base, base)
    assert merged.was_applied
    assert before != merged.resultant_target_hash == client.get_reference(other).hash_


def refusals_are_told_apart(client: Any, branch: str) -> None:
    first = commit(client, branch, Put(key("a"), table(1)))
    old = client.get_content(branch, key("a"))
    second = commit(client, branch, Put(key("a"), table(2, old.id)))

    error = fails(NessieReferenceNotFoundException, lambda: client.get_reference(f"{branch}-absent"))
    assert (error.status_code, error.server_stack_trace) == (404, None)
    fails(NessieContentNotFoundException, lambda: client.get_content(branch, key("absent")))
    fails(NessieReferenceAlreadyExistsException, lambda: client.create_branch(branch, branch, first))
    fails(NessieReferenceConflictException, lambda: client.delete_branch(branch, first))
    late = Put(key("a"), table(3, old.id))
    fails(NessieConflictException, lambda: client.commit(branch, first, "late", "anna", late))
    unrelated = Put(key("z"), table(1))
    assert client.commit(branch, first, "late, but of another table", "anna", unrelated).hash_ != second


def fails(expected: type[Exception], act: Any) -> Any:
    try:
        act()
    except expected as error:
        return error
    raise AssertionError(f"no {expected.__name__}")


def commit(client: Any, branch: str, *operations: Any) -> str:
    head = client.get_reference(branch).hash_
    return str(client.commit(branch, head, "a commit", "anna", *operations).hash_)


def key(path: str) -> Any:
    return ContentKey(path.split("."))


def table(version: int, identity: str | None = None) -> Any:
    return IcebergTable(identity, f"s3://lake/v{version}.json", version, 1, 2, 3)


if __name__ == "__main__":
    main()
