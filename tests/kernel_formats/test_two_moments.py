"""A format is asked before the queue, where it may read table storage, and at the turn, where it may not.

That holds for commits and for everything that brings commits. What was read is noted for the turn; where the
table has changed by then, the request goes round once more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock
from penstock import IcebergTable, Key, Lake, Put, Settings
from penstock.errors import MergeConflict, RetriesExhausted
from penstock.testing.journal import JournalFormat, append, edit, lines_of, replace

Bring = Callable[[Lake], object]
BRING: dict[str, Bring] = {
    "merge": lambda lake: lake.merge("dev", "main"),
    "transplant": lambda lake: lake.transplant("dev~1..dev", "main"),
    "revert": lambda lake: lake.revert("main~1", "main"),
    "rebase": lambda lake: lake.rebase("dev", "main"),
}
bring = pytest.mark.parametrize("way", BRING)


@pytest.fixture
def forked(lake: Lake) -> Lake:
    """A journal that two branches have appended to; the last commit of main is about something else."""
    lake.commit([replace("diary", "one")])
    lake.branch("dev").create().commit([append("diary", "from dev")])
    lake.commit([append("diary", "from main")])
    lake.commit([Put(Key("plain"), IcebergTable(metadata_location="1"))])
    return lake


def test_a_commit_has_the_same_notes_when_it_is_prepared_and_at_its_turn(
    lake: Lake, journals: JournalFormat
) -> None:
    lake.commit([append("diary", "one")])
    journals.reads_storage = True
    journals.asked.clear()
    lake.commit([append("diary", "two"), append("log", "three")])
    assert [(what, table.may_read) for what, table in journals.asked] == [
        ("prepare", True),
        ("prepare", True),
        ("apply", False),
        ("apply", False),
    ]
    assert len({id(table.notes) for _, table in journals.asked}) == 1
    assert journals.calls["read"] == 2


@bring
def test_a_format_is_told_whether_commits_are_repeated_one_by_one(
    forked: Lake, journals: JournalFormat, way: str
) -> None:
    journals.asked.clear()
    BRING[way](forked)
    told = {table.is_repeated for what, table in journals.asked if what in {"merge", "restore"}}
    assert told == {way in {"transplant", "rebase"}}


@bring
def test_what_brings_commits_reads_storage_before_its_turn(
    forked: Lake, journals: JournalFormat, way: str
) -> None:
    journals.reads_storage = True
    journals.asked.clear()
    BRING[way](forked)
    seen = [table.may_read for _, table in journals.asked]
    assert seen[0] is True
    assert seen[-1] is (way == "rebase"), "a rebase that nobody disturbs needs no second look"
    assert len({id(table.notes) for _, table in journals.asked}) == 1
    assert journals.calls["read"] == len({table.content for _, table in journals.asked})


@pytest.mark.parametrize("way", ["merge", "transplant", "rebase"])
def test_a_table_that_changed_meanwhile_is_prepared_once_more(
    forked: Lake, journals: JournalFormat, way: str
) -> None:
    """What was noted is of a version that is not the table's any more when the turn comes."""
    target = "dev" if way == "rebase" else "main"
    disturbed: list[bool] = []

    def disturb() -> None:
        if not disturbed:
            disturbed.append(True)
            forked.branch(target).commit([append("diary", "meanwhile")])
            journals.asked.clear()

    journals.reads_storage = True
    journals.after_merge = disturb
    BRING[way](forked)
    seen = [table.may_read for _, table in journals.asked]
    assert True in seen[seen.index(False) :], "after its turn came in vain, it was prepared again"
    assert len({id(table.notes) for _, table in journals.asked}) == 1
    own = ["from dev", "meanwhile"] if way == "rebase" else ["meanwhile", "from dev"]
    assert lines_of(forked.kernel, "diary", target) == ["one", "from main", *own]


def test_a_request_that_is_never_prepared_enough_gives_up(journals: JournalFormat) -> None:
    def forget() -> None:
        for _, table in journals.asked:
            table.notes.clear()

    journals.reads_storage = True
    journals.after_merge = forget
    settings = Settings(tries_max=3, backoff_min_ms=0)
    with penstock.open("memory:", formats=[journals], settings=settings) as lake:
        head = lake.commit([append("diary", "one")]).id
        lake.branch("dev").create().commit([append("diary", "two")])
        with pytest.raises(RetriesExhausted, match="too many commits were made to 'main'"):
            lake.merge("dev", "main")
        with pytest.raises(RetriesExhausted, match="too many commits were made to 'main'"):
            lake.transplant("dev", "main")
        assert lake.show().id == head


def test_conflicts_while_it_is_prepared_do_not_count(forked: Lake, journals: JournalFormat) -> None:
    """What was in the way is gone by the turn: the merge lands."""
    forked.branch("dev").commit([edit("diary", 2, 0, "one", "ONE")])
    forked.commit([edit("diary", 2, 0, "one", "another")])
    with pytest.raises(MergeConflict):
        forked.merge("dev", "main")
    done: list[bool] = []

    def repair() -> None:
        if not done:
            done.append(True)
            forked.revert("main", "main")

    journals.after_merge = repair
    forked.merge("dev", "main")
    assert lines_of(forked.kernel, "diary") == ["ONE", "from main", "from dev"]


@bring
def test_a_dry_run_may_read_storage_and_asks_once(forked: Lake, journals: JournalFormat, way: str) -> None:
    dry: dict[str, Bring] = {
        "merge": lambda lake: lake.merge("dev", "main", dry_run=True),
        "transplant": lambda lake: lake.transplant("dev~1..dev", "main", dry_run=True),
        "revert": lambda lake: lake.revert("main~1", "main", dry_run=True),
        "rebase": lambda lake: lake.rebase("dev", "main", dry_run=True),
    }
    journals.reads_storage = True
    journals.asked.clear()
    dry[way](forked)
    assert {table.may_read for _, table in journals.asked} == {True}
    assert journals.calls["landed"] == 4 - 1, "of the commits before, and of nothing that was only tried"


def test_a_merge_that_touches_no_managed_table_asks_no_format(lake: Lake, journals: JournalFormat) -> None:
    lake.commit([append("diary", "one")])
    lake.branch("dev").create().put("plain", IcebergTable(metadata_location="1"))
    lake.commit([append("diary", "two")])
    journals.asked.clear()
    lake.merge("dev", "main")
    lake.revert("main", "main")
    assert list(journals.asked) == []


def test_commits_that_are_brought_together_read_what_those_before_them_made(lake: Lake) -> None:
    """The second one edits a line that the first one wrote, when neither is stored yet."""
    lake.commit([replace("diary", *(f"line {number}" for number in range(60)))])
    dev = lake.branch("dev").create()
    dev.commit([append("diary", "two")])
    dev.commit([edit("diary", 9, 60, "two", "TWO")])
    lake.commit([edit("diary", 9, 0, "line 0", "main")])
    lake.transplant("dev~2..dev", "main")
    assert lines_of(lake.kernel, "diary")[-2:] == ["line 59", "TWO"]
    assert lines_of(lake.kernel, "diary")[0] == "main"
