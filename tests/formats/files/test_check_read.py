"""What a transaction has read of a table of files: which changes of others matter for it, which do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import FilesLayout, FilesState, decode_state
from penstock.formats.files.read_check import TOLD_MAX, check_seen
from penstock.kernel.format import FormatRefused
from penstock.kernel.objects import read_content
from penstock.kernel.transactions import Transactions
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.model.reads import Read
from penstock.model.transactions import Isolation

KEY = "raw"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake") as lake:
        for path in ("a/1", "a/2", "ab/1", "b"):
            lake.table(KEY).files.put(path, b"old")
        yield lake


def begin(lake: Lake, *parts: str | None) -> str:
    """A serializable transaction that has read parts of the table, and written elsewhere."""
    transactions, id = Transactions(lake.kernel), uuid4().hex  # noqa: A001
    known = transactions.begin_transaction(id, "main", isolation=Isolation.SERIALIZABLE)
    transactions.note_reads(id, [Read(key=Key(KEY), part=part) for part in parts])
    lake.table("elsewhere", known.transaction.branch).files.put("x", b"1")
    return id


def why(lake: Lake, id: str) -> list[Conflict]:  # noqa: A002
    """Why it does not land; nothing if it does."""
    try:
        Transactions(lake.kernel).commit_transaction(id, CommitMeta(message="landed"))
    except MergeConflict as refused:
        return list(refused.conflicts)
    return []


@pytest.mark.parametrize("part", [None, "a", "a/", "a/1"])
@pytest.mark.parametrize("change", ["other bytes", "gone"])
def test_a_file_that_was_read_must_be_as_it_was(lake: Lake, part: str | None, change: str) -> None:
    known = begin(lake, part)
    if change == "gone":
        lake.table(KEY).files.delete("a/1")
    else:
        lake.table(KEY).files.put("a/1", b"new")
    (conflict,) = why(lake, known)
    assert str(conflict).startswith(
        "'raw' was read by this transaction, but was changed by another writer since at 'a/1'"
    )
    assert ", 3 bytes, found " in str(conflict)


@pytest.mark.parametrize("part", ["a", "a/", "a/1", "none"])
def test_other_files_do_not_matter(lake: Lake, part: str) -> None:
    known = begin(lake, part)
    lake.table(KEY).files.put("ab/1", b"new")
    lake.table(KEY).files.delete("b")
    lake.table(KEY).files.put("none1", b"new")
    assert why(lake, known) == []


@pytest.mark.parametrize("part", [None, "a/", "a/3"])
def test_a_file_that_was_not_there_must_not_be(lake: Lake, part: str | None) -> None:
    known = begin(lake, part)
    lake.table(KEY).files.put("a/3", b"new")
    (conflict,) = why(lake, known)
    assert (conflict.path, conflict.expected) == ("a/3", "no file")


def test_the_same_bytes_are_the_same_file_wherever_they_lie(lake: Lake) -> None:
    known = begin(lake, None)
    lake.table(KEY).files.put("a/1", b"old")
    assert why(lake, known) == []


def test_that_a_job_is_done_matters_to_who_looked_for_it(lake: Lake) -> None:
    unasked, asked = begin(lake, None), begin(lake, "_SUCCESS")
    lake.table(KEY).files.put("_SUCCESS", b"")
    assert why(lake, unasked) == []
    assert [conflict.path for conflict in why(lake, asked)] == ["_SUCCESS"]


def test_a_few_paths_are_told_and_no_more(lake: Lake) -> None:
    known = begin(lake, "c/", None)
    for number in range(TOLD_MAX + 5):
        lake.table(KEY).files.put(f"c/{number:02}", b"new")
    assert [conflict.path for conflict in why(lake, known)] == [f"c/{one:02}" for one in range(TOLD_MAX)]


def test_a_table_that_is_gone_is_not_what_was_read(lake: Lake) -> None:
    known = begin(lake, "a/1")
    lake.kernel.commit("main", [Delete(Key(KEY))])
    (conflict,) = why(lake, known)
    assert "was deleted since" in str(conflict)


def test_a_table_that_was_made_anew_is_another_one_whatever_it_holds(lake: Lake) -> None:
    known = begin(lake, "a/1")
    lake.kernel.commit("main", [Delete(Key(KEY))])
    lake.table(KEY).files.put("a/1", b"old")
    (conflict,) = why(lake, known)
    assert "was read by this transaction, but was changed by another writer since" in str(conflict)


@pytest.mark.parametrize(
    ("parts", "matters"), [(None, True), (("a/",), True), (("a",), True), (("a/1",), False), (("no",), False)]
)
def test_how_files_are_read_matters_for_more_than_single_files(
    lake: Lake, parts: tuple[str, ...] | None, matters: bool
) -> None:
    state = _state(lake)
    other = FilesState(state.root, state.files, state.size, FilesLayout(format="csv"))
    check_seen(lake.kernel.objects, state, state, parts)
    if not matters:
        check_seen(lake.kernel.objects, state, other, parts)
        return
    with pytest.raises(FormatRefused, match="the layout of its files was changed since"):
        check_seen(lake.kernel.objects, state, other, parts)


def _state(lake: Lake) -> FilesState:
    content = read_content(
        lake.kernel.objects, lake.kernel.read_state(lake.kernel.branch("main").head).get(KEY.encode())
    )
    assert isinstance(content, FilesTable)
    return decode_state(content)
