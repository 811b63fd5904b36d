"""A table that plain Lance has made is registered with all its versions, branches and tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Key, Lake
from penstock.errors import InvalidTable, TableNotFound, UnsupportedFeature
from penstock.formats.lance.lake.calls import CommitLance, RegisterLance
from penstock.formats.lance.registration import read_registered_version
from penstock.formats.lance.state import (
    LanceTableVersion,
    OwnBranch,
    OwnTag,
    encode_branch_key,
    encode_tag_key,
    encode_version_key,
)
from penstock.storage.places import Place
from tests.formats.lance.tables import (
    content,
    embedded,
    keys_of,
    keys_seen,
    newest,
    rows,
    state,
    versions,
    write,
)

lance = pytest.importorskip("lance")
ITEMS = Key("items")


@pytest.fixture
def folder(lake: Lake) -> Path:
    return Path(embedded(lake).warehouse or "") / "mine.lance"


def place(lake: Lake, folder: Path) -> Place:
    return embedded(lake).places.open_place(str(folder))


def test_all_that_lance_would_list_is_found(lake: Lake, folder: Path) -> None:
    lance.write_dataset(rows(1, 2), str(folder))
    table = lance.write_dataset(rows(3), str(folder), mode="append")
    table.tags.create("v1.0", 1)
    branch = table.create_branch("feat/x", 2)
    lance.write_dataset(rows(4), branch, mode="append")
    branch.tags.create("there", ("feat/x", 3))
    (folder / "_versions" / "18446744073709551610.manifest-1234").write_bytes(b"staged by somebody")
    found = read_registered_version(place(lake, folder), ITEMS).entries
    assert {key for key, one in found.items() if isinstance(one, LanceTableVersion)} == {
        encode_version_key("", 1),
        encode_version_key("", 2),
        encode_version_key("feat/x", 2),
        encode_version_key("feat/x", 3),
    }
    own, tag, there = (
        found[encode_branch_key("feat/x")],
        found[encode_tag_key("v1.0")],
        found[encode_tag_key("there")],
    )
    assert isinstance(own, OwnBranch)
    assert (own.parent, own.version) == ("", 2)
    assert isinstance(tag, OwnTag)
    assert (tag.branch, tag.version) == ("", 1)
    assert isinstance(there, OwnTag)
    assert (there.branch, there.version) == ("feat/x", 3)


@pytest.mark.parametrize("is_v2", [True, False], ids=["second way of naming", "first way of naming"])
def test_a_registered_table_is_read_and_goes_on(lake: Lake, folder: Path, is_v2: bool) -> None:
    lance.write_dataset(rows(1), str(folder), enable_v2_manifest_paths=is_v2)
    lance.write_dataset(rows(2), str(folder), mode="append")
    lake.do(CommitLance(operations=(RegisterLance(key=ITEMS, location=str(folder)),)))
    assert keys_of(lake) == [1, 2]
    assert newest(lake)[1].is_v1 is not is_v2
    write(lake, "main", 3)
    assert keys_seen(lake) == keys_of(lake) == [1, 2, 3]
    lake.branch("dev").create()
    write(lake, "dev", 4)
    write(lake, "main", 5)
    lake.merge("dev", "main")
    assert keys_seen(lake) == [1, 2, 3, 4, 5]
    assert state(lake).is_registered
    assert [number for number, _ in versions(lake).list_versions()] == [5, 4, 3, 2, 1]


def test_a_folder_that_is_only_declared_has_no_version(lake: Lake, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / ".lance-reserved").write_bytes(b"")
    lake.do(CommitLance(operations=(RegisterLance(key=ITEMS, location=str(folder)),)))
    assert list(versions(lake).list_versions()) == []
    write(lake, "main", 1)
    assert (keys_of(lake), content(lake).location) == ([1], str(folder))


def test_a_folder_without_a_table_is_told(lake: Lake, folder: Path) -> None:
    folder.mkdir(parents=True)
    with pytest.raises(TableNotFound, match="no Lance table at"):
        read_registered_version(place(lake, folder), ITEMS)


@pytest.mark.parametrize(
    "data", [b"", b"no manifest at all, but long enough to be one"], ids=["empty", "something else"]
)
def test_a_newest_version_that_is_no_manifest_is_told(lake: Lake, folder: Path, data: bytes) -> None:
    lance.write_dataset(rows(1), str(folder))
    (folder / "_versions" / f"{2**64 - 1 - 2:020d}.manifest").write_bytes(data)
    with pytest.raises(InvalidTable, match="is not a manifest"):
        read_registered_version(place(lake, folder), ITEMS)


def test_a_manifest_under_the_name_of_another_version_is_told(lake: Lake, folder: Path) -> None:
    lance.write_dataset(rows(1), str(folder))
    first = folder / "_versions" / f"{2**64 - 1 - 1:020d}.manifest"
    (folder / "_versions" / f"{2**64 - 1 - 7:020d}.manifest").write_bytes(first.read_bytes())
    with pytest.raises(InvalidTable, match="by its content, version 1"):
        read_registered_version(place(lake, folder), ITEMS)


def test_files_of_the_oldest_format_are_told_before_somebody_branches(lake: Lake, folder: Path) -> None:
    lance.write_dataset(rows(1), str(folder), data_storage_version="legacy")
    with pytest.raises(UnsupportedFeature, match="oldest file format"):
        read_registered_version(place(lake, folder), ITEMS)


def test_a_tag_file_that_cannot_be_read_is_told(lake: Lake, folder: Path) -> None:
    lance.write_dataset(rows(1), str(folder)).tags.create("v", 1)
    (folder / "_refs" / "tags" / "v.json").write_text("{")
    with pytest.raises(InvalidTable, match="cannot be read"):
        read_registered_version(place(lake, folder), ITEMS)
