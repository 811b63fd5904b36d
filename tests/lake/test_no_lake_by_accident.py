"""Where there is no lake, reading makes none; and what is left of a lake is never taken for a new one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import Damaged, InvalidRequest, LakeNotFound
from penstock.lake.lake import Lake
from penstock.model.clock import now_us
from penstock.stores import open_store
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.faults import FaultyStore, Point
from tests.queue.hooks import table

ROWS = pa.table({"id": [1, 2]})
MISSING = r"description is missing.*backup"

READS: dict[str, Callable[[Lake], Any]] = {
    "tables": lambda lake: lake.tables(),
    "branches": lambda lake: lake.branches(),
    "log": lambda lake: lake.log(),
    "id": lambda lake: lake.id,
    "roots": lambda lake: lake.roots,
    "head": lambda lake: lake.branch().head,
    "at": lambda lake: lake.at("main"),
    "rows": lambda lake: lake.table("a.t").to_arrow(),
    "files": lambda lake: list(lake.table("a.f").files.list()),
    "status": lambda lake: lake.delta.status(),
    "jobs": lambda lake: lake.jobs(),
    "transactions": lambda lake: lake.transactions(),
    "expectations": lambda lake: lake.expectations(),
    "fsck": lambda lake: lake.fsck(),
    "sweep": lambda lake: lake.sweep(),
    "append to no table": lambda lake: lake.table("a.t").append(ROWS),
    "drop": lambda lake: lake.branch().drop("a.t"),
    "delete a branch": lambda lake: lake.branch("dev").delete(),
    "merge": lambda lake: lake.merge("dev"),
    "remove a file": lambda lake: lake.table("a.f").files.delete("x"),
}

WRITES: dict[str, Callable[[Lake], Any]] = {
    "put": lambda lake: lake.branch().put("a.t", table()),
    "commit": lambda lake: lake.commit([penstock.Put(penstock.Key("t"), table())]),
    "write": lambda lake: lake.table("a.t").write(ROWS),
    "write Lance": lambda lake: lake.table("a.t").write(ROWS, format="lance"),
    "write files": lambda lake: lake.table("a.t").write(ROWS, format="parquet"),
    "create a table": lambda lake: lake.create_table("a.t", data=ROWS),
    "create an empty table": lambda lake: lake.create_table("a.t", schema=ROWS.schema),
    "put a file": lambda lake: lake.table("a.f").files.put("x.txt", b"1"),
    "a file system": lambda lake: lake.files_system().pipe_file("a.f/x.txt", b"1"),
    "a namespace of Lance": lambda lake: lake.lance("main").create_namespace(_namespace("a")),
    "a branch": lambda lake: lake.branch("dev").create(),
    "a tag": lambda lake: lake.tag("v1").create(),
    "a transaction": lambda lake: lake.transaction(message="x").write(ROWS, "a.t"),
    "run": lambda lake: lake.run(lambda tx: tx.write(ROWS, "a.t")),
    "a root": lambda lake: lake.add_root("/data"),
    "a token": lambda lake: lake.create_token("etl", "read"),
    "a check": lambda lake: lake.add_check("none", lambda _: None),
}

PLACES = ["{}", "sqlite://{}", "file://{}", "rocksdb://{}"]


def _namespace(name: str) -> Any:
    from lance_namespace import CreateNamespaceRequest

    return CreateNamespaceRequest(id=[name])


@pytest.mark.parametrize("scheme", PLACES)
@pytest.mark.parametrize("exists", [False, True])
def test_opening_and_reading_make_nothing(tmp_path: Path, scheme: str, exists: bool) -> None:
    place = tmp_path / "typo"
    if exists:
        place.mkdir()
    with penstock.open(scheme.format(place)) as lake:
        assert str(place) in repr(lake)
        assert (lake.default_branch, lake.warehouse) == ("main", str(place / "warehouse"))
        for name, read in READS.items():
            with pytest.raises(LakeNotFound, match="The first write creates one") as refused:
                pytest.fail(f"{name}: {read(lake)}")
            assert "penstock init" in str(refused.value)
        lake.finish_background()
    assert list(tmp_path.rglob("*")) == ([place] if exists else [])
    with pytest.raises(InvalidRequest, match="closed"):
        lake.branch().put("a", table())
    assert list(tmp_path.rglob("*")) == ([place] if exists else [])


@pytest.mark.parametrize("name", WRITES)
def test_the_first_write_makes_the_lake(tmp_path: Path, name: str) -> None:
    place = tmp_path / "lake"
    with penstock.open(place) as lake:
        assert not place.exists()
        WRITES[name](lake)
        assert (lake.is_made_here, lake.url, lake.warehouse) == (True, str(place), str(place / "warehouse"))
        identity = lake.id
    with penstock.open(place, create=False) as again:
        assert again.id == identity
        assert again.fsck().damages == ()


@pytest.mark.parametrize("scheme", PLACES)
def test_a_lake_that_another_object_made_is_read_and_written(tmp_path: Path, scheme: str) -> None:
    place = scheme.format(tmp_path / "lake")
    with penstock.open(place) as early:
        with pytest.raises(LakeNotFound):
            early.log()
        with penstock.init(place, default_branch="trunk") as made:
            identity = made.id
        assert (early.id, early.default_branch, early.is_made_here) == (identity, "trunk", False)
        early.branch().put("a", table())
        assert len(early.log()) == 1


_WRITER = """
import sys
import penstock
lake = penstock.open(sys.argv[1], author=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
import pyarrow as pa  # type: ignore[import-untyped]
lake.table(f"a.t{sys.argv[2]}").write(pa.table({"id": [1]}))
print(lake.id, flush=True)
lake.close()
"""


def test_many_first_writers_at_once_make_one_lake(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(place), str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(4)
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    assert not place.exists()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    answers = {writer.communicate()[0] for writer in writers}
    assert [writer.returncode for writer in writers] == [0] * 4
    with penstock.open(place, create=False) as lake:
        assert answers == {f"{lake.id}\n"}
        assert len(lake.tables()) == 4
        assert lake.fsck().damages == ()


# -- a directory that is not the lake's own ------------------------------------------------------------------


@pytest.mark.parametrize("scheme", PLACES)
@pytest.mark.parametrize("do", [penstock.open, penstock.init])
def test_a_directory_with_other_files_is_refused(
    tmp_path: Path, scheme: str, do: Callable[..., Lake]
) -> None:
    (tmp_path / "report.csv").write_text("1")
    with pytest.raises(InvalidRequest, match="other files") as refused:
        do(scheme.format(tmp_path))
    assert "lake" in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["report.csv"]


@pytest.mark.parametrize("below", ["", "sub", "sub/deeper"])
@pytest.mark.parametrize(("folder", "format"), [("_delta_log", "Delta"), ("_versions", "Lance")])
def test_no_lake_is_made_inside_of_a_table(tmp_path: Path, below: str, folder: str, format: str) -> None:  # noqa: A002
    (tmp_path / "orders" / folder).mkdir(parents=True)
    for do in (penstock.open, penstock.init):
        with pytest.raises(InvalidRequest, match=f"the folder of a {format} table"):
            do(tmp_path / "orders" / below)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [folder, "orders"]


@pytest.mark.parametrize("scheme", PLACES[1:])
def test_tables_without_their_database_are_not_made_a_new_lake(tmp_path: Path, scheme: str) -> None:
    """The database is gone, or an empty one stands in its place."""
    place = scheme.format(tmp_path)
    with penstock.open(place) as lake:
        lake.table("a.t").write(ROWS)
    for own in ("penstock.db", "rocksdb/CURRENT", "lake"):
        (tmp_path / own).unlink(missing_ok=True)
    for log in (tmp_path / "rocksdb").glob("*.log"):
        log.unlink()
    for do in (penstock.open, penstock.init):
        with pytest.raises((InvalidRequest, Damaged)):
            do(place)
    if scheme.startswith("sqlite"):
        (tmp_path / "penstock.db").touch()
        with pytest.raises(InvalidRequest, match=r"other files in it \(warehouse\).*backup"):
            penstock.open(place)


def test_a_new_volume_is_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    with penstock.open(tmp_path) as lake:
        lake.branch().put("a", table())


# -- what is left of a lake ---------------------------------------------------------------------------------


def _lose_rows(store: Store, *names: str) -> None:
    for name in names:
        with store.turn(name) as turn:
            assert turn.advance({}, None).swapped


@pytest.mark.parametrize("lost", [("@lake",), ("@lake", "main"), ("@lake", "main", "dev")])
@pytest.mark.parametrize("scheme", ["memory:", *PLACES])
def test_a_lake_without_its_description_is_damaged(
    tmp_path: Path, scheme: str, lost: tuple[str, ...]
) -> None:
    place = scheme.format(tmp_path / "lake")
    store = MemoryStore(now_us) if scheme == "memory:" else open_store(place, True, now_us)
    lake = penstock.open(store)
    lake.branch().put("a", table())
    lake.branch("dev").create()
    _lose_rows(store, *lost)
    before = store.scan(b"", 1000)[0]
    for create in (None, True, False):
        if scheme == "memory:":
            with pytest.raises(Damaged, match=MISSING):
                penstock.open(_Unclosed(store), create=create)
            continue
        if scheme.startswith("rocksdb"):
            continue  # one process, one object
        with pytest.raises(Damaged, match=MISSING):
            penstock.open(place, create=create)
        with pytest.raises(Damaged, match=MISSING):
            penstock.init(place)
    assert store.reference("@lake") is None
    assert store.scan(b"", 1000)[0] == before
    store.close()
    if scheme.startswith("rocksdb"):
        with pytest.raises(Damaged, match=MISSING):
            penstock.open(place)


class _Unclosed(FaultyStore):
    def close(self) -> None:
        """The store is looked at afterwards."""


def test_a_page_of_references_that_holds_something_else_is_damage(tmp_path: Path) -> None:
    """A write that went to the wrong place of the file: whatever page it brought, no new lake comes of it."""
    with penstock.open(tmp_path) as lake:
        for number in range(60):
            lake.branch().put(f"a.t{number}", table(str(number)))
    file = tmp_path / "penstock.db"
    connection = sqlite3.connect(file)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'refs'").fetchone()
    connection.close()
    sound = file.read_bytes()
    outcomes = set()
    for page in range(len(sound) // 4096):
        damaged = bytearray(sound)
        damaged[(root - 1) * 4096 : root * 4096] = sound[page * 4096 : (page + 1) * 4096]
        if damaged == sound:
            continue
        for beside in tmp_path.glob("penstock.db-*"):
            beside.unlink()
        file.write_bytes(damaged)
        with pytest.raises(Damaged) as refused, penstock.open(tmp_path) as lake:
            lake.tables()
        outcomes.add("description" in str(refused.value))
    assert True in outcomes


@pytest.mark.parametrize("point", [Point.BEFORE_SWAP, Point.AFTER_SWAP])
@pytest.mark.parametrize("swap", [0, 1])
def test_making_a_lake_that_was_interrupted_is_completed(point: Point, swap: int) -> None:
    """Nothing is stored before the description, and whoever comes next makes what is missing after it."""
    inner = MemoryStore(now_us)
    store = _Unclosed(inner, locking=False)
    store.fail(point, _StoppedError(), skip=swap)
    with pytest.raises(_StoppedError):
        penstock.open(store)
    if swap == 0 and point is Point.BEFORE_SWAP:
        assert inner.scan(b"", 10)[0] == []
    lake = penstock.open(inner)
    lake.branch().put("a", table())
    assert [branch.name for branch in lake.branches()] == ["main"]
    assert lake.fsck().damages == ()


class _StoppedError(BaseException):
    """A process that ends here."""


def test_a_lake_that_lost_its_default_branch_is_not_given_an_empty_one() -> None:
    store = MemoryStore(now_us)
    penstock.open(store).branch().put("a", table())
    _lose_rows(store, "main")
    lake = penstock.open(store)
    assert lake.branches() == []
