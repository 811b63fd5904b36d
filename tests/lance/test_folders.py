"""The folder of a Lance table carries its name, and is its own whatever becomes of the name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import lance_namespace as ln
import pytest

import penstock
from penstock.errors import LocationRefused
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from tests.lance.tables import ids_at, written


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.lance().create_namespace(ln.CreateNamespaceRequest(id=["sales"]))
        yield lake


def folder_of(lake: Lake, *key: str) -> str:
    return Path(lake.lance().describe_table(ln.DescribeTableRequest(id=[*key])).location or "").name


def test_people_find_a_table_in_the_warehouse_by_its_name(lake: Lake) -> None:
    written(lake.lance(), "sales", "items", ids=[1], mode="create")
    lake.lance().declare_table(ln.DeclareTableRequest(id=["sales", "more"]))
    with lake.transaction() as tx:
        written(tx.lance, "sales", "in_tx", ids=[1], mode="create")
    for name in ("items", "more", "in_tx"):
        assert re.fullmatch(rf"[0-9a-f-]{{36}}_sales\.{name}", folder_of(lake, "sales", name))


def test_tables_of_one_name_and_of_names_that_read_the_same_lie_apart(lake: Lake) -> None:
    names = ("a b", "a/b", "a$b", "..", "日本")
    for name in names:
        written(lake.lance(), "sales", name, ids=[len(name)], mode="create")
    assert len({folder_of(lake, "sales", name) for name in names}) == len(names)
    lake.lance().drop_table(ln.DropTableRequest(id=["sales", "a b"]))
    before = {path.name for path in Path(lake.warehouse).iterdir()}
    written(lake.lance(), "sales", "a b", ids=[9], mode="create")
    assert folder_of(lake, "sales", "a b") not in before
    assert [ids_at(lake.lance(), "sales", name) for name in names] == [[9], [3], [3], [2], [2]]


def test_a_table_that_is_renamed_keeps_its_folder(lake: Lake) -> None:
    written(lake.lance(), "sales", "items", ids=[1], mode="create")
    folder = folder_of(lake, "sales", "items")
    lake.lance().rename_table(ln.RenameTableRequest(id=["sales", "items"], new_table_name="goods"))
    written(lake.lance(), "sales", "items", ids=[2], mode="create")
    assert folder_of(lake, "sales", "goods") == folder != folder_of(lake, "sales", "items")
    assert ids_at(lake.lance(), "sales", "goods") == [1]


def test_no_table_is_declared_at_or_inside_a_folder_that_a_lake_would_give(lake: Lake) -> None:
    written(lake.lance(), "sales", "items", ids=[1], mode="create")
    folder = folder_of(lake, "sales", "items")
    other = f"0188a5a0-0000-4000-8000-000000000001{folder[36:]}"
    for location in (folder, f"{folder}/inside", other, f"{other}/inside"):
        place = f"{lake.warehouse}/{location}"
        with pytest.raises(LocationRefused):
            lake.do(CommitLance(operations=(DeclareLance(key=Key("sales", "x"), location=place),)))
