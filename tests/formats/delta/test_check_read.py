"""What a transaction has read of a Delta table: which changes of others matter for it, and which do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.delta.branch_log.branch_log import CommitTerms
from penstock.formats.delta.branch_log.net_change import NetStep
from penstock.formats.delta.branch_log.read_check import _find_changed_files
from penstock.formats.delta.format import DeltaFormat
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.protocol.actions import Action, Remove
from penstock.kernel.format import FormatRefused, PrepareAgain, Table
from penstock.kernel.transactions import TransactionRecord, Transactions
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Delete, Put
from penstock.model.reads import Read
from penstock.model.transactions import Isolation
from tests.formats.delta.managed import add, remove
from tests.formats.delta.sides import KEY, Side, create

MONDAY, TUESDAY = "day = 'mon'", "day = 'tue'"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake") as lake:
        yield lake


@pytest.fixture
def main(lake: Lake) -> Side:
    """Ids 1 to 4 in two files of Monday, 5 and 6 in one of Tuesday."""
    return create(lake, properties={"delta.enableDeletionVectors": "true"})


def begin(lake: Lake, *parts: str | None, target: str = "main") -> TransactionRecord:
    """A serializable transaction that has read parts of the table, and written elsewhere."""
    transactions = Transactions(lake.kernel)
    known = transactions.begin_transaction(uuid4().hex, target, isolation=Isolation.SERIALIZABLE)
    transactions.note_reads(known.transaction.id, [Read(key=Key.parse(KEY), part=part) for part in parts])
    elsewhere = Put(Key("elsewhere"), IcebergTable(metadata_location=f"s3://b/{known.transaction.id}"))
    lake.kernel.commit(known.transaction.branch, [elsewhere])
    return known


def why(lake: Lake, known: TransactionRecord) -> str:
    """Why it does not land; nothing if it does."""
    try:
        Transactions(lake.kernel).commit_transaction(known.transaction.id, CommitMeta(message="landed"))
    except MergeConflict as refused:
        (conflict,) = refused.conflicts
        return str(conflict)
    return ""


CHANGES: dict[str, Callable[[Side], object]] = {
    "appended": lambda main: main.append(7),
    "deleted": lambda main: main.delete(1),
    "masked": lambda main: main.mask(1),
    "overwrote": lambda main: main.overwrite(8),
    "replaced a day": lambda main: main.overwrite(8, day="mon"),
    "added a column": lambda main: main.add_column("more"),
    "set a property": lambda main: main.set_property("owner", "ann"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("part", [None, MONDAY], ids=["whole", "monday"])
def test_a_change_of_what_was_read_refuses_it(lake: Lake, main: Side, part: str | None, change: str) -> None:
    known = begin(lake, part)
    CHANGES[change](main)
    told = why(lake, known)
    assert told.startswith(f"'{KEY}' was read by this transaction, but was changed by another writer since")
    assert told.endswith("(expected version 3, found version 4)")


def test_the_refusal_names_version_files_and_partitions(lake: Lake, main: Side) -> None:
    known = begin(lake, MONDAY)
    main.append(7, day="tue")
    main.append(8)
    (file,) = [one.path for one in main.table.snapshot().files(where="id = 8")]
    told = why(lake, known)
    assert f"where {MONDAY}: version 5 appended 1 file to day=mon ({file})" in told


@pytest.mark.parametrize(
    "change",
    [
        lambda main: main.compact("mon"),
        lambda main: main.batch("stream", 1),
    ],
    ids=["compaction", "a batch without rows"],
)
def test_what_leaves_the_rows_as_they_are_does_not_matter(
    lake: Lake, main: Side, change: Callable[[Side], object]
) -> None:
    known = begin(lake, None)
    change(main)
    assert why(lake, known) == ""


def test_rows_that_came_before_files_were_compacted_matter(lake: Lake, main: Side) -> None:
    known = begin(lake, None)
    main.append(7)
    main.compact("mon")
    assert "version 4 appended 1 file" in why(lake, known)


def test_rows_that_went_after_files_were_compacted_matter(lake: Lake, main: Side) -> None:
    known = begin(lake, MONDAY)
    main.compact("mon")
    main.delete(1)
    assert "version 5 deleted rows in 1 file of day=mon" in why(lake, known)


def test_rows_that_came_and_went_again_do_not_matter(lake: Lake, main: Side) -> None:
    known = begin(lake, None)
    main.append(7)
    main.delete(7)
    assert why(lake, known) == ""


def test_other_partitions_do_not_matter(lake: Lake, main: Side) -> None:
    known = begin(lake, MONDAY)
    main.append(7, day="tue")
    main.delete(5)
    main.overwrite(9, day="tue")
    assert why(lake, known) == ""


def test_other_files_by_their_statistics_do_not_matter(lake: Lake, main: Side) -> None:
    """Removals say nothing of statistics: those are looked up where the file was read."""
    known = begin(lake, "id > 4")
    main.append(0)
    main.delete(1)
    assert why(lake, known) == ""


@pytest.mark.parametrize(("part", "matters"), [(MONDAY, False), (TUESDAY, True)])
def test_a_removal_that_does_not_say_of_which_partition_is_looked_up(
    lake: Lake, main: Side, part: str, matters: bool
) -> None:
    known = begin(lake, part)
    now = main.table.snapshot()
    (file,) = now.files(where=TUESDAY)
    main._commit(now, "DELETE", [Remove(path=file.path, data_change=True)], WriterReads(files=(file.path,)))
    assert ("version 4 removed 1 file" in why(lake, known)) is matters


def test_files_that_their_statistics_do_not_leave_out_matter(lake: Lake, main: Side) -> None:
    known = begin(lake, "id > 4")
    main.delete(6)
    assert "version 4 deleted rows in 1 file of day=tue" in why(lake, known)


def test_each_part_that_was_read_counts(lake: Lake, main: Side) -> None:
    known = begin(lake, "id > 100", TUESDAY)
    main.append(7)
    assert why(lake, known) == ""
    known = begin(lake, "id > 100", TUESDAY)
    main.append(8, day="tue")
    assert "version 5" in why(lake, known)


def test_a_condition_that_cannot_be_understood_is_about_all_rows(lake: Lake, main: Side) -> None:
    known = begin(lake, "soundex(day) = 'M500'")
    main.append(7, day="tue")
    assert "was read by this transaction" in why(lake, known)


def test_what_was_read_and_overwritten_loses_nobodys_append(lake: Lake, main: Side) -> None:
    transactions = Transactions(lake.kernel)
    known = transactions.begin_transaction(uuid4().hex, "main")
    transactions.note_reads(known.transaction.id, [Read(key=Key.parse(KEY))])
    Side(lake, known.transaction.branch).overwrite(100)
    main.append(7)
    with pytest.raises(MergeConflict, match="was read by this transaction"):
        transactions.commit_transaction(known.transaction.id, CommitMeta())
    assert 7 in main.ids()


def test_a_table_that_was_dropped_and_made_anew_is_another_one(lake: Lake, main: Side) -> None:
    known = begin(lake, MONDAY)
    lake.kernel.commit("main", [Delete(Key.parse(KEY))])
    lake.create_table(KEY, data=pa.table({"id": [1]}))
    assert "was read by this transaction, but was changed by another writer since" in why(lake, known)


def test_a_branch_that_went_over_to_other_versions_is_not_what_was_read(lake: Lake, main: Side) -> None:
    """By a merge a branch can get main's versions with its own ones on top, under other numbers."""
    Side(lake, "dev").append(7)
    known = begin(lake, TUESDAY, target="dev")
    main.append(8)
    main.merge("dev")
    assert "the branch was moved, so its versions since then are different ones" in why(lake, known)


