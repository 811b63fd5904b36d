"""An erase that cannot be: its preview refuses it in the same words, and it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.errors import EraseRefused, LakeMoved, ManagedElsewhere, OutOfSync
from penstock.kernel.table_horizons import read_horizon_rows
from penstock.lake.copy import copy_lake, move_lake
from penstock.lake.lake import Lake
from tests.erase.tables import MARKER, alone, where_is
from tests.lake.restored import FORMATS, KEYS, ids, restore_lake, write

in_each_format = pytest.mark.parametrize("kind", FORMATS)


def refuse(place: Path, *words: str) -> dict[str, object]:
    """What an erase says that is refused: the same in a preview, and it changes nothing of the lake."""
    with penstock.open(place) as lake:
        before = lake.branch().head
    files = sorted(path for path in place.parent.rglob("*.parquet") if path.is_file())
    told = []
    for preview in (["--dry-run"], []):
        found = CliRunner().invoke(
            root, ["--lake", str(place), "--json", "erase", *words, "--nobody-writes", *preview]
        )
        assert found.exit_code != 0, found.output
        told.append(msgspec.json.decode(found.stderr)["error"])
    with penstock.open(place) as lake:
        assert [*read_horizon_rows(lake.kernel.store)] == []
        assert lake.branch().head == before
    assert sorted(path for path in place.parent.rglob("*.parquet") if path.is_file()) == files
    assert told[0] == told[1]
    error: dict[str, object] = told[0]
    return error


@in_each_format
def test_a_table_that_is_out_of_sync(tmp_path: Path, kind: str) -> None:
    def before(lake: Lake) -> None:
        write(lake, kind, 1)
        lake.table(KEYS[kind]).delete("id = 1")
        write(lake, kind, 2)

    restore_lake(tmp_path / "lake", before, lambda lake: write(lake, kind, 3))
    assert refuse(tmp_path / "lake", KEYS[kind])["code"] == OutOfSync.code
    with penstock.open(tmp_path / "lake") as lake:
        lake.resync(KEYS[kind])
        assert lake.erase(KEYS[kind], dry_run=True).dry_run
        assert ids(lake.table(KEYS[kind]).to_arrow()) == [2, 3]


@in_each_format
def test_a_dropped_table_that_came_back_after_the_lake_was_so(tmp_path: Path, kind: str) -> None:
    """Its folder has rows that the lake does not know: as a resync says that brings it back."""

    def before(lake: Lake) -> None:
        write(lake, kind, 1)
        lake.branch().drop(KEYS[kind])

    def after(lake: Lake) -> None:
        lake.revert(lake.branch().head)
        write(lake, kind, 2)

    restore_lake(tmp_path / "lake", before, after)
    assert refuse(tmp_path / "lake", KEYS[kind], "--dropped")["code"] == OutOfSync.code
    with penstock.open(tmp_path / "lake") as lake:
        lake.resync()
        assert ids(lake.table(KEYS[kind]).to_arrow()) == [1, 2]


@in_each_format
@pytest.mark.parametrize("is_dropped", [False, True], ids=["there", "dropped"])
def test_a_table_of_another_lake(tmp_path: Path, kind: str, is_dropped: bool) -> None:
    """Also one that was dropped in a copy of the lake: the files are the other lake's, and it has them."""
    with penstock.open(tmp_path / "lake", create=True) as lake:
        write(lake, kind, 1)
        write(lake, kind, 2)
        lake.table(KEYS[kind]).delete("id = 1")
        lake.finish_background()
    copy_lake(tmp_path / "lake", tmp_path / "copy")
    if is_dropped:
        with penstock.open(tmp_path / "copy") as fork:
            fork.branch().drop(KEYS[kind])
    told = refuse(tmp_path / "copy", KEYS[kind], *(["--dropped"] if is_dropped else []))
    assert told["code"] == ManagedElsewhere.code
    with penstock.open(tmp_path / "lake") as lake:
        assert ids(lake.table(KEYS[kind]).to_arrow()) == [2]


@pytest.mark.parametrize("dropped", [False, True], ids=["there", "dropped"])
def test_files_that_another_lake_wrote_are_told_and_stay(tmp_path: Path, dropped: bool) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.table("a.f").files.write({"1.csv": MARKER.encode(), "2.csv": b"2"})
    copy_lake(tmp_path / "lake", tmp_path / "copy")
    with penstock.open(tmp_path / "copy") as fork:
        fork.table("a.f").files.delete("1.csv")
        if dropped:
            fork.branch().drop("a.f")
    with alone(tmp_path / "copy") as fork:
        source = f"lake {lake.id}, which this lake is a copy of"
        with pytest.raises(EraseRefused, match=source):
            fork.erase("a.f", dropped=dropped)
        preview = fork.erase("a.f", dropped=dropped, dry_run=True)
        assert (preview.data_files, source in preview.left[0]) == (0, True)
        assert source in fork.erase("a.f", dropped=dropped, all_references=True).left[0]
    with penstock.open(tmp_path / "lake") as lake:
        assert lake.table("a.f").files.read("1.csv") == MARKER.encode()


def test_a_copy_erases_its_own_tables_as_any_lake(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True):
        pass
    copy_lake(tmp_path / "lake", tmp_path / "copy")
    with penstock.open(tmp_path / "copy") as fork:
        fork.table("a.f").files.write({"1.csv": MARKER.encode(), "2.csv": b"2"})
        fork.create_table("a.t", data=pa.table({"name": [MARKER, "b"]}))
        fork.table("a.f").files.delete("1.csv")
        fork.table("a.t").delete(f"name = '{MARKER}'")
        fork.finish_background()
    with alone(tmp_path / "copy") as fork:
        assert fork.erase("a.f").finished
        assert fork.erase("a.t").finished
    assert where_is(tmp_path) == []


def test_a_lake_that_has_moved(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        write(lake, "delta", 1)
        lake.finish_background()
    move_lake(tmp_path / "lake", tmp_path / "moved")
    assert refuse(tmp_path / "lake", KEYS["delta"])["code"] == LakeMoved.code
    with penstock.open(tmp_path / "lake") as lake:
        for dry_run in (False, True):  # nor is its log cut short, which the lake at its new place has
            with pytest.raises(LakeMoved):
                lake.delta.clean_log(KEYS["delta"], dry_run=dry_run)
