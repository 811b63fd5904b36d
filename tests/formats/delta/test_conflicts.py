"""Delta's conflict rules: every rule under every isolation level, what a conflict says, and the rebase."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.errors import InvalidContent
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from penstock.formats.delta.protocol.conflicts import (
    HARMLESS_PROPERTIES,
    DeltaConflict,
    DeltaConflictKind,
    RebasedTransaction,
    check_winner,
    rebase_transaction,
)
from penstock.formats.delta.protocol.row_ids import high_water_mark
from penstock.formats.delta.protocol.transaction import (
    DeltaIsolation,
    DeltaReads,
    DeltaTransaction,
    PartitionFilter,
    WinningCommit,
    choose_isolation,
    table_isolation,
)
from tests.formats.delta.legal_commits import schema_string, vector

METADATA = Metadata(
    id="t",
    schema_string=schema_string({"id": "long", "p": "integer", "at": "timestamp"}),
    partition_columns=("p",),
    configuration={"owner": "me"},
)
FEATURES = ("appendOnly", "invariants", "domainMetadata")
BLIND = CommitInfo({"operation": "WRITE", "isBlindAppend": True})
CHANGING = CommitInfo({"operation": "MERGE", "isBlindAppend": False})


def protocol(*features: str) -> Protocol:
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)


def metadata(**fields: Any) -> Metadata:
    return msgspec.structs.replace(METADATA, **fields)


def configured(**more: str) -> Metadata:
    return metadata(configuration={"owner": "me", **more})


def add(path: str, p: str | None = "1", *, data_change: bool = True) -> Add:
    return Add(path=path, partition_values={"p": p}, size=1, modification_time=1, data_change=data_change)


def remove(path: str, p: str | None = "1", *, data_change: bool = True, known: bool = True) -> Remove:
    values = {"p": p} if known else None
    return Remove(path=path, data_change=data_change, partition_values=values)


def partitions(*values: str | None) -> tuple[PartitionFilter, ...]:
    return (PartitionFilter({"p": values}),)


def mine(
    *actions: Action,
    reads: DeltaReads = DeltaReads(),
    isolation: DeltaIsolation = DeltaIsolation.SERIALIZABLE,
) -> DeltaTransaction:
    return DeltaTransaction(
        read_version=10,
        protocol=protocol(*FEATURES),
        metadata=METADATA,
        isolation=isolation,
        actions=actions,
        reads=reads,
    )


def won(*actions: Action, version: int = 11) -> WinningCommit:
    return WinningCommit(version, actions)


LEVELS = EVERY = (DeltaIsolation.SERIALIZABLE, DeltaIsolation.WRITE_SERIALIZABLE, DeltaIsolation.SNAPSHOT)
STRICT = (DeltaIsolation.SERIALIZABLE,)
WRITES = (DeltaIsolation.SERIALIZABLE, DeltaIsolation.WRITE_SERIALIZABLE)
NEVER = ()

P, M, T = (
    DeltaConflictKind.PROTOCOL_CHANGED,
    DeltaConflictKind.METADATA_CHANGED,
    DeltaConflictKind.CONCURRENT_TRANSACTION,
)
A, DR = DeltaConflictKind.CONCURRENT_APPEND, DeltaConflictKind.CONCURRENT_DELETE_READ
DD = DeltaConflictKind.CONCURRENT_DELETE_DELETE

EVERYTHING = DeltaReads(whole_table=True)
SOME_OF_1 = DeltaReads(partitions=partitions("1"), files=frozenset({"a"}))
ALL_OF_1 = DeltaReads(partitions=partitions("1"))
ALL_OF_2 = DeltaReads(partitions=partitions("2"))
APP_A = DeltaReads(applications=frozenset({"a"}))

APPEND, DELETE, NOTE = mine(add("x")), mine(remove("a")), mine(configured(note="2"))
READ_ALL = mine(add("x"), reads=EVERYTHING)
SCANNED = mine(add("x"), reads=DeltaReads(partitions=(PartitionFilter(),)))
READ_A = mine(add("x"), reads=SOME_OF_1)
READ_1 = mine(add("x"), reads=ALL_OF_1)
READ_2 = mine(add("x"), reads=ALL_OF_2)
NOTE_AND_READ_A = mine(configured(note="2"), reads=SOME_OF_1)
REPARTITION = mine(metadata(partition_columns=()))
ADD_A_AGAIN = mine(add("a", data_change=False))

APPENDED, MERGED, REMOVED = (BLIND, add("new")), (CHANGING, add("new")), (remove("a"),)
BLIND_BY_WORD = (BLIND, add("new"), remove("z", "2"))
COMPACTED_A = (remove("a", data_change=False), add("ab", data_change=False))
COMPACTED_B = (remove("b", data_change=False), add("bc", data_change=False))
OTHER_SCHEMA = metadata(schema_string=schema_string({"p": "integer"}))
TYPES = {"id": "long", "p": "integer", "at": "timestamp"}
ADDED = metadata(schema_string=schema_string({**TYPES, "note": "string"}))
ADDED_MORE = metadata(schema_string=schema_string({**TYPES, "note": "string", "more": "string"}))
ADDED_OTHER = metadata(schema_string=schema_string({**TYPES, "other": "string"}))
ADDED_TYPE = metadata(schema_string=schema_string({**TYPES, "note": "long"}))
ADDED_AND_SET = msgspec.structs.replace(ADDED, configuration={"owner": "you"})
ADDED_NOT_NULL = metadata(
    schema_string=ADDED.schema_string.replace('"string", "nullable": true', '"string", "nullable": false')
)
CHECKS, FEED = "checkConstraints", "changeDataFeed"
VECTORS = configured(**{"delta.enableDeletionVectors": "true"})
D1, D2, E2 = (
    DomainMetadata(domain=name, configuration=text) for name, text in (("d", "1"), ("d", "2"), ("e", "2"))
)
A1, A2, B2 = (Txn(app_id=name, version=version) for name, version in (("a", 1), ("a", 2), ("b", 2)))


class Row(msgspec.Struct, frozen=True):
    """A rule, a winner and a transaction, the conflict, and under which levels it is one."""

    rule: int
    words: str
    winner: tuple[Action, ...]
    transaction: DeltaTransaction
    kind: DeltaConflictKind
    levels: tuple[DeltaIsolation, ...]
    by: int | None = None
    """The rule that the conflict names, where it is another."""

    def __str__(self) -> str:
        return f"{self.rule} {self.words}"


MATRIX = [
    Row(
        1,
        "both change the protocol",
        (protocol(*FEATURES, CHECKS),),
        mine(protocol(*FEATURES, FEED)),
        P,
        EVERY,
    ),
    Row(1, "both bring a feature", (protocol(*FEATURES, FEED),), mine(protocol(*FEATURES, FEED)), P, NEVER),
    Row(
        1, "one brings more", (protocol(*FEATURES, FEED),), mine(protocol(*FEATURES, FEED, CHECKS)), P, NEVER
    ),
    Row(2, "a feature is dropped", (protocol("appendOnly", "invariants"),), APPEND, P, EVERY),
    Row(2, "a binding feature comes", (protocol(*FEATURES, "checkConstraints"),), APPEND, P, EVERY),
    Row(2, "an unknown feature comes", (protocol(*FEATURES, "bogus"),), APPEND, P, EVERY),
    Row(3, "a feature that binds nobody", (protocol(*FEATURES, "inCommitTimestamp"),), APPEND, P, NEVER),
    Row(4, "both change the metadata", (configured(note="1"),), NOTE, M, EVERY),
    Row(4, "both add a column", (ADDED,), mine(ADDED), M, NEVER),
    Row(4, "one adds more", (ADDED,), mine(ADDED_MORE), M, NEVER),
    Row(4, "one adds less", (ADDED_MORE,), mine(ADDED), M, EVERY),
    Row(4, "both add another column", (ADDED,), mine(ADDED_OTHER), M, EVERY),
    Row(4, "both add another type", (ADDED,), mine(ADDED_TYPE), M, EVERY),
    Row(4, "one sets a property too", (ADDED,), mine(ADDED_AND_SET), M, NEVER),
    Row(5, "a harmless property", (VECTORS,), APPEND, M, NEVER),
    Row(5, "a new column", (ADDED,), APPEND, M, NEVER),
    Row(5, "a new column, beside a delete", (ADDED,), mine(remove("a"), reads=SOME_OF_1), M, NEVER),
    Row(6, "a new column and a property", (ADDED_AND_SET,), APPEND, M, EVERY),
    Row(6, "a new column that may not be null", (ADDED_NOT_NULL,), APPEND, M, EVERY),
    Row(6, "another property", (configured(note="1"),), APPEND, M, EVERY),
    Row(6, "a property goes", (metadata(configuration={}),), APPEND, M, EVERY),
    Row(6, "the schema", (OTHER_SCHEMA,), APPEND, M, EVERY),
    Row(6, "the name", (metadata(name="new"),), mine(), M, EVERY),
    Row(7, "the same domain", (D1,), mine(D2), T, EVERY),
    Row(7, "another domain", (D1,), mine(E2), T, NEVER),
    Row(8, "an application that was read", (A1,), mine(reads=APP_A), T, EVERY),
    Row(8, "an application that is written", (A1,), mine(A2), T, EVERY),
    Row(8, "another application", (A1,), mine(B2), T, NEVER),
    Row(9, "into what was read", APPENDED, READ_A, A, STRICT),
    Row(9, "all read", APPENDED, READ_ALL, A, STRICT),
    Row(9, "all looked through", APPENDED, SCANNED, A, STRICT),
    Row(9, "metadata changed", APPENDED, NOTE_AND_READ_A, A, WRITES),
    Row(9, "a column added", APPENDED, mine(ADDED, reads=SOME_OF_1), A, STRICT),
    Row(9, "partitioning changed", APPENDED, REPARTITION, A, WRITES),
    Row(9, "elsewhere", APPENDED, READ_2, A, NEVER),
    Row(10, "into what was read", MERGED, READ_A, A, WRITES),
    Row(10, "by one who does not say", (add("new"),), READ_A, A, WRITES),
    Row(10, "blind by word only", BLIND_BY_WORD, READ_A, A, WRITES),
    Row(10, "all read", MERGED, READ_ALL, A, WRITES),
    Row(10, "elsewhere", MERGED, READ_2, A, NEVER),
    Row(11, "a file that was read", REMOVED, READ_A, DR, EVERY),
    Row(11, "a partition that was read", REMOVED, READ_1, DR, EVERY),
    Row(11, "in an unknown partition", (remove("a", known=False),), READ_2, DR, EVERY),
    Row(11, "a file that comes again", REMOVED, ADD_A_AGAIN, DR, EVERY),
    Row(11, "a file that was not read", (remove("b"),), READ_A, DR, NEVER),
    Row(11, "another partition", REMOVED, READ_2, DR, NEVER),
    Row(12, "all read", REMOVED, READ_ALL, DR, EVERY),
    Row(13, "the same file", REMOVED, DELETE, DD, EVERY),
    Row(13, "another file", (remove("b"),), DELETE, DD, NEVER),
    Row(14, "two blind appends", APPENDED, APPEND, A, NEVER),
    Row(14, "a merge and a blind append", (*MERGED, *REMOVED), APPEND, A, NEVER),
    Row(15, "a compaction of what was read", COMPACTED_A, READ_A, DR, EVERY, by=11),
    Row(15, "a compaction, all read", COMPACTED_A, READ_ALL, DR, EVERY, by=12),
    Row(15, "a compaction of the rest", COMPACTED_B, READ_A, DR, NEVER),
    Row(16, "a takeover", (BLIND,), mine(protocol(*FEATURES, "managedCommits")), P, EVERY),
]
CONFLICTS = [row for row in MATRIX if row.levels]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("row", MATRIX, ids=str)
def test_a_rule_under_an_isolation_level(row: Row, level: DeltaIsolation) -> None:
    outcome = check_winner(won(*row.winner), msgspec.structs.replace(row.transaction, isolation=level))
    if level not in row.levels:
        assert isinstance(outcome, RebasedTransaction), outcome
        assert outcome.onto == 11
    else:
        assert isinstance(outcome, DeltaConflict)
        assert (outcome.kind, outcome.rule) == (row.kind, row.by or row.rule)
        assert (outcome.winner, outcome.read_version) == (11, 10)


def test_each_rule_has_a_row() -> None:
    assert {row.rule for row in MATRIX} == set(range(1, 17))


def test_a_deletion_vector_that_was_written_meanwhile_is_a_delete_of_the_file() -> None:
    deleted = (remove("a"), msgspec.structs.replace(add("a"), deletion_vector=vector(1)))
    for transaction in (mine(reads=SOME_OF_1), mine(remove("a"))):
        assert isinstance(check_winner(won(*deleted), transaction), DeltaConflict)
    assert isinstance(check_winner(won(*deleted), mine(remove("b"))), RebasedTransaction)


@pytest.mark.parametrize(
    ("column", "written", "read", "clash"),
    [
        ("p", "1", "01", True),
        ("p", "1", "2", False),
        ("p", "", None, True),
        ("p", None, "1", False),
        ("p", "garbage", "1", True),
        ("at", "2024-01-01 00:00:00", "2024-01-01T00:00:00.000000", True),
        ("at", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00", True),
        ("at", "2024-01-01T00:00:00Z", "2023-12-31 23:00:00", True),
        ("at", "2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z", False),
        ("gone", "1", "2", True),
    ],
)
def test_partition_values_meet_by_what_they_stand_for_and_in_doubt(
    column: str, written: str | None, read: str | None, clash: bool
) -> None:
    new = msgspec.structs.replace(add("new"), partition_values={column: written})
    reads = DeltaReads(partitions=(PartitionFilter({column: (read,)}),))
    assert isinstance(check_winner(won(CHANGING, new), mine(reads=reads)), DeltaConflict) is clash


def test_a_predicate_over_two_columns_is_met_by_both() -> None:
    both = DeltaReads(partitions=(PartitionFilter({"p": ("1", "2"), "q": ("x",)}),))
    for p, q, clash in (("1", "x", True), ("2", "x", True), ("1", "y", False), ("3", "x", False)):
        new = msgspec.structs.replace(add("new"), partition_values={"p": p, "q": q})
        table = metadata(schema_string=schema_string({"p": "integer", "q": "string"}))
        transaction = msgspec.structs.replace(mine(reads=both), metadata=table)
        assert isinstance(check_winner(won(CHANGING, new), transaction), DeltaConflict) is clash


def test_a_conflict_names_both_commits_the_files_and_the_way_out() -> None:
    winner = won(CHANGING, *(add(f"f{n}", str(n % 2)) for n in range(5)), version=12)
    conflict = check_winner(winner, mine(reads=DeltaReads(partitions=partitions("0", "1"))))
    assert str(conflict) == (
        "version 12 (MERGE) added f0, f1, f2 and 2 more in p=0, p=1, which this transaction would have read;"
        " this transaction read version 10; read version 12 or a later one and repeat the work (rule 10)"
    )


@pytest.mark.parametrize("row", CONFLICTS, ids=str)
def test_every_conflict_can_be_told(row: Row) -> None:
    told = str(check_winner(won(*row.winner), row.transaction))
    assert "version 11" in told
    assert "read version 10" in told
    assert "{" not in told


def test_a_batch_that_is_in_the_table_already_is_told_as_repeated() -> None:
    winner = won(Txn(app_id="a", version=5))
    for version, repeated in ((4, True), (5, True), (6, False)):
        conflict = check_winner(winner, mine(Txn(app_id="a", version=version)))
        assert isinstance(conflict, DeltaConflict)
        assert conflict.repeated is repeated
        assert ("there is nothing to do" in str(conflict)) is repeated
    halves = check_winner(winner, mine(Txn(app_id="a", version=5), Txn(app_id="b", version=1)))
    assert isinstance(halves, DeltaConflict)
    assert not halves.repeated


def test_a_rebase_is_later_than_the_winner_and_never_earlier_than_it_was() -> None:
    for own, winning, expected in ((50, 60, 61), (50, 50, 51), (90, 60, 90)):
        transaction = mine(CommitInfo({"inCommitTimestamp": own, "engineInfo": "x"}), add("x"))
        outcome = check_winner(won(CommitInfo({"inCommitTimestamp": winning})), transaction)
        assert isinstance(outcome, RebasedTransaction)
        info, added = outcome.transaction.actions
        assert info == CommitInfo({"inCommitTimestamp": expected, "engineInfo": "x"})
        assert added == add("x")


def test_a_rebase_onto_a_table_that_got_timestamps_gets_one_too() -> None:
    outcome = check_winner(won(CommitInfo({"inCommitTimestamp": 60})), mine(add("x")))
    assert isinstance(outcome, RebasedTransaction)
    assert outcome.transaction.actions == (CommitInfo({"inCommitTimestamp": 61}), add("x"))


def test_a_rebase_over_several_winners_adopts_what_they_changed_and_stops_at_the_first_conflict() -> None:
    newer = protocol(*FEATURES, "inCommitTimestamp")
    enabled = configured(**{"delta.enableDeletionVectors": "true"})
    winners = [won(newer, version=11), won(enabled, version=12), won(BLIND, add("b"), version=13)]
    outcome = rebase_transaction(winners, mine(add("x")))
    assert isinstance(outcome, RebasedTransaction)
    assert outcome.onto == 13
    assert (outcome.transaction.protocol, outcome.transaction.metadata) == (newer, enabled)
    # The second winner gives back the first one's metadata: it does not change what the transaction knows.
    again = [won(enabled, version=11), won(enabled, version=12), won(remove("a"), version=13)]
    conflict = rebase_transaction([*again, won(configured(note="1"), version=14)], mine(remove("a")))
    assert isinstance(conflict, DeltaConflict)
    assert (conflict.winner, conflict.kind) == (13, DD)


def test_without_winners_a_transaction_stays_as_it_is() -> None:
    assert rebase_transaction([], mine(add("x"))) == RebasedTransaction(mine(add("x")), 10)


def test_every_harmless_property_may_be_set_but_not_unset() -> None:
    for name in HARMLESS_PROPERTIES:
        assert isinstance(check_winner(won(configured(**{name: "1"})), mine(add("x"))), RebasedTransaction)
        had = msgspec.structs.replace(mine(add("x")), metadata=configured(**{name: "1"}))
        assert isinstance(check_winner(won(configured(**{name: "2"})), had), RebasedTransaction)
        assert isinstance(check_winner(won(METADATA), had), DeltaConflict)


def test_two_transactions_that_give_ids_to_rows_are_no_conflict_by_that() -> None:
    features = protocol("domainMetadata", "rowTracking")
    tracked = msgspec.structs.replace(mine(add("x"), high_water_mark(7)), protocol=features)
    assert isinstance(check_winner(won(BLIND, add("y"), high_water_mark(9)), tracked), RebasedTransaction)


def test_a_blind_append_reads_nothing_and_removes_nothing() -> None:
    assert mine(BLIND, add("x")).is_blind_append
    assert not mine(add("x"), remove("a")).is_blind_append
    for reads in (EVERYTHING, SOME_OF_1, DeltaReads(files=frozenset({"a"}))):
        assert not mine(add("x"), reads=reads).is_blind_append


# --- the isolation level ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "operation_changes_data", "serializable", "write_serializable"),
    [
        ((BLIND, add("x")), True, DeltaIsolation.SERIALIZABLE, DeltaIsolation.WRITE_SERIALIZABLE),
        ((BLIND, add("x")), False, DeltaIsolation.SERIALIZABLE, DeltaIsolation.WRITE_SERIALIZABLE),
        ((add("x", data_change=False),), False, DeltaIsolation.SNAPSHOT, DeltaIsolation.SNAPSHOT),
        ((add("x", data_change=False),), True, DeltaIsolation.SNAPSHOT, DeltaIsolation.WRITE_SERIALIZABLE),
        ((remove("x", data_change=False), remove("y")), False, *LEVELS[:2]),
        ((), False, DeltaIsolation.SNAPSHOT, DeltaIsolation.SNAPSHOT),
        ((configured(note="1"),), False, *LEVELS[:2]),
        ((Txn(app_id="a", version=1),), False, *LEVELS[:2]),
        ((protocol(*FEATURES),), False, *LEVELS[:2]),
    ],
)
def test_only_work_that_changes_nothing_gets_by_with_its_snapshot(
    actions: tuple[Action, ...],
    operation_changes_data: bool,
    serializable: DeltaIsolation,
    write_serializable: DeltaIsolation,
) -> None:
    wanted = (serializable, write_serializable, DeltaIsolation.SNAPSHOT)
    for level, expected in zip(LEVELS, wanted, strict=True):
        assert choose_isolation(level, actions, operation_changes_data=operation_changes_data) is expected


def test_a_table_asks_for_its_level_by_a_property() -> None:
    assert table_isolation(None) is DeltaIsolation.WRITE_SERIALIZABLE
    assert table_isolation(METADATA) is DeltaIsolation.WRITE_SERIALIZABLE
    for level in DeltaIsolation:
        assert table_isolation(configured(**{"delta.isolationLevel": level.value.lower()})) is level
    with pytest.raises(InvalidContent, match="Serializable"):
        table_isolation(configured(**{"delta.isolationLevel": "chaos"}))
