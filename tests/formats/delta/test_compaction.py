"""Compactions that this Penstock writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog, LogGap
from penstock.formats.delta.log.compaction import compact_commits
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.protocol.actions import Action, DomainMetadata, Txn
from penstock.formats.delta.protocol.names import CommitName, CompactionName
from penstock.storage.places import Places
from tests.formats.delta.logs import Table, add, commit_info, metadata, remove


def lines(table: Table, first: int, last: int) -> list[str]:
    return (table.root / str(CompactionName(first, last))).read_text().splitlines()


def state_of(snapshot: LogSnapshot) -> object:
    return (
        snapshot.protocol,
        snapshot.metadata,
        dict(snapshot.transactions),
        dict(snapshot.domains),
        {one.key: one for one in snapshot.read_files()},
        {one.key: one for one in snapshot.read_tombstones()},
    )


actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(add, st.sampled_from("abcd"), size=st.integers(0, 9)),
    st.builds(remove, st.sampled_from("abcd")),
    st.builds(Txn, app_id=st.sampled_from("pq"), version=st.integers(0, 9)),
    st.builds(
        DomainMetadata, domain=st.sampled_from("xy"), configuration=st.just("{}"), removed=st.booleans()
    ),
    st.builds(lambda: metadata(delta_appendOnly="false")),
)


@given(
    commits=st.lists(st.lists(actions, max_size=4), min_size=2, max_size=6),
    ends=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_a_compaction_comes_to_what_its_commits_do(
    places: Places, commits: Sequence[Sequence[Action]], ends: tuple[int, int]
) -> None:
    with TemporaryDirectory() as folder:
        table = Table(Path(folder), places)
        table.create(add("a"))
        for version, some in enumerate(commits, 1):
            table.commit(version, commit_info(version), *some)
        first, last = sorted(min(one, len(commits)) for one in ends)
        if first == last:
            return
        before = {
            version: state_of(load_snapshot(table.files, version)) for version in range(len(commits) + 1)
        }
        assert compact_commits(table.place, first, last) == str(CompactionName(first, last))
        found = load_snapshot(table.files)
        assert str(CompactionName(first, last)) in found.segment.names
        for version, expected in before.items():
            assert state_of(load_snapshot(table.files, version)) == expected


def test_a_compaction_keeps_what_may_be_about_earlier_versions_and_no_more(table: Table) -> None:
    table.create(add("old"))
    table.commit(1, commit_info(1), add("a"), add("b"), DomainMetadata(domain="d", configuration="1"))
    table.write(
        str(CommitName(2)), b'{"commitInfo":{}}\n{"remove":{"path":"old","dataChange":true,"new":1}}\n'
    )
    table.commit(3, remove("a"), DomainMetadata(domain="d", configuration="", removed=True))
    compact_commits(table.place, 1, 3)
    found = lines(table, 1, 3)
    assert [next(iter(json.loads(one))) for one in found] == ["add", "remove", "remove", "domainMetadata"]
    # A line stays what its writer wrote, also what is not known here.
    assert found[1] == '{"remove":{"path":"old","dataChange":true,"new":1}}'


def test_r34_commits_that_are_not_published_are_not_compacted(table: Table) -> None:
    table.create()
    table.commit(1, add("a"))
    with pytest.raises(LogGap, match=r"0002\.json is not in its log") as caught:
        compact_commits(table.place, 0, 2)
    assert caught.value.details["version"] == 2
    assert not (table.root / str(CompactionName(0, 2))).exists()


def test_a_compaction_is_written_once(table: Table) -> None:
    table.create()
    table.commit(1, add("a"))
    assert compact_commits(table.place, 0, 1) is not None
    before = lines(table, 0, 1)
    assert compact_commits(table.place, 0, 1) is None
    assert lines(table, 0, 1) == before


def test_a_commit_that_cannot_be_read_is_named(table: Table) -> None:
    table.create()
    table.write(str(CommitName(1)), b"{}\nno action\n")
    with pytest.raises(InvalidLog, match=r"0001\.json .* cannot be read: line 2"):
        compact_commits(table.place, 0, 1)


@pytest.mark.parametrize(("first", "last"), [(1, 1), (2, 1), (-1, 1)])
def test_there_must_be_something_to_compact(table: Table, first: int, last: int) -> None:
    table.create()
    table.commit(1, add("a"))
    with pytest.raises(InvalidRequest, match="cannot be compacted"):
        compact_commits(table.place, first, last)


def test_other_readers_see_the_same_table_through_our_compaction(table: Table) -> None:
    root = str(table.root)
    for number in range(5):
        write_deltalake(root, pa.table({"id": [number]}), mode="append")
    DeltaTable(root).delete("id = 2")
    assert compact_commits(table.place, 1, 5) is not None
    assert load_snapshot(table.files).segment.names[-1] == str(CompactionName(1, 5))
    assert sorted(pa.table(DeltaTable(root).scan())["id"].to_pylist()) == [0, 1, 3, 4]
