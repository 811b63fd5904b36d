"""Commits whose version their writer gives."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.errors import CommitConflict, InvalidContent, InvalidRequest
from penstock.formats.delta.branch_log.intents import CommitIntent, make_change_operation
from penstock.formats.delta.protocol.actions import CommitInfo, write_commit
from penstock.stores.port import Store
from penstock.testing.threads import at_once
from tests.formats.delta.managed import Owner, add


def test_r4_a_commit_with_a_version_is_a_file_that_exists_before_it_is_ratified(owner: Owner) -> None:
    content = owner.create()
    uuid = uuid4()
    assert owner.commit([add("a")], uuid=uuid, version=1) == 1
    name = f"_delta_log/_commits/{1:020}.{uuid}.json"
    data = (Path(content.location) / name).read_bytes()
    entry = owner.line().find_entry(1, owner.read)
    assert entry is not None
    assert (entry.get_staged_path(1), entry.size) == (name, len(data))
    assert owner.data(1) == data
    assert owner.info(1).transaction_id == str(uuid)
    assert owner.info(1).in_commit_timestamp == entry.timestamp_ms


def test_a_commit_that_is_whole_is_taken_byte_for_byte(owner: Owner) -> None:
    owner.create()
    time = owner.line().timestamp_ms + 5000
    told = CommitInfo({"inCommitTimestamp": time, "txnId": "mine", "operation": "WRITE"})
    data = write_commit([told, add("a")])
    owner.commit(b"\n " + data, version=1)
    assert owner.data(1) == data
    assert owner.line().timestamp_ms == time


@pytest.mark.parametrize("version", [1, None])
@pytest.mark.parametrize("txn", [{"txnId": "mine"}, {}], ids=["whole", "to be filled"])
def test_what_only_the_owner_says_of_replacements_is_not_taken_from_a_writer(
    owner: Owner, version: int | None, txn: dict[str, str]
) -> None:
    owner.create()
    forged = {"penstockReplaces": {"partitions": []}, "penstockReplacements": [["AAAA", [], True]]}
    time = {"inCommitTimestamp": owner.line().timestamp_ms + 5000}
    owner.commit([CommitInfo({**time, **txn, "operation": "WRITE", **forged}), add("a")], version=version)
    said = owner.info(1).fields
    assert said["operation"] == "WRITE"
    assert not forged.keys() & said.keys()


@pytest.mark.parametrize("version", [0, -1, 3, 4, 9])
def test_a_version_that_cannot_be_the_next_is_an_error_that_no_repetition_mends(
    owner: Owner, version: int
) -> None:
    owner.create()
    owner.commit([add("a")])
    with pytest.raises(InvalidRequest):
        owner.commit([add("b")], version=version)
    assert owner.line().latest == 1


def test_a_version_that_is_taken_is_a_conflict(owner: Owner) -> None:
    owner.create()
    owner.commit([add("a")])
    with pytest.raises(CommitConflict, match="already has a version 1"):
        owner.commit([add("b")], version=1)
    assert owner.paths() == {"a"}


@pytest.mark.parametrize("is_published", [False, True], ids=["unpublished", "published"])
@pytest.mark.parametrize("later", [0, 3])
def test_a_repeated_commit_is_answered_as_the_first_was_and_changes_nothing(
    owner: Owner, later: int, is_published: bool
) -> None:
    owner.create()
    uuid = uuid4()
    owner.commit([add("a")], uuid=uuid, version=1)
    if is_published:
        owner.published()
    for number in range(later):
        owner.commit([add(f"later-{number}")])
    if is_published and later:
        assert owner.line().find_entry(1, owner.read) is None
    before = owner.content()
    assert owner.commit([add("a")], uuid=uuid, version=1) == 1 + later
    assert owner.content() == before
    with pytest.raises(CommitConflict):
        owner.commit([add("a")], uuid=uuid4(), version=1)


def test_r8_a_repetition_is_known_by_its_transaction_id_in_another_process(
    store: Store, tmp_path: Path
) -> None:
    first, second = Owner(store, tmp_path), Owner(store, tmp_path)
    first.create()
    data = write_commit([CommitInfo({"txnId": "mine"}), add("a")])
    first.commit(data, version=1)
    first.published()
    first.commit([add("b")])
    assert second.commit(data, version=1) == 2
    assert second.paths() == {"a", "b"}
    first.close()
    second.close()


def test_an_attempt_that_died_after_staging_is_repeated_under_its_id(owner: Owner) -> None:
    content = owner.create()
    uuid = uuid4()
    left = Path(content.location) / "_delta_log" / "_commits" / f"{1:020}.{uuid}.json"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"what an attempt at another time had written")
    owner.commit([add("a")], uuid=uuid, version=1)
    assert left.read_bytes() == b"what an attempt at another time had written"
    assert owner.paths() == {"a"}
    assert owner.commit([add("a")], uuid=uuid, version=1) == 1


def test_r3_of_many_who_want_the_same_version_one_gets_it(owner: Owner) -> None:
    owner.create()

    def work(name: str) -> set[str]:
        try:
            owner.commit([add(name)], version=1)
        except CommitConflict:
            return set()
        return {name}

    answers = at_once(*(partial(work, str(name)) for name in range(8)))
    assert sorted(map(len, answers)) == [0] * 7 + [1]
    assert owner.paths() in answers
    assert owner.line().latest == 1


def test_a_time_that_is_not_later_than_the_last_is_refused(owner: Owner) -> None:
    owner.create()
    told = CommitInfo({"inCommitTimestamp": owner.line().timestamp_ms, "txnId": "mine"})
    with pytest.raises(InvalidContent, match="must be later"):
        owner.commit([told, add("a")], version=1)


def test_one_attempt_may_be_a_version_of_several_tables(owner: Owner) -> None:
    uuid = uuid4()
    owner.create("a")
    owner.create("b")
    both = [
        make_change_operation(
            key, CommitIntent(actions=write_commit([add(f"for-{key}")]), uuid=uuid, version=1)
        )
        for key in "ab"
    ]
    owner.kernel.commit("main", both)
    assert owner.paths("a") == {"for-a"}
    assert owner.paths("b") == {"for-b"}
    owner.kernel.commit("main", both)
    assert (owner.line("a").latest, owner.line("b").latest) == (1, 1)


def test_a_writer_may_name_its_transaction_only_by_text(owner: Owner) -> None:
    owner.create()
    uuid, ahead_ms = uuid4(), owner.clock() // 1000 + 60_000
    owner.commit([CommitInfo({"txnId": 7, "inCommitTimestamp": ahead_ms}), add("a")], uuid=uuid, version=1)
    assert owner.info(1).transaction_id == str(uuid)
    assert owner.info(1).in_commit_timestamp == ahead_ms
    owner.commit([add("b")])
    assert owner.info(2).in_commit_timestamp == ahead_ms + 1


def test_a_time_far_ahead_is_refused_before_all_later_ones_must_follow_it(owner: Owner) -> None:
    owner.create()
    with pytest.raises(InvalidContent, match="ahead of the owner's clock"):
        owner.commit([CommitInfo({"inCommitTimestamp": 2**42}), add("a")], version=1)
    assert owner.line().latest == 0
