"""What commits did to a table, as people are told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.formats.delta.protocol.actions import (
    Action,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
)
from penstock.formats.delta.protocol.commit_summary import FileCounts, describe_commit, list_first_names
from tests.formats.delta.managed import SCHEMA, add, remove

METADATA = Metadata(id="1", schema_string=SCHEMA, partition_columns=())
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def called(operation: str) -> CommitInfo:
    return CommitInfo({"operation": operation})


TOLD: dict[str, Sequence[Action]] = {
    "changed nothing": [called("WRITE")],
    "appended 1 file": [add("a")],
    "appended 2 files to day=mon": [add("a", "mon"), add("b", "mon")],
    "appended 4 files to day=a, day=b, day=c and 1 more": [add(day, day) for day in "abcd"],
    "appended 1 file to day=null": [add("a", "")],
    "removed 2 files of day=mon": [called("DELETE"), remove("a", "mon"), remove("b", "mon")],
    "deleted rows in 1 file of day=mon": [called("DELETE"), remove("a", "mon"), add("b", "mon")],
    "updated rows in 1 file": [called("UPDATE"), remove("a"), add("b")],
    "merged rows in 1 file": [called("MERGE"), remove("a"), add("b"), add("c")],
    "replaced 1 file of day=mon by 2": [called("WRITE"), remove("a", "mon"), add("b"), add("c")],
    "rewrote 2 files as 1 with the same rows": [
        called("OPTIMIZE"),
        remove("a", data_change=False),
        remove("b", data_change=False),
        add("c", data_change=False),
    ],
    "rewrote the metadata of 1 file": [add("a", data_change=False)],
    "changed the metadata and changed the protocol": [PROTOCOL, METADATA],
    "appended 1 file and recorded batch 3 of the application 's'": [Txn(app_id="s", version=3), add("a")],
    "wrote the domain 'd'": [DomainMetadata(domain="d", configuration="")],
}


@pytest.mark.parametrize("told", TOLD)
def test_a_commit_is_told_by_what_came_and_went(told: str) -> None:
    assert describe_commit(TOLD[told]) == told


@pytest.mark.parametrize(
    ("commits", "told"),
    [
        ([], "no files added or removed"),
        ([[add("a"), add("b")]], "2 files added"),
        ([[remove("a")]], "1 file removed"),
        ([[add("a")], [remove("b"), add("c")]], "2 files added, 1 removed"),
        ([[add("a")], [remove("a")]], "no files added or removed"),
        ([[remove("a")], [add("a")]], "no files added or removed"),
        ([[remove("a"), add("b")], [remove("b"), add("c")]], "1 file added, 1 removed"),
    ],
)
def test_files_that_came_and_went_again_are_not_counted(commits: list[list[Action]], told: str) -> None:
    assert str(FileCounts.from_commits(commits)) == told


def test_many_names_are_cut_short() -> None:
    assert list_first_names(["a"], " and ") == "a"
    assert list_first_names(["a", "b", "c"], " and ") == "a, b and c"
    assert list_first_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
