"""Versions of tables are ratified, and whoever was overtaken is told by what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import (
    CommitConflict,
    TableConflict,
)
from penstock.formats.delta.branch_log.intents import CommitIntent, make_change_operation
from penstock.formats.delta.protocol.actions import CommitInfo, parse_commit, write_commit
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Change, Put
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import (
    DeltaLake,
    appended,
    create,
    opened,
    versioned,
)
from tests.formats.delta.logs import add, remove

T = Key("t")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def lake(store: MemoryStore) -> Iterator[DeltaLake]:
    """A lake in which nothing is published unless somebody asks for it."""
    with opened(store, publishes=False) as lake:
        yield lake


def test_several_tables_are_ratified_in_one_commit_or_not_at_all(lake: DeltaLake, tmp_path: Path) -> None:
    create(lake, tmp_path, "a")
    create(lake, tmp_path, "b")
    done = lake.owner.commit_versions("main", [appended("a"), versioned("b", 1, "x.parquet")])
    assert [(str(one.key), one.version, one.repeated) for one in done.tables] == [
        ("a", 1, False),
        ("b", 1, False),
    ]
    with pytest.raises(TableConflict):
        lake.owner.commit_versions("main", [appended("a"), versioned("b", 1, "y.parquet")])
    assert (lake.line("a").latest, lake.line("b").latest) == (1, 1)


def test_a_table_is_ratified_together_with_other_contents(lake: DeltaLake, tmp_path: Path) -> None:
    create(lake, tmp_path)
    plain = Put(Key("iceberg"), IcebergTable(metadata_location="1"))
    assert [one.version for one in lake.owner.commit_versions("main", [plain, appended("t")]).tables] == [1]
    assert lake.has("iceberg")


def test_a_name_is_told_once_its_file_exists(lake: DeltaLake, tmp_path: Path) -> None:
    root = create(lake, tmp_path)
    (staged,) = lake.owner.commit_versions("main", [versioned("t", 1, "x.parquet")]).tables
    assert (root / staged.name).is_file()
    assert staged.name.startswith("_delta_log/_commits/00000000000000000001.")
    assert lake.append("t").name == ""


def test_r7_an_attempt_that_is_sent_again_is_answered_as_before(lake: DeltaLake, tmp_path: Path) -> None:
    create(lake, tmp_path)
    attempt = versioned("t", 1, "x.parquet")
    (first,) = lake.owner.commit_versions("main", [attempt]).tables
    lake.append("t")
    head = lake.tables.find_head()
    (again,) = lake.owner.commit_versions("main", [attempt]).tables
    assert (again.version, again.timestamp_ms, again.repeated) == (1, first.timestamp_ms, True)
    assert lake.tables.find_head() == head


def test_of_several_changes_those_are_told_that_the_table_had_already(
    lake: DeltaLake, tmp_path: Path
) -> None:
    create(lake, tmp_path, "a")
    create(lake, tmp_path, "b")
    attempt = versioned("a", 1, "x.parquet")
    lake.owner.commit_versions("main", [attempt])
    done = lake.owner.commit_versions("main", [attempt, appended("b")])
    assert [(one.version, one.repeated) for one in done.tables] == [(1, True), (1, False)]


def test_a_request_that_is_repeated_under_its_key_is_answered_by_the_same_version(
    lake: DeltaLake, tmp_path: Path
) -> None:
    create(lake, tmp_path)
    request = [appended("t")]
    first = lake.owner.commit_versions("main", request, key="once")
    lake.append("t")
    again = lake.owner.commit_versions("main", request, key="once")
    assert again.commit == first.commit
    assert (again.tables[0].version, again.tables[0].repeated) == (1, True)


def test_r10_a_writer_whose_version_was_taken_gets_the_commits_that_came_first(
    lake: DeltaLake, tmp_path: Path
) -> None:
    create(lake, tmp_path)
    for number in range(1, 4):
        lake.owner.commit_versions("main", [versioned("t", number, f"{number}.parquet")])
    with pytest.raises(TableConflict) as caught:
        lake.owner.commit_versions("main", [versioned("t", 2, "mine.parquet")])
    winners = caught.value.details["winners"]["t"]
    assert winners["latest_version"] == 3
    assert [one["version"] for one in winners["commits"]] == [2, 3]
    for told in winners["commits"]:
        actions = [line.action for line in parse_commit(told["actions"].encode())]
        assert isinstance(actions[0], CommitInfo)
        assert actions[0].in_commit_timestamp == told["timestamp_ms"]
        assert actions[1] == add(f"{told['version']}.parquet")
    assert caught.value.message.startswith("'t' changed while you were writing\n  you read    version 1\n")
    assert "now at      version 3" in caught.value.message


def test_r10_a_writer_who_read_what_others_removed_gets_the_commits_since(
    lake: DeltaLake, tmp_path: Path
) -> None:
    create(lake, tmp_path)
    lake.append("t", add("old.parquet"))

    def rewrite(name: str) -> Change:
        actions = write_commit([remove("old.parquet"), add(name)])
        reads = DeltaReads(files=frozenset({"old.parquet"}))
        return make_change_operation(
            "t", CommitIntent(actions=actions, uuid=uuid4(), read_version=1, reads=reads)
        )

    lake.owner.commit_versions("main", [rewrite("new.parquet")])
    with pytest.raises(TableConflict) as caught:
        lake.owner.commit_versions("main", [rewrite("newer.parquet")])
    assert [one["version"] for one in caught.value.details["winners"]["t"]["commits"]] == [2]


def test_r10_winners_are_bounded_and_the_latest_version_is_told_all_the_same(
    lake: DeltaLake, tmp_path: Path
) -> None:
    create(lake, tmp_path)
    for number in range(3):
        lake.append("t", *(add(f"{number}-{one:04}-{'x' * 100}.parquet") for one in range(500)))
    with pytest.raises(TableConflict) as caught:
        lake.owner.commit_versions("main", [versioned("t", 1, "mine.parquet")])
    told = caught.value.details["winners"]["t"]
    assert [one["version"] for one in told["commits"]] == [1, 2, 3]
    assert ["actions" in one for one in told["commits"]] == [True, True, False]


def test_a_conflict_that_is_not_about_versions_is_told_as_it_is(lake: DeltaLake, tmp_path: Path) -> None:
    create(lake, tmp_path)
    with pytest.raises(CommitConflict) as caught:
        lake.owner.commit_versions("main", [appended("nothing")])
    assert not isinstance(caught.value, TableConflict)


def test_a_conflict_is_told_also_of_a_table_whose_time_no_calendar_has(
    store: MemoryStore, tmp_path: Path
) -> None:
    with opened(store, publishes=False, clock=lambda: 2**60) as lake:
        create(lake, tmp_path)
        lake.append("t")
        with pytest.raises(TableConflict, match=rf"now at      version 1 \({2**60 // 1000 + 1} ms\)"):
            lake.owner.commit_versions("main", [versioned("t", 1, "x.parquet")])
