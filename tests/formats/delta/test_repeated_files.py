"""A commit that adds a file which the table has already, with rows deleted from it: they would come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Lake
from penstock.errors import InvalidContent
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.ratification import check_proposal
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.lint_files import Lookup
from tests.formats.delta.sides import KEY, Side, create, foreign_ids, rows

VECTORS = {"delta.enableDeletionVectors": "true"}
ALL = [1, 2, 3, 4, 5, 6]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        yield lake


def file_with(side: Side, number: int) -> Add:
    """The file that has a row, as it was added."""
    (add,) = side._holding(side.now(), [number])
    return msgspec.structs.replace(add, data_change=True)


@pytest.mark.parametrize("with_version", [False, True])
def test_a_whole_file_is_not_added_where_it_is_with_a_deletion_vector(lake: Lake, with_version: bool) -> None:
    main = create(lake, properties=VECTORS)
    whole = file_with(main, 1)
    main.mask(1)
    versions = {KEY: main.now().version + 1} if with_version else None
    with pytest.raises(InvalidContent, match=r"with the deletion vector .*; remove that in the same"):
        lake.delta.commit({KEY: [whole]}, versions=versions)
    assert main.ids() == foreign_ids(lake) == [2, 3, 4, 5, 6]


def test_a_file_that_gets_its_vector_before_its_turn_is_not_added_either(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = create(lake, properties=VECTORS)
    whole = file_with(main, 1)

    def overtaken(*given: Any) -> Any:
        checked = check_proposal(*given)
        monkeypatch.setattr("penstock.formats.delta.format.check_proposal", check_proposal)
        main.mask(1)
        return checked

    monkeypatch.setattr("penstock.formats.delta.format.check_proposal", overtaken)
    with pytest.raises(InvalidContent, match="is in the table with the deletion vector"):
        lake.table(KEY).append_actions([whole])
    assert main.ids() == foreign_ids(lake) == [2, 3, 4, 5, 6]


def test_a_file_is_added_that_is_not_in_the_table_or_is_there_as_it_is(lake: Lake) -> None:
    main = create(lake, properties=VECTORS)
    whole = file_with(main, 1)
    lake.table(KEY).append_actions([whole])
    assert main.ids() == foreign_ids(lake) == ALL
    main.delete(1, 2)
    lake.table(KEY).append_actions([whole])
    assert main.ids() == foreign_ids(lake) == ALL


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked about the files of tables."""
    asked: list[Any] = []
    live = CommitReader.make_active_file_lookup

    def counted(self: CommitReader, *given: Any) -> Lookup:
        asked.append(given)
        return live(self, *given)

    monkeypatch.setattr(CommitReader, "make_active_file_lookup", counted)
    return asked


def test_penstocks_own_writers_have_nothing_looked_up_for_files_that_are_new(
    lake: Lake, lookups: list[Any]
) -> None:
    main = create(lake, properties=VECTORS)
    main.mask(1)
    lookups.clear()
    main.append(7)
    with lake.transaction() as transaction:
        transaction.table(KEY).append(rows(8))
    main.overwrite(9, day="tue")
    assert lookups == []
    assert main.ids() == foreign_ids(lake) == [2, 3, 4, 7, 8, 9]


def test_nothing_is_looked_up_for_files_that_others_add_to_a_table_without_vectors(
    lake: Lake, lookups: list[Any]
) -> None:
    main = create(lake)
    lookups.clear()
    lake.table(KEY).append_actions([file_with(main, 1)])
    assert lookups == []
    assert main.ids() == ALL
