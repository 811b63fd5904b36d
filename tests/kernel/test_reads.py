"""What a transaction has read, as its branch remembers it."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.kernel.three_way import MergeOptions
from penstock.kernel.transaction_reads import (
    NOTED_MAX,
    PART_MAX_CHARS,
    ReadEntry,
    ReadsRequest,
    TransactionReads,
    gather_entries,
)
from penstock.model.encoding import NO_COMMIT, encode
from penstock.model.keys import Key
from penstock.model.reads import PARTS_MAX, Read
from penstock.model.transactions import Isolation

ORDERS = Key("sales", "orders")
AT = ORDERS.encode()


def test_parts_of_a_table_are_remembered_one_by_one() -> None:
    reads = [Read(key=ORDERS, part="b"), Read(key=ORDERS, part="a"), Read(key=ORDERS, part="b")]
    assert gather_entries(reads) == {AT: ReadEntry(("a", "b"))}


def test_a_whole_table_takes_in_its_parts() -> None:
    assert gather_entries([Read(key=ORDERS, part="a"), Read(key=ORDERS)]) == {AT: ReadEntry(None)}
    assert gather_entries([Read(key=ORDERS), Read(key=ORDERS, part="a")]) == {AT: ReadEntry(None)}


def test_names_are_something_else_than_what_a_key_holds() -> None:
    found = gather_entries([Read(key=ORDERS, is_listing=True), Read(key=ORDERS, part="a")])
    assert found == {AT: ReadEntry(("a",), is_listed=True)}
    assert not ReadEntry(is_listed=True).is_opened
    assert gather_entries([Read(is_listing=True)]) == {b"": ReadEntry(is_listed=True)}


@pytest.mark.parametrize(("count", "is_whole"), [(PARTS_MAX, False), (PARTS_MAX + 1, True)])
def test_more_parts_than_are_worth_telling_are_the_whole_table(count: int, is_whole: bool) -> None:
    (found,) = gather_entries([Read(key=ORDERS, part=f"id = {number}") for number in range(count)]).values()
    assert (found.parts is None) is is_whole
    one_more = found.combine_reads(ReadEntry(("id = -1",)))
    assert one_more.parts is None


@pytest.mark.parametrize("part", ["", "x" * (PART_MAX_CHARS + 1)], ids=["nothing", "too much"])
def test_a_part_that_cannot_be_told_is_the_whole_table(part: str) -> None:
    assert gather_entries([Read(key=ORDERS, part=part)]) == {AT: ReadEntry(None)}


@pytest.mark.parametrize(
    "reads",
    [
        [Read()],
        [Read(key=ORDERS, part="a", is_listing=True)],
        [Read(key=ORDERS)] * (NOTED_MAX + 1),
    ],
    ids=["the rows of the lake", "part of a list", "too many"],
)
def test_what_cannot_be_read_is_not_noted(reads: list[Read]) -> None:
    with pytest.raises(InvalidRequest):
        gather_entries(reads)


@pytest.mark.parametrize(
    "entry",
    [ReadEntry(None), ReadEntry(("a", "b")), ReadEntry(is_listed=True), ReadEntry(None, is_listed=True)],
    ids=["whole", "parts", "names", "both"],
)
def test_an_entry_is_told_as_the_reads_that_made_it(entry: ReadEntry) -> None:
    assert gather_entries(list(entry.list_reads(ORDERS))) == {AT: entry}


def test_the_same_reads_are_the_same_wish_in_whatever_order() -> None:
    one, other = Read(key=ORDERS), Read(key=Key("a"), part="x")
    asked = [
        ReadsRequest(reads, b"1" * 16, "ann").fingerprint for reads in ([one, other], [other, one], [one])
    ]
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]


def test_a_merge_that_must_mind_reads_is_another_wish_than_one_that_need_not() -> None:
    names = {AT: ReadEntry(is_listed=True)}
    options = [
        MergeOptions(),
        *(MergeOptions(reads=TransactionReads(NO_COMMIT, isolation, names)) for isolation in Isolation),
        MergeOptions(reads=TransactionReads(NO_COMMIT, Isolation.SNAPSHOT, {AT: ReadEntry(None)})),
    ]
    assert len({encode(one.fingerprint()) for one in options}) == len(options)
