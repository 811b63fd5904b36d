"""The conflict rules against a model: a table is a set of files, a transaction a program that reads it.

A program looks for the files of some partitions, removes some of them, and adds files whose names tell what
it has seen. So it gives the same on two tables exactly if it saw the same, and the rules can be held against
what running the programs one after the other would have given.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, Metadata, Protocol, Remove
from penstock.formats.delta.protocol.conflicts import (
    DeltaConflict,
    RebasedTransaction,
    check_winner,
    rebase_transaction,
)
from penstock.formats.delta.protocol.transaction import (
    DeltaIsolation,
    DeltaReads,
    DeltaTransaction,
    PartitionFilter,
    WinningCommit,
)
from tests.chance import examples
from tests.formats.delta.legal_commits import schema_string

Files = Mapping[str, str]
"""The table: partition by path."""

PARTITIONS = ("1", "2", "3")
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
METADATA = Metadata(
    id="t", schema_string=schema_string({"id": "long", "p": "integer"}), partition_columns=("p",)
)


class Program(msgspec.Struct, frozen=True):
    """What a writer does with whatever table it finds."""

    name: str
    looks_in: frozenset[str]
    removes_one_in: int
    """Removes every file it sees (1), about every second or third one, or none (0)."""
    removes_unseen: frozenset[str]
    """Files that it removes without having looked."""
    adds_to: tuple[str, ...]
    lists_files: bool
    """Whether it names the files that it read, beside the partitions."""
    claims_all: bool
    """Whether it says only that it read the whole table."""

    def run(self, files: Files) -> tuple[Action, ...]:
        seen = sorted(path for path, partition in files.items() if partition in self.looks_in)
        gone = {path for path in seen if self.removes_one_in and _hash(path) % self.removes_one_in == 0}
        gone |= self.removes_unseen & files.keys()
        missed = sorted(self.removes_unseen - files.keys())
        blind = CommitInfo({"isBlindAppend": not self.looks_in and not gone, "saw": [seen, missed]})
        # The names hold what was seen: a program that sees something else writes something else.
        told = _hash(f"{self.name} {seen}")
        adds = (_add(f"{self.name}-{number}-{told}", p) for number, p in enumerate(self.adds_to))
        removes = (_remove(path, files[path]) for path in sorted(gone))
        return (blind, *adds, *removes)

    def transaction(self, files: Files, isolation: DeltaIsolation) -> DeltaTransaction:
        seen = frozenset(path for path, partition in files.items() if partition in self.looks_in)
        looked = (PartitionFilter({"p": tuple(sorted(self.looks_in))}),) if self.looks_in else ()
        reads = DeltaReads(partitions=looked, files=seen if self.lists_files else None)
        return DeltaTransaction(
            read_version=0,
            protocol=PROTOCOL,
            metadata=METADATA,
            isolation=isolation,
            actions=self.run(files),
            reads=DeltaReads(whole_table=True) if self.claims_all else reads,
        )


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())


def _add(path: str, partition: str) -> Add:
    return Add(path=path, partition_values={"p": partition}, size=1, modification_time=1, data_change=True)


def _remove(path: str, partition: str) -> Remove:
    return Remove(path=path, partition_values={"p": partition}, data_change=True)


def after(files: Files, actions: tuple[Action, ...]) -> Files:
    result = dict(files)
    for action in actions:
        if isinstance(action, Remove):
            result.pop(action.path, None)
    return result | {
        action.path: str(action.partition_values["p"]) for action in actions if isinstance(action, Add)
    }


TABLES = st.dictionaries(
    st.sampled_from([f"f{n}" for n in range(8)]), st.sampled_from(PARTITIONS), max_size=8
)


@st.composite
def programs(draw: st.DrawFn, name: str, *, claims: bool = False) -> Program:
    return Program(
        name,
        draw(st.frozensets(st.sampled_from(PARTITIONS), max_size=2)),
        draw(st.integers(0, 3)),
        draw(st.frozensets(st.sampled_from([f"f{n}" for n in range(8)]), max_size=1)),
        tuple(draw(st.lists(st.sampled_from(PARTITIONS), max_size=2))),
        draw(st.booleans()),
        claims and draw(st.booleans()),
    )


many = settings(max_examples=examples(250), derandomize=True, deadline=None)


@many
@given(TABLES, programs("w"), programs("t"))
def test_serializable_refuses_exactly_those_who_would_have_done_something_else(
    files: Files, first: Program, second: Program
) -> None:
    outcome = check_winner(
        WinningCommit(1, first.run(files)), second.transaction(files, DeltaIsolation.SERIALIZABLE)
    )
    landed = after(files, first.run(files))
    same = second.run(landed) == second.run(files)
    event(f"same: {same}")
    assert isinstance(outcome, RebasedTransaction) is same, outcome
    if isinstance(outcome, RebasedTransaction):
        assert after(landed, outcome.transaction.actions) == after(landed, second.run(landed))


@many
@given(TABLES, programs("w", claims=True), programs("t", claims=True))
def test_write_serializable_accepts_only_what_some_order_gives(
    files: Files, first: Program, second: Program
) -> None:
    transaction = second.transaction(files, DeltaIsolation.WRITE_SERIALIZABLE)
    outcome = check_winner(WinningCommit(1, first.run(files)), transaction)
    if isinstance(outcome, DeltaConflict):
        event("refused")
        return
    landed = after(files, first.run(files))
    in_order = second.run(landed) == second.run(files)
    turned = first.run(after(files, second.run(files))) == first.run(files)
    event(f"in order: {in_order}, turned: {turned}")
    assert in_order or turned
    one, other = after(landed, second.run(files)), after(after(files, second.run(files)), first.run(files))
    assert one == other


@many
@given(TABLES, st.lists(programs("w"), max_size=3), programs("t", claims=True))
def test_what_is_accepted_over_several_winners_equals_the_serial_order(
    files: Files, firsts: list[Program], second: Program
) -> None:
    landed, winners = files, []
    for version, program in enumerate(firsts, 1):
        named = msgspec.structs.replace(program, name=f"w{version}")
        winners.append(WinningCommit(version, named.run(landed)))
        landed = after(landed, winners[-1].actions)
    outcome = rebase_transaction(winners, second.transaction(files, DeltaIsolation.SERIALIZABLE))
    if isinstance(outcome, RebasedTransaction):
        event("accepted")
        assert second.run(landed) == second.run(files)
        assert after(landed, outcome.transaction.actions) == after(landed, second.run(landed))


@many
@given(
    TABLES, programs("w"), st.lists(st.sampled_from(PARTITIONS), max_size=2), st.sampled_from(DeltaIsolation)
)
def test_a_blind_append_never_conflicts_with_changes_of_data(
    files: Files, first: Program, adds_to: list[str], isolation: DeltaIsolation
) -> None:
    blind = Program("t", frozenset(), 0, frozenset(), tuple(adds_to), True, False)
    outcome = check_winner(WinningCommit(1, first.run(files)), blind.transaction(files, isolation))
    assert isinstance(outcome, RebasedTransaction)
