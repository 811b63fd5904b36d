"""What lands between a commit's preparation and its turn, forced: somebody else acts right in between."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from penstock.errors import CommitConflict, InvalidContent, InvalidLog, InvalidRequest
from penstock.formats.delta.branch_log.intents import (
    ActionsBodyFile,
    CommitIntent,
    ReleaseIntent,
    SettleIntent,
    make_change_operation,
)
from penstock.formats.delta.branch_log.ownership import TableBeforeCommit, encode_release_commit
from penstock.formats.delta.format import DeltaFormat
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, Remove, Txn, write_commit
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.format import AppliedChange, PrepareAgain, Table
from penstock.model.keys import Key
from penstock.model.operations import Change, Delete, Put
from penstock.stores.port import Store
from penstock.testing.threads import at_once
from tests.formats.delta.managed import KEY, Owner, add, days, remove, with_property
from tests.formats.delta.owned.interrupted import Interrupted, rounds


@pytest.fixture
def other(store: Store, tmp_path: Path) -> Iterator[Owner]:
    """Another process."""
    other = Owner(store, tmp_path)
    yield other
    other.close()


@pytest.fixture
def owner(store: Store, tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(store, tmp_path, kind=Interrupted)
    yield owner
    owner.close()


def large(name: str, day: str) -> list[Action]:
    return [add(f"{name}-{number:04}-{'x' * 100}", day) for number in range(1000)]


def test_an_append_does_not_go_round_for_what_others_commit(owner: Owner, other: Owner) -> None:
    owner.create()
    assert rounds(owner, lambda: other.commit([add("b")]), lambda: owner.commit([add("a")])) == 1
    assert owner.paths() == {"a", "b"}


def test_an_append_meets_a_table_that_has_become_another_one(owner: Owner, other: Owner) -> None:
    owner.create()
    was = owner.snapshot().metadata
    harmless = with_property(was, "delta.checkpointPolicy", "classic")
    between = lambda: other.commit([harmless], read_version=0)  # noqa: E731
    assert rounds(owner, between, lambda: owner.commit([add("a")])) == 1
    harmful = with_property(harmless, "delta.logRetentionDuration", "interval 1 days")
    with pytest.raises(CommitConflict, match="changed the metadata"):
        rounds(owner, lambda: other.commit([harmful], read_version=2), lambda: owner.commit([add("b")]))
    assert owner.paths() == {"a"}


@pytest.mark.parametrize("winner", ["assigned", "given"])
def test_what_was_read_is_checked_against_what_came_in_between(
    owner: Owner, other: Owner, winner: str
) -> None:
    owner.create()
    owner.commit([add("a"), add("b")])

    def update() -> None:
        owner.commit([remove("a"), add("a2")], read_version=1, reads=DeltaReads(whole_table=True))

    def append() -> None:
        version = None if winner == "assigned" else 2
        other.commit([CommitInfo({"isBlindAppend": True}), add("c")], version=version)

    # A file that another process staged has to be read, and that is not done at the turn.
    assert rounds(owner, append, update) == (1 if winner == "assigned" else 2)
    assert owner.paths() == {"a2", "b", "c"}

    def late() -> None:
        owner.commit([remove("b"), add("b2")], read_version=3, reads=DeltaReads(whole_table=True))

    with pytest.raises(CommitConflict, match="version 4"):
        rounds(owner, lambda: other.commit([remove("c")], read_version=3), late)
    assert owner.paths() == {"a2", "b"}


def test_what_landed_in_this_process_is_known_at_the_turn_also_once_it_is_published(owner: Owner) -> None:
    owner.create()
    owner.commit([add("a")])

    def between() -> None:
        owner.commit([add("b")], version=2)
        owner.commit([add("c")])
        owner.published()

    work = lambda: owner.commit([remove("a"), add("a2")])  # noqa: E731
    assert rounds(owner, between, work) == 2 + 1
    assert owner.line().published == 3
    assert owner.paths() == {"a2", "b", "c"}


def test_a_file_that_went_in_between_cannot_be_removed(owner: Owner, other: Owner) -> None:
    owner.create()
    owner.commit([add("a")])
    with pytest.raises(InvalidContent, match="is not in the table"):
        rounds(owner, lambda: other.commit([remove("a")]), lambda: owner.commit([remove("a")]))
    assert owner.line().latest == 2


def test_a_batch_that_landed_in_between_is_not_written_twice(owner: Owner, other: Owner) -> None:
    owner.create()
    batch: list[Action] = [add("a"), Txn(app_id="stream", version=1)]
    assert rounds(owner, lambda: other.commit(batch), lambda: owner.commit(batch)) == 1
    assert owner.line().latest == 1


def test_a_replacement_takes_what_came_in_between_along(owner: Owner, other: Owner) -> None:
    owner.create(partition_by=["day"])
    owner.commit([add("a", "x"), add("a2", "x"), add("b", "y")])

    def between() -> None:
        other.commit([add("c", "x"), add("d", "y")])
        other.commit([remove("a2", "x")])

    work = lambda: owner.commit([add("new", "x")], replaces=(days("x"),))  # noqa: E731
    assert rounds(owner, between, work) == 1
    assert owner.paths() == {"b", "d", "new"}
    assert {one.path for one in owner.actions(4) if isinstance(one, Remove)} == {"a", "c"}


def test_a_version_that_somebody_else_took_in_between_is_a_conflict(owner: Owner, other: Owner) -> None:
    content = owner.create()
    uuid = uuid4()
    with pytest.raises(CommitConflict, match="already has a version 1"):
        rounds(
            owner, lambda: other.commit([add("b")]), lambda: owner.commit([add("a")], uuid=uuid, version=1)
        )
    # Its file stays behind, and means nothing.
    assert (Path(content.location) / f"_delta_log/_commits/{1:020}.{uuid}.json").exists()
    assert owner.paths() == {"b"}


def test_a_repetition_that_overtakes_its_original_answers_for_both(owner: Owner, other: Owner) -> None:
    owner.create()
    uuid = uuid4()

    def work(one: Owner) -> None:
        one.commit([add("a")], uuid=uuid, version=1)

    rounds(owner, lambda: work(other), lambda: work(owner))
    assert owner.line().latest == 1
    assert [one.path for one in owner.published().read_files()] == ["a"]


def test_a_commit_too_large_for_the_kernel_is_staged_once_whatever_comes_in_between(
    owner: Owner, other: Owner
) -> None:
    content = owner.create(partition_by=["day"])
    files = large("big", "x")
    assert rounds(owner, lambda: other.commit([add("b", "x")]), lambda: owner.commit(files)) == 1
    entry = owner.line().find_entry(2, owner.read)
    assert entry is not None
    assert entry.body.startswith("_penstock/bodies/")
    assert (Path(content.location) / entry.body).read_bytes() == write_commit(files)
    assert entry.size == len(owner.data(2))
    assert owner.data(2).endswith(write_commit(files))
    assert len(owner.paths()) == 1001
    assert len(list(owner.published().read_files())) == 1001
    assert len(other.paths()) == 1001


def test_a_replacement_too_large_for_the_kernel_takes_what_was_appended_meanwhile(
    owner: Owner, other: Owner
) -> None:
    content = owner.create(partition_by=["day"])
    owner.commit(large("old", "x"))
    work = lambda: owner.commit([add("new", "x")], replaces=())  # noqa: E731
    before = len(list((Path(content.location) / "_penstock/bodies").iterdir()))
    assert rounds(owner, lambda: other.commit([add("late", "x")]), work) == 1
    assert len(list((Path(content.location) / "_penstock/bodies").iterdir())) == before + 1
    assert owner.paths() == other.paths() == {"new"}
    assert {one.path for one in owner.published().read_files()} == {"new"}


def test_a_replacement_too_large_for_the_kernel_goes_round_when_some_of_its_files_went(
    owner: Owner, other: Owner
) -> None:
    owner.create(partition_by=["day"])
    old = large("old", "x")
    owner.commit(old)
    first = old[0]
    assert isinstance(first, Add)
    work = lambda: owner.commit([add("new", "x")], replaces=())  # noqa: E731
    assert rounds(owner, lambda: other.commit([remove(first.path, "x")]), work) == 2
    assert owner.paths() == {"new"}
    assert {one.path for one in owner.published().read_files()} == {"new"}


def test_what_is_appended_to_a_large_replacement_may_be_too_much_to_be_held_beside_it(
    owner: Owner, other: Owner
) -> None:
    owner.create(partition_by=["day"])
    owner.commit(large("old", "x"))
    work = lambda: owner.commit([add("new", "x")], replaces=())  # noqa: E731
    assert rounds(owner, lambda: other.commit(large("late", "x")), work) == 2
    assert {one.path for one in owner.published().read_files()} == {"new"}


def test_the_same_large_commit_to_two_tables_is_staged_in_both(owner: Owner) -> None:
    intent = CommitIntent(actions=write_commit(large("big", "x")), uuid=uuid4())
    for key in "ab":
        owner.create(key, partition_by=["day"])
    owner.kernel.commit("main", [make_change_operation(key, intent) for key in "ab"])
    for key in "ab":
        assert len(list(owner.published(key).read_files())) == 1000


def test_actions_in_a_file_of_the_writer_are_committed_from_there(owner: Owner, other: Owner) -> None:
    content = owner.create(partition_by=["day"])
    data = write_commit(large("big", "x"))
    place = owner.places.open_place(content.location)
    place.create("_penstock/bodies/actions.json", data)
    body = ActionsBodyFile("_penstock/bodies/actions.json", len(data), hashlib.sha256(data).digest())
    assert rounds(owner, lambda: other.commit([add("b", "x")]), lambda: owner.commit(body)) == 1
    assert owner.data(2).endswith(data)
    assert len(list(owner.published().read_files())) == 1001


def test_r12_a_table_that_was_created_anew_in_between_is_another_one(owner: Owner, other: Owner) -> None:
    owner.create()

    def between() -> None:
        other.kernel.commit("main", [Delete(Key.parse(KEY))])
        other.create()

    with pytest.raises(CommitConflict, match="is another table now"):
        rounds(owner, between, lambda: owner.commit([add("a")]))


class GoesRound(DeltaFormat):
    """Sends the table ``b`` round until something has happened."""

    arrived, go = Event(), Event()

    def apply(self, table: Table, change: Change, prepared: Any) -> AppliedChange:
        if str(table.key) == "b" and prepared is not None and not self.go.is_set():
            self.arrived.set()
            raise PrepareAgain
        return super().apply(table, change, prepared)


def test_a_table_that_was_created_anew_while_a_request_went_round_is_not_taken_for_the_old_one(
    store: Store, other: Owner, tmp_path: Path
) -> None:
    owner = Owner(store, tmp_path, kind=GoesRound)
    GoesRound.arrived, GoesRound.go = Event(), Event()
    owner.create("a")
    owner.create("b")
    new = owner.create("c")
    both = [
        make_change_operation(key, CommitIntent(actions=write_commit([add("f")]), uuid=uuid4()))
        for key in "ab"
    ]

    def meanwhile() -> None:
        assert GoesRound.arrived.wait(30)
        a, c = Key.parse("a"), Key.parse("c")
        other.kernel.commit("main", [Delete(a), Delete(c), Put(a, new)])
        GoesRound.go.set()

    def ask() -> None:
        with pytest.raises(CommitConflict, match="'a' is another table now"):
            owner.kernel.commit("main", both)

    at_once(ask, meanwhile)
    assert (other.line("a").latest, other.line("b").latest) == (0, 0)
    owner.close()


def test_a_batch_that_was_done_on_a_line_that_the_branch_left_is_done_again(
    owner: Owner, other: Owner
) -> None:
    owner.create()
    owner.branch("dev")
    before = owner.kernel.references.get_reference("dev").head
    batch: list[Action] = [add("a"), Txn(app_id="stream", version=1)]
    owner.commit(batch, branch="dev")
    again = lambda: owner.commit([add("b"), Txn(app_id="stream", version=1)], branch="dev")  # noqa: E731
    assert rounds(owner, lambda: other.kernel.references.assign_reference("dev", before), again) == 2
    assert owner.paths(branch="dev") == {"b"}
    owner.commit(batch, branch="dev")
    assert owner.paths(branch="dev") == {"b"}


class Holds(DeltaFormat):
    """Holds the turn of one table, so that other requests gather behind it."""

    arrived, go = Event(), Event()

    def apply(self, table: Table, change: Change, prepared: Any) -> AppliedChange:
        if str(table.key) == "held" and prepared is not None:
            self.arrived.set()
            assert self.go.wait(30)
        return super().apply(table, change, prepared)


def test_a_batch_that_is_found_done_in_the_same_swap_is_answered_with_the_head_after_it(
    store: Store, tmp_path: Path
) -> None:
    owner = Owner(store, tmp_path, kind=Holds)
    Holds.arrived, Holds.go = Event(), Event()
    owner.create()
    owner.create("held")
    queue = owner.kernel._find_queue("main")

    def stream(name: str) -> RequestOutcome:
        assert Holds.arrived.wait(30)
        data = write_commit([add(name), Txn(app_id="stream", version=1)])
        return owner.ask(CommitIntent(actions=data, uuid=uuid4()))

    def held() -> RequestOutcome:
        return owner.ask(CommitIntent(actions=write_commit([add("h")]), uuid=uuid4()), key="held")

    def let_go() -> RequestOutcome:
        assert Holds.arrived.wait(30)
        while len(queue._waiting) < 3:
            time.sleep(0.001)
        Holds.go.set()
        return RequestOutcome((), b"")

    _, *outcomes, _ = at_once(held, partial(stream, "a"), partial(stream, "b"), let_go)
    assert sorted(len(one.commits) for one in outcomes) == [0, 1]
    assert {one.head for one in outcomes} == {owner.kernel.references.get_reference("main").head}
    assert owner.line().latest == 1
    owner.close()


def test_a_body_that_its_writer_changes_after_it_was_ratified_is_found_out(
    owner: Owner, other: Owner
) -> None:
    content = owner.create(partition_by=["day"])
    data = write_commit([add("good", "x")])
    owner.places.open_place(content.location).create("_penstock/bodies/mine.json", data)
    owner.commit(ActionsBodyFile("_penstock/bodies/mine.json", len(data), hashlib.sha256(data).digest()))
    (Path(content.location) / "_penstock/bodies/mine.json").write_bytes(data.replace(b"good", b"evil"))
    with pytest.raises(
        InvalidLog, match=r"_penstock/bodies/mine\.json .* is not what the lake committed as version 1"
    ):
        other.paths()


@pytest.mark.parametrize(
    "reads", [DeltaReads(whole_table=True), DeltaReads(applications=frozenset({"stream"}))]
)
def test_what_was_read_is_told_together_with_the_version_it_was_read_in(
    owner: Owner, reads: DeltaReads
) -> None:
    owner.create()
    with pytest.raises(InvalidRequest, match="but not at which version: give 'read_version'"):
        owner.commit([add("a")], reads=reads)
    assert owner.commit([add("a")], reads=reads, read_version=0) == 1
    assert owner.commit([add("b")], reads=reads, version=2) == 2
    assert owner.commit([add("c")], reads=DeltaReads()) == 3


@pytest.mark.parametrize("version", [None, 3], ids=["assigned", "given"])
def test_a_branch_that_was_moved_to_another_line_of_the_same_length_is_looked_at_anew(
    owner: Owner, other: Owner, version: int | None
) -> None:
    owner.create()
    owner.commit([add("a")])
    owner.branch("dev")
    owner.branch("else")
    owner.commit([add("x")], branch="dev")
    owner.commit([add("y")], branch="else")
    target = owner.kernel.references.get_reference("else").head
    with pytest.raises(InvalidContent, match="is not in the table"):
        rounds(
            owner,
            lambda: other.kernel.references.assign_reference("dev", target),
            lambda: owner.commit([remove("x")], branch="dev", version=version),
        )
    assert owner.paths(branch="dev") == {"a", "y"}


def test_a_table_that_was_released_in_between_takes_nothing(owner: Owner, other: Owner) -> None:
    content = owner.create()
    about, uuid = owner.snapshot(), uuid4()
    before = TableBeforeCommit(
        version=0, protocol=about.protocol, metadata=about.metadata, timestamp_ms=owner.line().timestamp_ms
    )
    last = ReleaseIntent(
        version=1, actions=encode_release_commit(before, uuid, owner.clock() // 1000), uuid=uuid
    )
    with pytest.raises(CommitConflict, match="was released"):
        rounds(owner, lambda: other.ask(last), lambda: owner.commit([add("a")]))
    assert content.id is not None
    owner.ask(SettleIntent(id=content.id, owned=False))
