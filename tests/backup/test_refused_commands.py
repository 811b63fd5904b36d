"""A command that is refused leaves nothing at its target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.errors import InvalidRequest, LakeMoved
from penstock.lake.backup import backup_lake, restore_backup
from penstock.lake.copy import copy_lake, move_lake


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", data=pa.table({"id": [1]}))
        lake.finish_background()
    return tmp_path / "lake"


def restore_as_owner(lake: Path, target: str) -> None:
    backup_lake(lake, lake.parent / "b.backup")
    restore_backup(lake.parent / "b.backup", target, source_is_gone=True)


def restore_without_files(lake: Path, target: str) -> None:
    backup_lake(lake, lake.parent / "b.backup")
    for file in (lake / "warehouse").rglob("*.parquet"):
        file.unlink()
    restore_backup(lake.parent / "b.backup", target)


def back_up_by_no_rule(lake: Path, target: str) -> None:
    backup_lake(lake, target, keep_last=0)


def move_again(lake: Path, target: str) -> None:
    move_lake(lake, lake.parent / "moved")
    move_lake(lake, target)


REFUSED: dict[str, tuple[Callable[[Path, str], None], type[Exception]]] = {
    "restore as owner": (restore_as_owner, InvalidRequest),
    "restore without files": (restore_without_files, InvalidRequest),
    "backup": (back_up_by_no_rule, InvalidRequest),
    "move": (move_again, LakeMoved),
}


@pytest.mark.parametrize("scheme", ["", "sqlite://", "file://", "rocksdb://"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_command_leaves_nothing(lake: Path, what: str, scheme: str) -> None:
    do, error = REFUSED[what]
    new = lake.parent / "above" / "new"
    with pytest.raises(error):
        do(lake, f"{scheme}{new}")
    assert not new.parent.exists()


def test_a_refused_backup_in_one_file_leaves_none(lake: Path) -> None:
    with pytest.raises(InvalidRequest):
        backup_lake(lake, lake.parent / "new" / "b.backup", keep_last=0)
    assert not (lake.parent / "new").exists()


@pytest.mark.parametrize("scheme", ["", "file://", "rocksdb://"])
def test_what_was_refused_is_done_there_afterwards(lake: Path, scheme: str) -> None:
    new = lake.parent / "new"
    words = ["restore-backup", str(lake.parent / "b.backup"), f"{scheme}{new}"]
    backup_lake(lake, lake.parent / "b.backup")
    assert CliRunner().invoke(root, [*words, "--source-is-gone"]).exit_code == 1
    assert not new.exists()
    assert CliRunner().invoke(root, words).exit_code == 0
    with penstock.open(f"{scheme}{new}") as restored:
        assert restored.table("t").to_arrow()["id"].to_pylist() == [1]
        assert restored.fsck().damages == ()


@pytest.mark.parametrize("copy", [copy_lake, move_lake])
def test_a_lake_that_is_copied_says_where_it_is(lake: Path, copy: Callable[..., object]) -> None:
    copied = copy(lake, lake.parent / "new")
    assert getattr(copied, "target", None) == str(lake.parent / "new")
    with penstock.open(lake.parent / "new") as new:
        assert new.fsck().damages == ()
