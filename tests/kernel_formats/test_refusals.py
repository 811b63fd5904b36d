"""What a merge says that cannot be: what is in the way, and the ways out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock import IcebergTable, Lake
from penstock.errors import CommitConflict, MergeConflict
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key

KEY = Key.parse("t")


@pytest.fixture
def lake() -> Iterator[Lake]:
    with penstock.open("memory:") as lake:
        yield lake


def test_an_iceberg_table_that_both_sides_changed_is_said_to_be_none_that_the_lake_merges(lake: Lake) -> None:
    lake.branch().put("t", IcebergTable(metadata_location="s3://b/1"))
    lake.branch("dev").create()
    for branch in ("main", "dev"):
        lake.branch(branch).put("t", IcebergTable(metadata_location=f"s3://b/{branch}"))
    with pytest.raises(MergeConflict) as caught:
        lake.merge("dev")
    first, second, *more = str(caught.value).splitlines()
    assert first == "cannot merge: 1 conflict"
    assert second.startswith("  't' was changed on both sides (expected ICEBERG_TABLE s3://b/1 [")
    assert more == [
        "    the lake does not merge Iceberg tables and views: only their engines write the metadata",
        "    to take one side, merge it with the mode 'force' (the source's) or 'drop' (the target's)",
        "    to have both, rebase the source onto the target without it and run the job again under a new id",
    ]
    lake.rebase("dev", "main", keys={"t": "drop"})
    lake.branch("dev").put("t", IcebergTable(metadata_location="s3://b/both"))
    assert lake.merge("dev").applied, "the last way out leads out"


def test_what_is_the_same_for_several_conflicts_is_said_once() -> None:
    paths = [Conflict(ConflictKind.FORMAT, KEY, why="was changed on both sides", path=one) for one in "ab"]
    other = Conflict(ConflictKind.FORMAT, Key.parse("u"), "v1", "v2", why="clashes; for this; do that")
    assert str(MergeConflict([*paths, other])).splitlines() == [
        "cannot merge: 3 conflicts",
        "  't' was changed on both sides at 'a'",
        "  't' was changed on both sides at 'b'",
        "    to take one side of the table, or of a folder in it, merge that with the mode 'force' or 'drop'",
        "  'u' clashes (expected v1, found v2)",
        "    for this",
        "    do that",
    ]


def test_a_commit_that_was_overtaken_is_told_on_one_line() -> None:
    conflict = Conflict(ConflictKind.FORMAT, KEY, "v1", "v2", why="clashes; do that")
    assert str(CommitConflict([conflict])).splitlines() == [
        "cannot commit: 1 conflict",
        "  't' clashes; do that (expected v1, found v2)",
    ]
    assert (conflict.reason, Conflict(ConflictKind.VALUE_DIFFERS, KEY).reason) == (
        "clashes",
        "changed meanwhile",
    )


def test_an_error_names_the_first_conflicts_and_counts_the_others() -> None:
    many = [Conflict(ConflictKind.VALUE_DIFFERS, Key.parse(f"t{number}")) for number in range(25)]
    lines = str(MergeConflict(many)).splitlines()
    assert (len(lines), lines[-1]) == (22, "  … and 5 more")
