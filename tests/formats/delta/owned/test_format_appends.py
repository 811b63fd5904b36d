"""What a commit without a version makes of a Delta table that the lake owns."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import CommitConflict
from penstock.formats.delta.branch_log.intents import CommitIntent, make_change_operation
from penstock.formats.delta.protocol.actions import CommitInfo, write_commit
from penstock.stores.port import Store
from penstock.testing.threads import at_once
from tests.formats.delta.managed import Owner, add

# --- appends --------------------------------------------------------------------------------------------


def test_a_blind_append_becomes_the_next_version_with_a_commit_info_of_the_owner_first(owner: Owner) -> None:
    owner.create()
    uuid = uuid4()
    line = write_commit([add("a.parquet")])
    assert owner.commit(line, uuid=uuid) == 1
    info = owner.info(1)
    assert info.in_commit_timestamp == owner.line().timestamp_ms > owner.info(0).in_commit_timestamp  # type: ignore[operator]
    assert info.fields["timestamp"] == info.in_commit_timestamp
    assert info.transaction_id == str(uuid)
    assert (info.operation, info.is_blind_append) == ("WRITE", True)
    assert info.fields["engineInfo"].startswith("Penstock/")
    assert owner.data(1).endswith(b"\n" + line)
    assert owner.paths() == {"a.parquet"}


def test_a_reader_of_the_log_alone_sees_what_was_appended(owner: Owner) -> None:
    owner.create()
    for number in range(3):
        owner.commit([add(f"{number}.parquet")])
    published = owner.published()
    assert published.version == 3
    assert {one.path for one in published.read_files()} == {"0.parquet", "1.parquet", "2.parquet"}


def test_the_writers_words_and_unknown_actions_stay_in_the_commit(owner: Owner) -> None:
    owner.create()
    told = CommitInfo({"operation": "STREAMING UPDATE", "userName": "etl", "inCommitTimestamp": 1})
    line = (
        b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"x":1}}\n'
    )
    owner.commit(write_commit([told]) + b'{"somethingNew":{"a":1}}\n' + line)
    info = owner.info(1)
    assert (info.operation, info.fields["userName"]) == ("STREAMING UPDATE", "etl")
    assert info.in_commit_timestamp != 1
    assert owner.data(1).endswith(b'\n{"somethingNew":{"a":1}}\n' + line)


def test_r38_time_never_stands_still_nor_goes_back_when_the_clock_does(store: Store, tmp_path: Path) -> None:
    now = [5_000_000_000]
    owner = Owner(store, tmp_path, clock=lambda: now[0])
    owner.create()
    owner.commit([add("a")])
    now[0] -= 1_000_000
    owner.commit([add("b")])
    times = [owner.info(version).in_commit_timestamp for version in range(3)]
    assert times == [5_000_000, 5_000_001, 5_000_002]
    owner.close()


def test_many_appenders_at_once_all_land_and_nobody_conflicts(owner: Owner) -> None:
    owner.create()

    def work(name: int) -> None:
        for number in range(10):
            owner.commit([add(f"{name}-{number}")])

    at_once(*(partial(work, name) for name in range(8)))
    assert owner.line().latest == 80
    assert owner.paths() == {f"{name}-{number}" for name in range(8) for number in range(10)}
    assert {one.path for one in owner.published().read_files()} == owner.paths()


def test_several_tables_are_ratified_in_one_commit_or_none_is(owner: Owner) -> None:
    owner.create("a")
    owner.create("b")
    good = CommitIntent(actions=write_commit([add("x")]), uuid=uuid4())
    bad = CommitIntent(actions=write_commit([add("x")]), uuid=uuid4(), version=1)
    owner.commit([add("y")], key="b")
    with pytest.raises(CommitConflict):
        owner.kernel.commit("main", [make_change_operation("a", good), make_change_operation("b", bad)])
    assert (owner.line("a").latest, owner.line("b").latest) == (0, 1)
    owner.kernel.commit("main", [make_change_operation("a", good), make_change_operation("b", good)])
    assert (owner.line("a").latest, owner.line("b").latest) == (1, 2)


# --- branches -------------------------------------------------------------------------------------------


def test_a_branch_extends_the_table_in_a_folder_of_its_own(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")])
    owner.branch("dev")
    uuid = uuid4()
    owner.commit([add("dev")], branch="dev", uuid=uuid, version=2)
    owner.commit([add("dev-2")], branch="dev")
    owner.commit([add("main")])
    assert owner.paths() == {"a", "main"}
    assert owner.paths(branch="dev") == {"a", "dev", "dev-2"}
    line = owner.line(branch="dev")
    assert (line.tail, line.fork_version, line.latest) == (2, 1, 3)
    entry = line.find_entry(2, owner.read)
    assert entry is not None
    assert entry.get_staged_path(2).startswith("_penstock/")
    assert (Path(content.location) / entry.get_staged_path(2)).exists()
    assert {one.path for one in owner.published().read_files()} == {"a", "main"}
    assert owner.paths(branch="dev") == {"a", "dev", "dev-2"}


def test_a_table_that_begins_on_a_branch_is_not_published(owner: Owner) -> None:
    owner.branch("dev")
    content = owner.create(branch="dev")
    owner.commit([add("a")], branch="dev")
    assert owner.paths(branch="dev") == {"a"}
    assert not (Path(content.location) / "_delta_log").exists()
