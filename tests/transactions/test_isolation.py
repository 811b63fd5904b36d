"""What a transaction has read must be so still where it lands: of what it changed, or all of it."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from penstock.errors import InvalidRequest, MergeConflict, TransactionNotFound, TransactionOver
from penstock.kernel.chain import CommitChain, CommitDraft
from penstock.kernel.checks import Check
from penstock.kernel.copy import copy_store
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.merge import MergeRequest
from penstock.kernel.request import NextBatch
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import sweep_objects
from penstock.kernel.three_way import MergeOptions, ThreeWayTerms
from penstock.kernel.transaction_reads import READS, ReadEntry, TransactionReads
from penstock.kernel.transactions import TransactionRecord
from penstock.model.commits import CommitMeta
from penstock.model.content import Namespace
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.reads import PARTS_MAX, Read
from penstock.model.references import Kind
from penstock.model.transactions import Isolation, Policy, TransactionState
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.faults import FaultyStore, Point
from penstock.testing.journal import append, lines_of
from tests.transactions.lakes import MINUTE_US, Clock, Process
from tests.transactions.test_races import while_stopped

SNAPSHOT, SERIALIZABLE = Isolation.SNAPSHOT, Isolation.SERIALIZABLE
GREEDY = Settings(grace_s=0.0, idempotency_days=0.0, nobody_writes=True)


def begin(process: Process, isolation: Isolation = SERIALIZABLE) -> TransactionRecord:
    return process.begin(policy=Policy.REBASE, isolation=isolation)


def read(process: Process, known: TransactionRecord, *reads: Read | str) -> None:
    told = [one if isinstance(one, Read) else Read(key=Key.parse(one)) for one in reads]
    process.transactions.note_reads(known.transaction.id, told)


def namespace(process: Process, branch: str, name: str) -> None:
    process.kernel.commit(branch, [Put(Key.parse(name), Namespace())])


def write(process: Process, branch: str, key: str, text: str) -> None:
    """A line to a journal: two sides that do so meet without a conflict."""
    process.kernel.commit(branch, [append(key, text)])


def why(process: Process, known: TransactionRecord) -> list[str]:
    """Why it does not land; nothing if it does."""
    try:
        process.commit(known)
    except MergeConflict as refused:
        return [str(conflict) for conflict in refused.conflicts]
    return []


# --- what was read and changed --------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", Isolation)
def test_a_table_that_was_read_and_written_must_be_as_it_was(process: Process, isolation: Isolation) -> None:
    write(process, "main", "a", "one")
    known = begin(process, isolation)
    read(process, known, "a")
    write(process, known.transaction.branch, "a", "two")
    write(process, "main", "a", "three")
    (told,) = why(process, known)
    assert told.startswith("'a' was read by this transaction, but was changed by another writer since")
    assert lines_of(process.kernel, "a") == ["one", "three"]


@pytest.mark.parametrize("isolation", Isolation)
def test_what_was_written_without_a_look_lands_beside_what_others_wrote(
    process: Process, isolation: Isolation
) -> None:
    write(process, "main", "a", "one")
    known = begin(process, isolation)
    read(process, known, "other")
    write(process, known.transaction.branch, "a", "two")
    write(process, "main", "a", "three")
    assert why(process, known) == []
    assert lines_of(process.kernel, "a") == ["one", "three", "two"]


@pytest.mark.parametrize(("isolation", "lands"), [(SNAPSHOT, True), (SERIALIZABLE, False)])
def test_a_table_that_was_only_read_counts_if_all_must_be_as_if_it_ran_alone(
    process: Process, isolation: Isolation, lands: bool
) -> None:
    process.put("main", "a", 1)
    known = begin(process, isolation)
    read(process, known, "a")
    process.put(known.transaction.branch, "b", 1)
    process.put("main", "a", 2)
    told = why(process, known)
    assert (told == []) is lands
    assert process.number("b") == (1 if lands else None)
    if not lands:
        assert "(expected ICEBERG_TABLE s3://b/1" in told[0]
        assert "found ICEBERG_TABLE s3://b/2" in told[0]


def test_a_table_that_changed_and_is_again_what_it_was_is_as_it_was_read(process: Process) -> None:
    process.put("main", "a", 1)
    known = begin(process)
    read(process, known, "a")
    process.put(known.transaction.branch, "b", 1)
    process.put("main", "a", 2)
    process.put("main", "a", 1)
    assert why(process, known) == []


def test_what_was_read_and_is_gone_is_told(process: Process) -> None:
    process.put("main", "a", 1)
    known = begin(process)
    read(process, known, "a")
    process.put(known.transaction.branch, "b", 1)
    process.delete("main", "a")
    (told,) = why(process, known)
    assert told.startswith("'a' was read by this transaction, but was deleted since")


def test_a_table_that_was_made_anew_is_another_one(process: Process) -> None:
    process.put("main", "a", 1)
    known = begin(process)
    read(process, known, "a")
    process.put(known.transaction.branch, "b", 1)
    process.delete("main", "a")
    process.put("main", "a", 1)
    (told,) = why(process, known)
    assert told.startswith("'a' was read by this transaction, but was changed by another writer since")


@pytest.mark.parametrize(("isolation", "lands"), [(SNAPSHOT, True), (SERIALIZABLE, False)])
def test_a_key_that_held_nothing_must_hold_nothing(
    process: Process, isolation: Isolation, lands: bool
) -> None:
    known = begin(process, isolation)
    read(process, known, "a")
    process.put(known.transaction.branch, "b", 1)
    process.put("main", "a", 1)
    told = why(process, known)
    assert (told == []) is lands
    assert lands or "did not exist when this transaction looked for it" in told[0]


def test_a_namespace_that_both_found_missing_and_made_is_one(process: Process) -> None:
    known = begin(process, SNAPSHOT)
    read(process, known, "sales")
    namespace(process, known.transaction.branch, "sales")
    namespace(process, "main", "sales")
    assert why(process, known) == []


def test_all_that_is_in_the_way_is_told_at_once(process: Process) -> None:
    for key in ("a", "b", "c"):
        process.put("main", key, 1)
    known = begin(process)
    read(process, known, "a", "b")
    process.put(known.transaction.branch, "c", 2)
    for key in ("a", "b", "c"):
        process.put("main", key, 3)
    assert [told.partition(" ")[0] for told in why(process, known)] == ["'a'", "'b'", "'c'"]


# --- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", ["sales", None])
@pytest.mark.parametrize("what", ["comes", "goes"])
def test_names_that_were_listed_must_be_the_same(process: Process, listed: str | None, what: str) -> None:
    namespace(process, "main", "sales")
    process.put("main", "sales.old", 1)
    known = begin(process)
    read(process, known, Read(key=None if listed is None else Key(listed), is_listing=True))
    process.put(known.transaction.branch, "b", 1)
    if what == "comes":
        process.put("main", "sales.new", 1)
    else:
        process.delete("main", "sales.old")
    (told,) = why(process, known)
    change = "was added to" if what == "comes" else "was removed from"
    assert f"{change} {'the lake' if not listed else repr(listed)}" in told


def test_names_elsewhere_and_what_names_hold_were_not_listed(process: Process) -> None:
    for name in ("sales", "salesman"):
        namespace(process, "main", name)
    process.put("main", "sales.orders", 1)
    known = begin(process)
    read(process, known, Read(key=Key("sales"), is_listing=True))
    process.put(known.transaction.branch, "b", 1)
    process.put("main", "sales.orders", 2)
    process.put("main", "salesman.new", 1)
    process.put("main", "other", 1)
    assert why(process, known) == []


def test_names_that_were_listed_bind_only_what_must_be_as_if_it_ran_alone(process: Process) -> None:
    known = begin(process, SNAPSHOT)
    read(process, known, Read(is_listing=True))
    process.put(known.transaction.branch, "b", 1)
    process.put("main", "a", 1)
    assert why(process, known) == []


def test_names_are_compared_once_all_that_came_before_has_landed(process: Process) -> None:
    """A new name may come by a request of the same batch, which no commit tells of yet."""
    kernel, known = process.kernel, begin(process)
    process.put(known.transaction.branch, "b", 1)
    head = kernel.references.get_reference(known.transaction.branch).head
    names = {b"": ReadEntry(is_listed=True)}
    for isolation, waits in ((SERIALIZABLE, True), (SNAPSHOT, False)):
        options = MergeOptions(reads=TransactionReads(known.transaction.base, isolation, names))
        merge = MergeRequest(
            kernel.history, kernel.formats, head, CommitMeta(), options, ThreeWayTerms(key="k")
        )
        chain = CommitChain(kernel.objects, kernel.references.get_reference("main").head)
        assert merge.draft_commits(chain, kernel.references.get_reference("main"))
        chain.add_draft(CommitDraft({b"a": b"anything"}, CommitMeta()))
        if waits:
            with pytest.raises(NextBatch):
                merge.draft_commits(chain, kernel.references.get_reference("main"))
        else:
            assert merge.draft_commits(chain, kernel.references.get_reference("main"))


# --- two at once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("isolation", "landed"), [(SNAPSHOT, 2), (SERIALIZABLE, 1)])
def test_of_two_that_each_read_what_the_other_writes_one_lands(
    database: Store, clock: Clock, isolation: Isolation, landed: int
) -> None:
    """Write skew: each alone leaves one of both on call; together, nobody would be."""
    one, other = Process(database, clock), Process(database, clock)
    for key in ("ann", "bob"):
        one.put("main", key, 1)
    mine, yours = begin(one, isolation), begin(other, isolation)
    for process, known, writes in ((one, mine, "ann"), (other, yours, "bob")):
        read(process, known, "ann", "bob")
        process.put(known.transaction.branch, writes, 0)
    meet, told = Barrier(2), list[list[str]]()

    def lands(process: Process, known: TransactionRecord) -> None:
        meet.wait(30)
        told.append(why(process, known))

    threads = [Thread(target=lands, args=each) for each in ((one, mine), (other, yours))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(each == [] for each in told) == landed
    assert (one.number("ann"), one.number("bob")).count(0) == landed


def test_a_read_that_is_noted_when_it_is_being_committed_is_refused(
    faulty: FaultyStore, clock: Clock
) -> None:
    slow, other = Process(faulty, clock), Process(faulty.inner, clock)
    slow.put("main", "a", 1)
    known = begin(slow)
    slow.put(known.transaction.branch, "b", 1)
    noted = while_stopped(
        faulty,
        Point.BEFORE_SWAP,
        known.transaction.branch,
        lambda: read(slow, known, "a"),
        lambda: other.commit(known),
    )
    with pytest.raises(TransactionOver):
        noted.result()
    assert other.transactions.list_reads(other.transactions.get_transaction(known.transaction.id)) == ()


def test_a_commit_that_meets_a_read_being_noted_counts_it(faulty: FaultyStore, clock: Clock) -> None:
    slow, other = Process(faulty, clock), Process(faulty.inner, clock)
    slow.put("main", "a", 1)
    known = begin(slow)
    slow.put(known.transaction.branch, "b", 1)
    other.put("main", "a", 2)
    committed = while_stopped(
        faulty,
        Point.BEFORE_SWAP,
        known.transaction.branch,
        lambda: slow.commit(known),
        lambda: read(other, known, "a"),
    )
    with pytest.raises(MergeConflict, match="'a' was read by this transaction"):
        committed.result()


def test_a_merge_that_another_process_repeats_is_judged_by_the_same_reads(
    database: Store, clock: Clock
) -> None:
    process = Process(database, clock)
    process.put("main", "a", 1)
    known = begin(process)
    read(process, known, "a")
    process.put(known.transaction.branch, "b", 1)
    process.kernel.checks.add_check(Check("dies", "main", _die))
    with pytest.raises(KeyboardInterrupt):
        process.commit(known)
    process.kernel.checks.remove_check("dies")
    other = Process(database, clock)
    other.kernel.checks.add_check(Check("dies", "main", lambda _: None))
    other.put("main", "a", 2)
    (told,) = why(other, known)
    assert told.startswith("'a' was read")
    assert other.transactions.get_transaction(known.transaction.id).state is TransactionState.ABORTED


def _die(_: object) -> None:
    raise KeyboardInterrupt


def test_a_repeated_merge_that_has_landed_is_not_refused_for_what_came_after_it(
    database: Store, clock: Clock
) -> None:
    process = Process(database, clock)
    process.put("main", "a", 1)
    known = begin(process)
    read(process, known, "a")
    process.put(known.transaction.branch, "b", 1)
    landed = process.commit(known)
    process.put("main", "a", 2)
    again = Process(database, clock).commit(known)
    assert again.transaction.commit == landed.transaction.commit


# --- how reads are kept ---------------------------------------------------------------------------------


def test_one_that_only_read_leaves_no_commit(process: Process) -> None:
    process.put("main", "a", 1)
    known = begin(process)
    read(process, known, "a", "none", Read(is_listing=True))
    process.put("main", "a", 2)
    head = process.head()
    ended = process.commit(known)
    assert (ended.state, ended.transaction.commit) == (TransactionState.COMMITTED, NO_COMMIT)
    assert process.head() == head


def test_one_that_undid_all_that_it_wrote_leaves_no_commit(process: Process) -> None:
    process.put("main", "a", 1)
    known, head = begin(process), process.head()
    process.put(known.transaction.branch, "b", 1)
    process.delete(known.transaction.branch, "b")
    assert process.commit(known).transaction.commit == NO_COMMIT
    assert process.head() == head


def test_what_is_noted_already_is_not_noted_again(process: Process) -> None:
    known = begin(process)
    read(process, known, "a", Read(key=Key("b"), part="x"))
    head = process.head(known.transaction.branch)
    assert process.kernel.history.read_commit(head).message == "read a, b"
    read(process, known, "a", Read(key=Key("a"), part="x"), Read(key=Key("b"), part="x"))
    read(process, known)
    assert process.head(known.transaction.branch) == head
    read(process, known, "b")
    assert process.head(known.transaction.branch) != head


def test_reads_are_told_as_they_were_noted(process: Process) -> None:
    known = begin(process)
    told = (
        Read(is_listing=True),
        Read(key=Key("a"), part="x > 1"),
        Read(key=Key("a"), part="x < 0"),
        Read(key=Key("b"), is_listing=True),
        Read(key=Key("b")),
    )
    read(process, known, *told)
    found = process.transactions.list_reads(process.transactions.get_transaction(known.transaction.id))
    assert len(found) == len(told)
    assert set(found) == set(told)


def test_reads_are_not_carried_to_the_target(process: Process) -> None:
    process.put("main", "a", 1)
    known = begin(process)
    read(process, known, "a")
    process.put(known.transaction.branch, "b", 1)
    process.commit(known)
    state = process.kernel.read_state(process.head())
    assert list(state.scan_entries(READS, find_prefix_end(READS))) == []


def test_one_that_begins_where_another_has_read_begins_with_nothing_read(process: Process) -> None:
    process.put("main", "a", 1)
    first = begin(process)
    read(process, first, "a")
    process.put(first.transaction.branch, "b", 1)
    head = process.head(first.transaction.branch)
    process.commit(first)
    process.kernel.references.create_reference("dev", Kind.BRANCH, head)
    second = process.begin(policy=Policy.REBASE, isolation=SERIALIZABLE, target="dev")
    assert process.transactions.list_reads(second) == ()
    read(process, second, "a")
    process.put(second.transaction.branch, "c", 1)
    process.put("dev", "a", 2)
    (told,) = why(process, second)
    assert told.startswith("'a' was read")


def test_more_parts_than_are_worth_telling_are_the_whole_table(process: Process) -> None:
    known = begin(process)
    for number in range(PARTS_MAX + 1):
        read(process, known, Read(key=Key("a"), part=f"id = {number:04} {'x' * 1000}"))
    found = process.transactions.list_reads(process.transactions.get_transaction(known.transaction.id))
    assert found == (Read(key=Key("a")),)


def test_nothing_is_noted_for_one_that_has_ended_or_never_was(process: Process) -> None:
    known = begin(process)
    process.transactions.abort_transaction(known.transaction.id)
    with pytest.raises(TransactionOver):
        read(process, known, "a")
    with pytest.raises(TransactionOver):
        read(process, known)
    with pytest.raises(TransactionNotFound):
        process.transactions.note_reads("0" * 32, [Read(key=Key("a"))])


def test_the_isolation_of_one_that_has_begun_stays(process: Process) -> None:
    known = begin(process)
    assert known.transaction.isolation is SERIALIZABLE
    with pytest.raises(
        InvalidRequest, match="the isolation 'serializable'; use another id for another transaction"
    ):
        process.transactions.begin_transaction(known.transaction.id, "main")


def test_one_begins_to_be_rebased_unless_it_says_otherwise(process: Process) -> None:
    known = process.transactions.begin_transaction("a" * 32, "main")
    assert (known.transaction.policy, known.transaction.isolation) == (Policy.REBASE, SNAPSHOT)


def test_a_check_and_a_sweep_walk_over_reads(database: Store, clock: Clock) -> None:
    process = Process(database, clock, GREEDY)
    process.put("main", "a", 1)
    known = begin(process)
    many = [Read(key=Key("a"), part=f"id = {number} {'x' * 3000}") for number in range(PARTS_MAX)]
    read(process, known, *many)  # too much for one object
    clock.us += MINUTE_US
    sweep_objects(process.kernel)
    assert fsck(process.kernel).damages == ()
    other = Process(database, clock, GREEDY)
    assert set(
        other.transactions.list_reads(other.transactions.get_transaction(known.transaction.id))
    ) == set(many)
    other.put(known.transaction.branch, "b", 1)
    other.put("main", "a", 2)
    (told,) = why(other, known)
    assert told.startswith("'a' was read")
    clock.us += MINUTE_US
    sweep_objects(other.kernel)
    last = Process(database, clock, GREEDY)
    assert fsck(last.kernel).damages == ()
    assert last.transactions.list_reads(last.transactions.get_transaction(known.transaction.id)) == ()


def test_a_copy_has_the_reads_behind_what_landed(database: Store, clock: Clock) -> None:
    process = Process(database, clock)
    process.put("main", "a", 1)
    known, still_open = begin(process), begin(process)
    many = [Read(key=Key("a"), part=f"id = {number} {'x' * 3000}") for number in range(PARTS_MAX)]
    for each in (known, still_open):
        read(process, each, *many)
    process.put(known.transaction.branch, "b", 1)
    process.commit(known)
    target = MemoryStore(clock)
    copy_store(process.kernel, target, source_place="here", target_place="there")
    there = Kernel(target, clock=clock)
    assert fsck(there).damages == ()
    head = there.references.get_reference("main").head
    assert [one.message for _, one in there.walk_commits(head, all_parents=True)][:2] == ["landed", "b = 1"]
    assert "read a" in [one.message for _, one in there.walk_commits(head, all_parents=True)]
