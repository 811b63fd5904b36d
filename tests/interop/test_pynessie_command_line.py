"""Every command of Nessie's Python command line against a started server, in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.nessie_program import Program, installed_program
from tests.interop.rest import Nessie

A_LONG_TIME_AGO = "2001-01-01T00:00:00+00:00"
IN_A_LONG_TIME = "2999-12-30T23:00:00+00:00"


@pytest.fixture
def program(nessie_uri: str, tmp_path: Path) -> Program:
    return installed_program(nessie_uri, tmp_path)


def table(version: int, identity: str | None = None) -> dict[str, object]:
    return {
        "type": "ICEBERG_TABLE",
        "id": identity,
        "metadataLocation": f"s3://lake/orders/v{version}.json",
        "snapshotId": version,
        "schemaId": 1,
        "specId": 2,
        "sortOrderId": 3,
    }


def messages(log: list[dict[str, Any]]) -> list[str]:
    return [str(entry["message"]) for entry in log]


def test_the_program_says_its_version(program: Program) -> None:
    assert program("--version").startswith("nessie version")


def test_config_keeps_what_it_is_told(program: Program) -> None:
    program.ended(0, "config", "--add", "auth.timeout", "--type", "int", "7")
    assert program.ended(0, "config", "--get", "auth.timeout", "--type", "int").strip() == "7"
    assert program.ended(0, "config", "--type", "int", "auth.timeout").strip() == "7"
    assert "timeout: 7" in program.ended(0, "config", "--list")
    program.ended(0, "config", "--unset", "auth.timeout")
    assert "timeout: 7" not in program.ended(0, "config", "--list")


def test_remote_names_the_server_and_its_references(program: Program, trunk: str) -> None:
    program.ended(0, "remote", "add", program.endpoint)
    shown = program.ended(0, "remote", "show").splitlines()
    assert shown[:2] == [f"Remote URL: {program.endpoint}", "Default branch: main"]
    assert f"\t{trunk}" in shown


def test_remote_set_head_changes_the_branch_that_commands_mean(
    program: Program, nessie: Nessie, trunk: str
) -> None:
    program.ended(0, "remote", "add", program.endpoint)
    nessie.put(trunk, "orders", table(1), "on the trunk")
    program.ended(0, "remote", "set-head", trunk)
    assert messages(json.loads(program.ended(0, "--json", "log"))) == ["on the trunk"]
    program.ended(0, "remote", "set-head", "-d", trunk)
    assert "on the trunk" not in messages(json.loads(program.ended(0, "--json", "log")))


def test_branches_are_created_listed_assigned_and_deleted(
    program: Program, nessie: Nessie, trunk: str
) -> None:
    first = nessie.put(trunk, "orders", table(1), "first")
    second = nessie.put(trunk, "customers", table(1), "second")
    dev, old = f"{trunk}-dev", f"{trunk}-old"

    program("branch", dev, trunk)
    program("branch", "-o", first, old, trunk)
    assert (nessie.head(dev), nessie.head(old)) == (second, first)
    assert {trunk, dev, old} <= {each["name"] for each in program.json("branch")}
    assert f"{dev} " in program("-v", "branch", "-l")

    program("branch", "-f", dev, f"{trunk}@{first}")
    assert nessie.head(dev) == first
    program("branch", "-f", "-c", first, dev, trunk)
    assert nessie.head(dev) == second

    program("branch", "-d", dev)
    assert program("--json", "branch", "-l", dev).strip() == "{}"


def test_a_branch_without_a_base_starts_at_main(program: Program, nessie: Nessie, trunk: str) -> None:
    program("branch", f"{trunk}-from-main")
    assert nessie.head(f"{trunk}-from-main") == nessie.head("main")


def test_what_cannot_be_done_to_a_branch_is_refused_by_its_code(
    program: Program, nessie: Nessie, trunk: str
) -> None:
    first = nessie.put(trunk, "orders", table(1), "first")
    nessie.put(trunk, "orders", table(2), "second")
    dev = f"{trunk}-dev"
    program("branch", dev, trunk)

    assert program.refused("branch", dev, trunk)["error_code"] == "REFERENCE_ALREADY_EXISTS"
    assert program.refused("branch", "-d", "-o", first, dev)["error_code"] == "REFERENCE_CONFLICT"
    assert program.refused("branch", "-f", "-c", first, dev, "main")["error_code"] == "REFERENCE_CONFLICT"
    absent = program.refused("branch", "-d", f"{trunk}-absent")
    assert (absent["error_code"], absent["status_code"]) == ("REFERENCE_NOT_FOUND", 404)
    assert f"{trunk}-absent" in absent["server_message"]
    assert program.refused("branch", "-d", "main")["error_code"] == "BAD_REQUEST"


def test_extended_listings_count_commits_ahead_and_behind(
    program: Program, nessie: Nessie, trunk: str
) -> None:
    dev = f"{trunk}-dev"
    program("branch", dev)
    at_main = nessie.head("main")
    head = nessie.put(dev, f"orders-{trunk}", table(1), "one ahead")

    metadata = program.json("branch", "-x", "-l", dev)["metadata"]
    assert (metadata["numCommitsAhead"], metadata["numCommitsBehind"]) == (1, 0)
    assert metadata["commonAncestorHash"] == at_main
    assert metadata["commitMetaOfHEAD"]["hash"] == head
    assert metadata["commitMetaOfHEAD"]["message"] == "one ahead"
    assert metadata["commitMetaOfHEAD"]["author"] == "anna"


def test_tags_are_created_listed_moved_and_deleted(program: Program, nessie: Nessie, trunk: str) -> None:
    first = nessie.put(trunk, "orders", table(1), "first")
    second = nessie.put(trunk, "orders", table(2), "second")
    tag = f"{trunk}-v1"

    program("tag", tag, f"{trunk}@{first}")
    assert program.json("tag", "-l", tag)["hash"] == first
    assert program.json("tag", "-l", tag)["type"] == "TAG"
    assert tag in program("tag")
    program("tag", "-f", tag, trunk)
    assert program.json("tag", "-l", tag)["hash"] == second
    program("tag", "-f", "-o", first, "-c", second, tag, trunk)
    extended = program.json("tag", "-x", "-l", tag)
    assert (extended["hash"], extended["metadata"]["numTotalCommits"]) == (first, 1)
    assert [entry["hash"] for entry in program.json("log", tag)] == [first]
    program("tag", "-d", tag)
    assert program("--json", "tag", "-l", tag).strip() == "{}"


def test_the_log_can_be_cut_and_filtered(program: Program, nessie: Nessie, trunk: str) -> None:
    hashes = [
        nessie.put(trunk, "orders", table(1), "by anna", author="anna"),
        nessie.put(trunk, "orders", table(2), "by ben", author="ben"),
        nessie.put(trunk, "orders", table(3), "by cleo", author="cleo"),
    ]
    everything = ["by cleo", "by ben", "by anna"]

    def log(*options: str) -> list[str]:
        return messages(program.json("log", *options))

    assert log(trunk) == everything
    assert [entry["hash"] for entry in program.json("log", trunk)] == hashes[::-1]
    assert log("-n", "2", trunk) == everything[:2]
    assert log(f"{trunk}@{hashes[1]}") == everything[1:]
    assert log(hashes[0]) == everything[2:]
    # The program's help calls the first hash exclusive; with Nessie itself both ends are in.
    assert log("-r", f"{hashes[0]}..{hashes[1]}", trunk) == ["by ben", "by anna"]
    assert log("--author", "anna", "--author", "ben", trunk) == everything[1:]
    assert log("--committer", "nobody of that name", trunk) == []
    assert log("--since", A_LONG_TIME_AGO, "--until", IN_A_LONG_TIME, trunk) == everything
    assert log("--until", A_LONG_TIME_AGO, trunk) == []
    assert log("--filter", "commit.message.startsWith('by b')", trunk) == ["by ben"]
    assert program.refused("log", "--filter", "commit.", trunk)["error_code"] == "BAD_REQUEST"
    assert program.refused("log", f"{trunk}-absent")["error_code"] == "REFERENCE_NOT_FOUND"


def test_the_extended_log_tells_the_operations(program: Program, nessie: Nessie, trunk: str) -> None:
    first = nessie.put(trunk, "orders", table(1), "first")
    program("content", "commit", "-R", "-r", trunk, "-c", first, "-m", "drop it", "orders")

    dropped, put = program.json("log", "-x", trunk)
    assert dropped["operations"] == [{"type": "DELETE", "key": {"elements": ["orders"]}}]
    assert dropped["parentCommitHash"] == first
    assert [each["type"] for each in put["operations"]] == ["PUT"]
    assert put["operations"][0]["content"]["metadataLocation"] == "s3://lake/orders/v1.json"
    assert "Delete of orders" in program("log", "-x", trunk)


def test_contents_are_committed_listed_and_viewed(program: Program, nessie: Nessie, trunk: str) -> None:
    def commit(key: str, content: dict[str, object]) -> None:
        to_trunk = ("content", "commit", "--stdin", "-r", trunk, "-c", nessie.head(trunk))
        said = program(*to_trunk, "-m", f"put {key}", "--author", "anna", key, stdin=json.dumps(content))
        assert "Changes have been committed." in said

    commit("sales", {"type": "NAMESPACE", "id": None, "elements": ["sales"]})
    commit('sales."orders.v2"', table(1))
    delta: dict[str, object] = {
        "type": "DELTA_LAKE_TABLE",
        "id": None,
        "lastCheckpoint": "s3://lake/clicks/checkpoint",
        "checkpointLocationHistory": ["s3://lake/clicks/checkpoint"],
        "metadataLocationHistory": ["s3://lake/clicks/1.json", "s3://lake/clicks/2.json"],
    }
    commit("clicks", delta)

    def listed(*options: str) -> list[tuple[str, list[str]]]:
        entries = program.json("content", "list", "-r", trunk, *options)
        return [(entry["type"], entry["name"]["elements"]) for entry in entries]

    orders = ("ICEBERG_TABLE", ["sales", "orders.v2"])
    clicks = ("DELTA_LAKE_TABLE", ["clicks"])
    assert sorted(listed()) == sorted([clicks, orders, ("NAMESPACE", ["sales"])])
    assert listed("-t", "ICEBERG_TABLE") == [orders]
    assert sorted(listed("-t", "ICEBERG_TABLE", "-t", "DELTA_LAKE_TABLE")) == sorted([clicks, orders])
    assert listed("--filter", "entry.namespace == 'sales'") == [orders]
    assert 'sales."orders.v2"' in program("content", "list", "-r", trunk)

    viewed = program.json("content", "view", "-r", trunk, 'sales."orders.v2"', "clicks")
    identities = [content["id"] for content in viewed]
    assert viewed == [table(1, identities[0]), {**delta, "id": identities[1]}]
    assert "Iceberg table" in program("content", "view", "-r", trunk, 'sales."orders.v2"')
    assert program.refused("content", "view", "-r", trunk, "absent")["error_code"] == "CONTENT_NOT_FOUND"


def test_a_content_changed_in_the_editor_keeps_its_identity(
    program: Program, nessie: Nessie, trunk: str
) -> None:
    head = nessie.put(trunk, "orders", table(1), "first")
    (before,) = program.json("content", "view", "-r", trunk, "orders")
    # The editor of the test: another version of the file's name. It has no message to edit, as -m gives one.
    program(
        *("content", "commit", "-r", trunk, "-c", head, "-m", "edited", "orders"),
        editor="sed -i s/v1.json/v9.json/",
    )
    (after,) = program.json("content", "view", "-r", trunk, "orders")
    assert after == {**before, "metadataLocation": "s3://lake/orders/v9.json"}
    (past,) = program.json("content", "view", "-r", f"{trunk}@{head}", "orders")
    assert past == before


def test_a_commit_against_an_old_hash_of_the_same_table_is_a_conflict(
    program: Program, nessie: Nessie, trunk: str
) -> None:
    first = nessie.put(trunk, "orders", table(1), "first")
    nessie.put(trunk, "orders", table(2), "second")
    arguments = ["content", "commit", "-R", "-r", trunk, "-c", first, "-m", "late", "orders"]
    refusal = program.refused(*arguments)
    assert (refusal["error_code"], refusal["status_code"]) == ("REFERENCE_CONFLICT", 409)


def test_a_merge_brings_what_the_branch_has(program: Program, nessie: Nessie, trunk: str) -> None:
    base = nessie.put(trunk, "orders", table(1), "base")
    dev = f"{trunk}-dev"
    program("branch", dev, trunk)
    first = nessie.put(dev, "customers", table(1), "first on dev")
    nessie.put(dev, "clicks", table(1), "second on dev")

    partly = program.json("merge", "-b", trunk, "-c", base, "-o", first, dev)
    assert (partly["wasApplied"], partly["wasSuccessful"]) == (True, True)
    assert (partly["targetBranch"], partly["effectiveTargetHash"]) == (trunk, base)
    assert partly["commonAncestor"] == base
    assert partly["resultantTargetHash"] == nessie.head(trunk)
    assert [detail["key"]["elements"] for detail in partly["details"]] == [["customers"]]

    assert f"Merged {dev} onto {trunk}" in program("merge", "-f", "-b", trunk, dev)
    names = [entry["name"]["elements"] for entry in program.json("content", "list", "-r", trunk)]
    assert sorted(names) == [["clicks"], ["customers"], ["orders"]]


def test_a_merge_of_a_table_that_both_changed_is_refused(
    program: Program, nessie: Nessie, trunk: str
) -> None:
    nessie.put(trunk, "orders", table(1), "base")
    dev = f"{trunk}-dev"
    program("branch", dev, trunk)
    nessie.put(dev, "orders", table(2), "on dev")
    head = nessie.put(trunk, "orders", table(3), "on the trunk")

    refusal = program.refused("merge", "-b", trunk, "-c", head, dev)
    assert refusal["error_code"] == "REFERENCE_CONFLICT"
    assert "orders" in refusal["server_message"]
    assert nessie.head(trunk) == head


def test_a_cherry_pick_brings_the_named_commits(program: Program, nessie: Nessie, trunk: str) -> None:
    base = nessie.put(trunk, "orders", table(1), "base")
    dev = f"{trunk}-dev"
    program("branch", dev, trunk)
    nessie.put(dev, "customers", table(1), "left behind")
    picked = [nessie.put(dev, key, table(1), f"picked {key}") for key in ("clicks", "views")]

    answer = program.json("cherry-pick", "-b", trunk, "-c", base, "-s", dev, *picked)
    assert (answer["wasApplied"], answer["resultantTargetHash"]) == (True, nessie.head(trunk))
    assert messages(program.json("log", trunk)) == ["picked views", "picked clicks", "base"]
    program("branch", f"{trunk}-other", f"{trunk}@{base}")
    said = program("cherry-pick", "-f", "-b", f"{trunk}-other", "-s", dev, picked[0])
    assert f"Cherry-picked onto {trunk}-other" in said


def test_a_diff_shows_both_sides(program: Program, nessie: Nessie, trunk: str) -> None:
    base = nessie.put(trunk, "orders", table(1), "base")
    dev = f"{trunk}-dev"
    program("branch", dev, trunk)
    nessie.put(dev, "orders", table(2), "changed")
    head = nessie.put(dev, "customers", table(1), "added")

    def diff(from_ref: str, to_ref: str) -> dict[str, tuple[object, object]]:
        def location(side: dict[str, object] | None) -> object:
            return side and side["metadataLocation"]

        answer = program.json("diff", from_ref, to_ref)
        return {
            ".".join(each["key"]["elements"]): (location(each["from"]), location(each["to"]))
            for each in answer["diffs"]
        }

    changed = ("s3://lake/orders/v1.json", "s3://lake/orders/v2.json")
    added = (None, "s3://lake/orders/v1.json")
    assert diff(trunk, dev) == {"orders": changed, "customers": added}
    assert diff(f"{trunk}@{base}", f"{dev}@{head}") == {"orders": changed, "customers": added}
    assert diff(base, head) == {"orders": changed, "customers": added}
    assert diff(dev, dev) == {}
    assert "ContentKey: customers" in program("diff", trunk, dev)


def test_an_endpoint_that_is_no_api_is_refused_by_its_status(program: Program) -> None:
    said = program.ended(1, "--endpoint", f"{program.endpoint}/nowhere", "branch")
    assert "Status code: 404" in said
