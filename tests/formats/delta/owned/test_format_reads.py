"""Commits that rest on what their writer read, or on what is there at their turn."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.errors import CommitConflict, InvalidRequest
from penstock.formats.delta.branch_log.branch_log import CommitTerms, read_commit_record
from penstock.formats.delta.protocol.actions import Action, Remove, Txn
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from penstock.testing.threads import at_once
from tests.formats.delta.managed import Owner, add, days, remove, with_property

# --- what was read --------------------------------------------------------------------------------------


def test_a_writer_that_read_an_older_version_is_checked_against_what_came_since(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "x"), add("b", "y")])
    owner.commit(
        [remove("a", "x"), add("a2", "x")], read_version=1, reads=DeltaReads(partitions=(days("x"),))
    )
    with pytest.raises(CommitConflict, match="version 2") as error:
        owner.commit(
            [remove("a", "x"), add("a3", "x")], read_version=1, reads=DeltaReads(partitions=(days("x"),))
        )
    assert "a" in str(error.value)
    version = owner.commit(
        [remove("b", "y"), add("b2", "y")], read_version=1, reads=DeltaReads(partitions=(days("y"),))
    )
    assert version == 3
    assert owner.paths() == {"a2", "b2"}
    assert owner.info(3).fields["readVersion"] == 1


def test_a_version_that_nobody_can_have_read_is_refused(owner: Owner) -> None:
    owner.create()
    with pytest.raises(InvalidRequest, match="cannot have been read"):
        owner.commit([add("a")], read_version=1)


def test_what_was_read_before_the_metadata_changed_is_judged_by_what_it_was(owner: Owner) -> None:
    owner.create()
    was = owner.snapshot().metadata
    harmless = with_property(was, "delta.checkpointPolicy", "classic")
    owner.commit([harmless], read_version=0)
    owner.commit([add("a")], read_version=0, reads=DeltaReads())
    owner.commit([with_property(harmless, "delta.logRetentionDuration", "interval 1 days")], read_version=2)
    with pytest.raises(CommitConflict, match="metadata"):
        owner.commit([add("b")], read_version=2, reads=DeltaReads())
    assert owner.paths() == {"a"}
    assert owner.snapshot().properties["delta.logRetentionDuration"] == "interval 1 days"


def test_what_a_commit_rests_on_is_kept_with_it(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    reads = DeltaReads(partitions=(days("x"),))
    owner.commit([add("a", "x")], read_version=0, reads=reads)
    owner.commit([add("b", "x")])
    owner.commit([add("c", "x")], version=3)
    found = [
        read_commit_record(entry, owner.read).terms
        for _, entry in owner.line().read_entries_after(0, owner.read)
    ]
    assert found == [CommitTerms(reads), CommitTerms(DeltaReads()), CommitTerms()]


# --- batches --------------------------------------------------------------------------------------------


def test_a_repeated_batch_changes_nothing(owner: Owner) -> None:
    owner.create()
    first: list[Action] = [add("a"), Txn(app_id="stream", version=7)]
    owner.commit(first)
    owner.commit([add("other")])
    before = owner.content()
    older: list[Action] = [add("b"), Txn(app_id="stream", version=6)]
    for batch in (first, older):
        assert owner.commit(batch) == 2
        assert owner.commit(batch, read_version=1, reads=DeltaReads()) == 2
    assert owner.content() == before
    assert owner.commit([add("b"), Txn(app_id="stream", version=8)]) == 3
    assert owner.snapshot().transactions["stream"].version == 8


def test_of_many_who_write_the_same_batch_at_once_one_does(owner: Owner) -> None:
    owner.create()

    def work(name: str) -> None:
        owner.commit([add(name), Txn(app_id="stream", version=1)])

    at_once(*(partial(work, str(name)) for name in range(8)))
    assert owner.line().latest == 1
    assert len(owner.paths()) == 1


def test_batches_that_are_done_in_part_are_refused(owner: Owner) -> None:
    owner.create()
    owner.commit([add("a"), Txn(app_id="one", version=1)])
    with pytest.raises(CommitConflict, match="but not those of its other applications"):
        owner.commit([add("b"), Txn(app_id="one", version=1), Txn(app_id="two", version=1)])


# --- replacing ------------------------------------------------------------------------------------------


def test_a_replacement_removes_whatever_is_in_its_partitions(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "x"), add("b", "x"), add("c", "y")])
    owner.commit([add("d", "x")], replaces=(days("x"),))
    assert owner.paths() == {"c", "d"}
    removed = {one.path: one for one in owner.actions(2) if isinstance(one, Remove)}
    assert removed.keys() == {"a", "b"}
    one = removed["a"]
    assert (one.data_change, one.extended_file_metadata, one.size) == (True, True, 10)
    assert one.partition_values == {"day": "x"}
    assert one.deletion_timestamp is not None
    assert owner.info(2).is_blind_append is False
    owner.commit([add("e", "z")], replaces=())
    assert owner.paths() == {"e"}
    assert {one.path for one in owner.published().read_files()} == {"e"}


def test_two_replacements_at_once_leave_the_files_of_one_of_them(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("old", "x")])

    def work(name: str) -> None:
        owner.commit([add(name, "x")], replaces=(days("x"),))

    at_once(*(partial(work, str(name)) for name in range(6)))
    assert len(owner.paths()) == 1
    assert len(list(owner.published().read_files())) == 1


def test_a_replacement_of_something_that_is_no_partition_is_refused(owner: Owner) -> None:
    owner.create(partition_by=["day"])
    with pytest.raises(InvalidRequest, match="'id' is not a partition column"):
        owner.commit([add("a", "x")], replaces=(PartitionFilter({"id": ("1",)}),))
