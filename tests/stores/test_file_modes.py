"""Who can read what a lake keeps on this machine: its owner, whatever the umask, and who was let in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

import penstock
from penstock.model.nessie import IcebergTable
from penstock.stores.lake_directory import find_exposed_files


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def modes(place: Path) -> dict[str, int]:
    return {one.name: S_IMODE(one.stat().st_mode) for one in place.iterdir()}


def write(url: str) -> None:
    with penstock.open(url, create=True) as lake:
        lake.branch().put("t", IcebergTable(metadata_location="s3://b/t"))
        lake.create_token("etl", "write")


def test_the_files_of_sqlite_are_their_owners(tmp_path: Path, umask: int) -> None:
    place = tmp_path / "lake"
    with penstock.open(place, create=True) as lake:
        lake.branch().put("t", IcebergTable(metadata_location="s3://b/t"))
        found = modes(place)
        assert {name: mode for name, mode in found.items() if name.startswith("penstock.db")} == {
            "penstock.db": 0o600, "penstock.db-wal": 0o600, "penstock.db-shm": 0o600
        }  # fmt: skip
        assert not find_exposed_files(lake.kernel.store.url)
    assert S_IMODE(place.stat().st_mode) == 0o777 & ~umask  # other engines read tables below it


@pytest.mark.parametrize(("scheme", "private"), [("rocksdb", {"rocksdb"}), ("file", {"objects", "rows"})])
def test_the_folders_of_other_stores_are_their_owners(
    tmp_path: Path, umask: int, scheme: str, private: set[str]
) -> None:
    if scheme == "rocksdb":
        pytest.importorskip("rocksdict")
    place, url = tmp_path / "lake", f"{scheme}://{tmp_path}/lake"
    write(url)
    found = modes(place)
    assert private <= set(found)
    assert {found[name] for name in private} == {0o700}
    assert not find_exposed_files(url)
    if umask == 0:
        (place / min(private)).chmod(0o755)
        tmp_path.chmod(0o755)
        is_reachable = all(one.stat().st_mode & 0o001 for one in place.parents)
        assert find_exposed_files(url) == ([place / min(private)] if is_reachable else [])


def test_files_of_tables_are_made_as_the_umask_says(tmp_path: Path, umask: int) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("raw").files.write({"a.csv": b"1"})
        [file] = lake.table("raw").files.list()
    assert S_IMODE(Path(file.address).stat().st_mode) == 0o666 & ~umask
    assert S_IMODE((tmp_path / "lake" / "warehouse").stat().st_mode) == 0o777 & ~umask


def test_a_copy_is_its_owners_too(tmp_path: Path, umask: int) -> None:
    write(str(tmp_path / "lake"))
    (tmp_path / "lake" / "penstock.db").chmod(0o644)
    penstock.copy(tmp_path / "lake", tmp_path / "copy")
    assert modes(tmp_path / "copy")["penstock.db"] == 0o600


def test_who_is_let_in_stays_so(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    write(str(place))
    (place / "penstock.db").chmod(0o660)
    with penstock.open(place) as lake:
        lake.branch().put("u", IcebergTable(metadata_location="s3://b/u"))
        assert modes(place)["penstock.db"] == modes(place)["penstock.db-wal"] == 0o660
