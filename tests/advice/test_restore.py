"""What messages about restores advise, done to the end: no row is lost."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import penstock
from penstock.errors import InvalidRequest, KeyNotFound, MergeConflict
from penstock.lake.lake import Lake
from tests.cli.conftest import Terminal
from tests.restore.tables import rows_of, write


def test_a_table_that_is_to_be_gone_is_dropped_as_advised_and_comes_back(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        then = write(lake, "delta.t", [1])
        now = write(lake, "delta.new", [2])
        with pytest.raises(KeyNotFound) as refused:
            lake.restore("delta.new", to=then)
        (command,) = re.findall(r"penstock (delete delta\.new)", str(refused.value))
        Terminal(tmp_path / "lake")(*command.split())
        assert [str(one.key) for one in lake.branch().tables()] == ["delta.t"]
        with pytest.raises(KeyNotFound, match="to restore a dropped table, restore it to a commit"):
            lake.table("delta.new").restore(version=0)
        lake.restore("delta.new", to=now)
        assert rows_of(lake, "delta.new") == [2]


@pytest.mark.parametrize("key", ["delta.t", "lance.t"])
def test_files_that_are_gone_are_brought_back_and_the_state_with_them(
    lake: Lake, key: str, tmp_path: Path
) -> None:
    old = write(lake, key, [1])
    newer = write(lake, key, [2], mode="overwrite")
    write(lake, key, [3], mode="overwrite")
    lake.finish_background()
    place = Path(lake.table(key).location)
    files = [one for one in place.rglob("*") if one.suffix in (".parquet", ".lance") and one.is_file()]
    lost = min(files, key=lambda one: one.stat().st_mtime_ns)
    kept = tmp_path / "kept"
    shutil.copy2(lost, kept)
    lost.unlink()
    with pytest.raises(MergeConflict, match="restore a newer state, or put the files back"):
        lake.restore(key, to=old)
    lake.restore(key, to=newer)
    assert rows_of(lake, key) == [2]
    shutil.copy2(kept, lost)
    lake.restore(key, to=old)
    assert rows_of(lake, key) == [1]


def test_a_manifest_that_is_gone_is_brought_back_and_the_version_with_it(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        for number in (1, 2, 3):
            write(lake, "lance.t", [number])
        lake.finish_background()
        versions = Path(lake.table("lance.t").location) / "_versions"
        number = 2**64 - 1 - 1  # Lance names them so that the newest comes first
        manifest = versions / f"{number}.manifest"
        data = manifest.read_bytes()
        manifest.unlink()
    with penstock.open(tmp_path / "lake") as lake:
        with pytest.raises(
            MergeConflict,
            match=r"'lance.t' cannot be restored to version 1: the manifest of .* is missing or was replaced",
        ):
            lake.table("lance.t").restore(version=1)
        lake.table("lance.t").restore(version=2)
        assert rows_of(lake, "lance.t") == [1, 2]
        manifest.write_bytes(data)
        lake.table("lance.t").restore(version=1)
        assert rows_of(lake, "lance.t") == [1]


def test_what_has_no_versions_is_restored_to_a_commit(lake: Lake) -> None:
    then = write(lake, "files.t", [1])
    write(lake, "files.t", [2])
    lake.branch().put("plain", penstock.IcebergTable(metadata_location=f"{lake.warehouse}/1"))
    first = lake.branch().head
    lake.branch().put("plain", penstock.IcebergTable(metadata_location=f"{lake.warehouse}/2"))
    with pytest.raises(
        MergeConflict, match="version numbers of its own; restore it to a commit or to a time"
    ):
        lake.table("files.t").restore(version=1)
    with pytest.raises(InvalidRequest, match="restore it to a commit or to a time"):
        lake.table("plain").restore(version=1)
    with pytest.raises(InvalidRequest, match="give one key, or restore to a revision"):
        lake.restore(["plain", "files.t"], version=1)
    lake.restore("files.t", to=then)
    lake.restore("plain", to=first)
    assert rows_of(lake, "files.t") == [1]
    assert lake.at(first).get("plain") == lake.branch().snapshot().get("plain")
