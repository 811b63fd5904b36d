"""What a program does with journals: rows, expectations, transactions; and without the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.errors import (
    CommitConflict,
    CommitVetoed,
    EraseRefused,
    FormatUnavailable,
    InvalidRequest,
    NotManaged,
)
from penstock.formats import registry
from penstock.lake.audits.rows import open_rows_at
from penstock.lake.calls import SweepTables
from penstock.model.operations import Change, Put
from tests.journal_format.installation import JOURNAL, install, installed


@pytest.mark.usefixtures("with_journals")
def test_rows_of_a_journal_are_written_read_and_expected_as_those_of_any_table(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        diary = lake.table("sales.diary")
        diary.write([{"line": "opened"}], format="journal")
        assert diary.append([{"line": "sun"}, {"line": "rain"}]).version == 3
        assert diary.to_arrow(columns=["line"]).to_pydict() == {"line": ["opened", "sun", "rain"]}
        assert open_rows_at(diary).to_arrow().num_rows == 3
        lake.expect("no snow", "SELECT * FROM sales.diary WHERE line = 'snow'")
        with pytest.raises(CommitVetoed, match="no snow"):
            diary.append([{"line": "snow"}])
        with lake.transaction() as tx:
            tx.table("sales.diary").append([{"line": "wind"}])
            assert diary.version == 3
        assert diary.version == 4
        with pytest.raises(EraseRefused, match=r"sales\.diary"):
            lake.erase("sales.diary")
        with pytest.raises(InvalidRequest, match="calls of its format"):
            lake.commit([Change(diary.key, "journal", b"")])


@pytest.mark.usefixtures("with_journals")
def test_a_journal_is_not_made_up_by_a_raw_content(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("diary").write([{"line": "opened"}], format="journal")
        other = penstock.Unknown(type_name="JOURNAL", payload=b"made up")
        with pytest.raises(CommitConflict, match="diary"):
            lake.commit([Put(lake.table("diary").key, other)])


def test_without_the_package_a_table_is_refused_by_name_and_kept_whole(tmp_path: Path) -> None:
    site = install(tmp_path / "site")
    with installed(site), penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("diary").write([{"line": "opened"}], format="journal")
        lake.table("orders").write([{"id": 1}], format="delta")
        files = {one: one.read_bytes() for one in (tmp_path / "lake").rglob("*.txt")}
        assert files
    with (
        installed(),
        penstock.open(tmp_path / "lake", settings=penstock.Settings(nobody_writes=True)) as lake,
    ):
        lake.table("orders").append([{"id": 2}])
        lake.branch("work").create()
        lake.merge("work")
        for refused in (lambda: open_rows_at(lake.table("diary")), lambda: lake.table("diary").to_arrow()):
            with pytest.raises(NotManaged, match="diary"):
                refused()
        with pytest.raises(
            FormatUnavailable, match=r"(?s)'diary'.*no format 'journal'.*Install the Python package"
        ):
            lake.commit([Change(lake.table("diary").key, "journal", b"")])
        lake.sweep()
        lake.do(SweepTables(remove_data=True, limit=None))
        lake.sweep_files(remove_data=True)
        assert not lake.fsck().damages
    assert {one: one.read_bytes() for one in (tmp_path / "lake").rglob("*.txt")} == files
    with installed(site), penstock.open(tmp_path / "lake") as lake:
        assert lake.table("diary").to_arrow()["line"].to_pylist() == ["opened"]


def test_two_packages_that_declare_the_same_are_told_apart(tmp_path: Path) -> None:
    first = install(tmp_path / "first", package="a-journal")
    second = install(tmp_path / "second", package="b-journal", name="journal-too")
    with installed(first, second):
        found = registry.load_other_formats()
        assert [declared.package for declared in found.formats] == ["a-journal 1.0"]
        (problem,) = found.problems
        assert "b-journal 1.0" in problem
        assert "a-journal 1.0" in problem


def test_an_entry_point_that_leads_to_something_else_is_a_sentence(tmp_path: Path) -> None:
    with installed(install(tmp_path / "site", at=JOURNAL.replace("FORMAT", "Final"))):
        (problem,) = registry.load_other_formats().problems
        assert "penstock-journal 1.0" in problem
