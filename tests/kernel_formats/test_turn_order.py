"""Turn order is the serial order."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

import penstock
from penstock import IcebergTable, Key, Lake, Put
from penstock.errors import (
    CommitConflict,
    CommitNotFound,
    ReferenceChanged,
)
from penstock.model.conflicts import ConflictKind
from penstock.testing.journal import JournalFormat, append, edit, lines_of, replace
from penstock.testing.threads import at_once

APPENDERS = 64


def test_k3_sixty_four_appenders_are_sixty_four_changes_in_a_row(lake: Lake) -> None:
    lake.commit([append("diary", "first")])

    def write(number: int) -> str:
        return lake.commit([append("diary", f"line {number}")], message=str(number)).id

    commits = at_once(*(partial(write, number) for number in range(APPENDERS)))
    assert len(set(commits)) == APPENDERS
    chain = [commit.message for commit in lake.log(limit=APPENDERS)][::-1]
    assert sorted(chain, key=int) == [str(number) for number in range(APPENDERS)]
    assert lines_of(lake.kernel, "diary") == ["first", *(f"line {number}" for number in chain)]


def test_k3_appenders_of_two_processes_are_changes_in_a_row(tmp_path: Path) -> None:
    """Two kernels on one file stand for two processes: they share nothing but the store."""
    lakes = [penstock.open(tmp_path / "lake", formats=[JournalFormat()]) for _ in range(2)]

    def write(number: int) -> None:
        lakes[number % 2].commit([append("diary", f"line {number}")])

    at_once(*(partial(write, number) for number in range(16)))
    for lake in lakes:
        assert sorted(lines_of(lake.kernel, "diary")) == sorted(f"line {number}" for number in range(16))
        assert lake.fsck().damages == ()
        lake.close()


def test_k3_a_blind_change_acts_on_the_table_as_it_is_at_its_turn(
    lake: Lake, journals: JournalFormat
) -> None:
    lake.commit([append("diary", "one")])
    arrived, go = Event(), Event()

    def hold() -> None:
        arrived.set()
        assert go.wait(30)

    journals.during_prepare = hold
    late = Thread(target=lambda: lake.commit([append("diary", "late")]))
    late.start()
    assert arrived.wait(30)
    journals.during_prepare = lambda: None
    lake.commit([replace("diary", "overwritten")])
    go.set()
    late.join(30)
    assert lines_of(lake.kernel, "diary") == ["overwritten", "late"]


def test_k3_a_change_with_a_read_version_lands_if_nothing_it_read_changed(lake: Lake) -> None:
    lake.commit([replace("diary", "one", "two")])
    lake.commit([append("diary", "three")])
    lake.commit([edit("diary", 1, 1, "two", "TWO")])
    assert lines_of(lake.kernel, "diary") == ["one", "TWO", "three"]


def test_k3_a_change_with_a_read_version_is_refused_if_what_it_read_changed(lake: Lake) -> None:
    lake.commit([replace("diary", "one", "two")])
    lake.commit([edit("diary", 1, 1, "two", "TWO")])
    with pytest.raises(CommitConflict) as refused:
        lake.commit([edit("diary", 1, 1, "two", "Two")])
    (conflict,) = refused.value.conflicts
    assert conflict.kind is ConflictKind.FORMAT
    assert str(conflict) == "'diary' changed line 1 (expected version 1, found version 2)"
    assert lines_of(lake.kernel, "diary") == ["one", "TWO"]


def test_k3_of_two_changes_that_read_the_same_one_is_refused(lake: Lake) -> None:
    """The read was of one version; whichever comes first in the queue wins, in one batch or in two."""
    lake.commit([replace("diary", "one")])

    def write(number: int) -> bool:
        try:
            lake.commit([edit("diary", 1, 0, "one", f"writer {number}")])
        except CommitConflict:
            return False
        return True

    won = at_once(*(partial(write, number) for number in range(8)))
    assert won.count(True) == 1
    assert lines_of(lake.kernel, "diary") == [f"writer {won.index(True)}"]


def test_k3_a_base_that_is_no_ancestor_is_refused(lake: Lake) -> None:
    lake.branch().put("a", IcebergTable(metadata_location="1"))
    lake.branch("dev").create()
    elsewhere = lake.branch("dev").put("b", IcebergTable(metadata_location="1"))
    head = lake.branch().head
    with pytest.raises(CommitNotFound, match="not in the history of branch 'main'"):
        lake.commit([append("diary", "one")], base=elsewhere.id)
    with pytest.raises(CommitNotFound):
        lake.commit([Put(Key("c"), IcebergTable(metadata_location="1"))], base=elsewhere.id)
    assert lake.branch().head == head


def test_k3_a_base_of_another_incarnation_of_the_branch_is_refused(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    base, incarnation = dev.head, dev.reference.incarnation
    dev.delete()
    dev.create()
    assert dev.head == base
    with pytest.raises(ReferenceChanged, match="created again"):
        dev.commit([append("diary", "one")], base=base, incarnation=incarnation)
    assert dev.head == base
    dev.commit([append("diary", "one")], base=base, incarnation=dev.reference.incarnation)