def test_a_log_that_does_not_tell_any_more_what_came_refuses_it(lake: Lake, main: Side) -> None:
    known = begin(lake, TUESDAY)
    main.append(7)
    main.table.backfill_to_version()
    main.append(8)  # from here on, the log alone has the version before
    log = Path(main.table.get_commits().location) / "_delta_log"
    (log / f"{4:020}.json").unlink()
    with penstock.open(lake.url) as other:  # which has none of it in memory
        assert "its log no longer contains what was changed" in why(other, known)


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        (lambda other: other.append(7), ["looks", "at its turn: refused"]),
        (lambda other: other.delete(1), ["looks", "at its turn: again", "looks", "at its turn"]),
        (
            lambda other: other.delete(6),
            ["looks", "at its turn: again", "looks: refused", "at its turn: refused"],
        ),
    ],
    ids=["told by the commit", "told by storage", "told by storage, and refused"],
)
def test_what_lands_between_the_look_and_the_turn_is_looked_at(
    lake: Lake,
    main: Side,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Side], object],
    asked: list[str],
) -> None:
    """Another process is faster than a merge that was prepared."""
    known, check_read, told = begin(lake, "id > 4"), DeltaFormat.check_read, list[str]()
    main.append(0)  # so that there is something to ask about
    with penstock.open(lake.url) as other:

        def checked(self: DeltaFormat, table: Table, *args: Any) -> None:
            when = "looks" if table.may_read else "at its turn"
            try:
                check_read(self, table, *args)
            except (PrepareAgain, FormatRefused) as problem:
                told.append(f"{when}: {'again' if isinstance(problem, PrepareAgain) else 'refused'}")
                raise
            told.append(when)
            if len(told) == 1:
                change(Side(other, "main"))

        monkeypatch.setattr(DeltaFormat, "check_read", checked)
        assert (why(lake, known) == "") is not asked[-1].endswith("refused")
    assert told == asked


def test_a_file_that_is_told_anew_is_not_one_that_came() -> None:
    def step(version: int, *actions: Action) -> NetStep:
        return NetStep(version, actions, CommitTerms())

    calm = [msgspec.structs.replace(one, data_change=False) for one in (remove("a"), add("b"))]
    steps = [step(1, add("a")), step(2, *calm), step(3, add("c")), step(4, remove("c")), step(5, remove("b"))]
    found = {each.version: [one.path for one in files] for each, files in _find_changed_files(steps)}
    assert found == {1: ["a"], 2: [], 3: [], 4: [], 5: ["b"]}
