"""What is special about the SQLite store: its file, other processes, and how it says what is wrong."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from threading import Thread

import pytest

import penstock
from penstock import IcebergTable, Settings
from penstock.errors import (
    Damaged,
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    Unavailable,
    UnsupportedFormat,
)
from penstock.stores import sqlite
from penstock.stores.sqlite import SqliteStore
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample

RACER = Path(__file__).with_name("racing_process.py")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


def run_python(code: str, *arguments: str) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- durability ------------------------------------------------------------------------------------------


def test_every_connection_writes_ahead_and_waits_for_the_disk(database: Path) -> None:
    store = SqliteStore(database)
    swap(store, row("main"))
    store.reference("main")
    for connection in (store._writer, *store._readers):
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL"
    assert store._readers
    store.close()


def test_a_file_that_lost_its_write_ahead_mode_gets_it_back(database: Path) -> None:
    SqliteStore(database).close()
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    connection.close()
    store = SqliteStore(database)
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


# -- what is at the path ---------------------------------------------------------------------------------


def test_a_newer_schema_is_refused_by_its_number(database: Path) -> None:
    SqliteStore(database).close()
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA user_version=7")
    connection.close()
    with pytest.raises(UnsupportedFormat, match="schema version 7") as refused:
        SqliteStore(database)
    assert refused.value.details == {"found": 7, "known": 1}
    assert str(database) in refused.value.message


@pytest.mark.parametrize("version", [0, 1, 9])
def test_another_programs_database_is_refused_and_left_as_it_is(database: Path, version: int) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
        connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    before = database.read_bytes()
    with pytest.raises(InvalidRequest, match="not a lake"):
        SqliteStore(database)
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]


def test_nothing_is_made_where_nothing_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(LakeNotFound):
        SqliteStore(tmp_path / "lake" / "penstock.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_denied(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(Denied):
        SqliteStore(tmp_path / "file" / "penstock.db")


def test_a_directory_in_the_place_of_the_file_is_a_typed_error(database: Path) -> None:
    database.mkdir()
    with pytest.raises((InvalidRequest, Unavailable, Denied, Damaged)):
        SqliteStore(database)


def test_an_empty_file_becomes_a_store(database: Path) -> None:
    database.touch()
    store = SqliteStore(database)
    store.store(sample(1))
    assert store.fetch(list(sample(1))) == sample(1)
    store.close()


def test_a_read_only_file_is_denied() -> None:
    """As a user who may not write; the administrator, as whom tests may run, always may."""
    said = run_python(
        """
        import os, tempfile
        import penstock, penstock.lake.lake
        from penstock.errors import Denied
        from penstock.stores.sqlite import SqliteStore
        with tempfile.TemporaryDirectory() as place:
            penstock.init(place).close()
            os.chmod(os.path.join(place, "penstock.db"), 0o444)
            os.chmod(place, 0o777)
            child = os.fork()
            if child == 0:
                if os.getuid() == 0:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                try:
                    penstock.open(place).branch().put("a", penstock.IcebergTable(metadata_location="x"))
                except Denied as denied:
                    print(denied.code, "penstock.db" in denied.message, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        """
    )
    assert said == "denied True"


# -- other processes and threads -------------------------------------------------------------------------


def test_a_store_is_refused_in_a_forked_child() -> None:
    said = run_python(
        """
        import os, sys, tempfile
        from penstock.errors import InvalidRequest
        from penstock.stores.sqlite import SqliteStore
        with tempfile.TemporaryDirectory() as place:
            store = SqliteStore(os.path.join(place, "penstock.db"))
            store.store({b"a" * 32: b"kept"})
            child = os.fork()
            if child == 0:
                reads = [lambda: store.fetch([b"a" * 32]), lambda: store.scan(b"", 1)]
                for use in (*reads, lambda: store.store({})):
                    try:
                        use()
                    except InvalidRequest as refused:
                        print("fork" in refused.message, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            print(store.fetch([b"a" * 32])[b"a" * 32].decode())
            store.close()
        """
    )
    assert said.split() == ["True", "True", "True", "kept"]


def test_waiting_too_long_for_another_process_is_unavailable(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    store = SqliteStore(database)
    blocker = sqlite3.connect(database, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="in use by another process"):
        store.store(sample(1))
    with pytest.raises(Unavailable), store.turn("main"):
        pass
    assert store.reference("main") is None, "reading goes on"
    blocker.execute("ROLLBACK")
    blocker.close()
    assert swap(store, row("main")).swapped
    store.close()


@pytest.mark.parametrize("family", ["locking", "unlocked"])
def test_processes_racing_for_a_row_have_one_winner_for_every_row_seen(database: Path, family: str) -> None:
    processes, count = 4, 40
    SqliteStore(database).close()
    command = [sys.executable, str(RACER), str(database), family, str(count)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        won = [int(value) for racer in racers for value in racer.communicate(timeout=120)[0].split()]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    assert Counter(won) == Counter(range(processes * count))


def test_processes_that_make_the_same_lake_at_once_make_one(tmp_path: Path) -> None:
    code = """
        import sys
        import penstock, penstock.lake.lake
        print("ready", flush=True)
        sys.stdin.readline()
        with penstock.open(sys.argv[1], create=True) as lake:
            print(lake.id, flush=True)
    """
    for attempt in range(3):
        command = [sys.executable, "-c", dedent(code), str(tmp_path / str(attempt))]
        makers = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(6)
        ]
        for maker in makers:
            assert maker.stdout is not None
            maker.stdout.readline()
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write("go\n")
            maker.stdin.flush()
        said = [maker.communicate(timeout=60) for maker in makers]
        assert [errors for _, errors in said] == [""] * 6
        assert len({ids for ids, _ in said}) == 1


def test_closing_lets_go_of_the_file(database: Path) -> None:
    store = SqliteStore(database)
    swap(store, row("main"))
    threads = [Thread(target=store.reference, args=("main",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _open_files(database)
    store.close()
    assert _open_files(database) == []


def test_reading_from_a_closed_store_does_not_open_the_file_again(database: Path) -> None:
    store = SqliteStore(database)
    swap(store, row("main"))
    store.close()
    with pytest.raises(penstock.errors.PenstockError):
        store.reference("main")
    assert _open_files(database) == []


def _open_files(database: Path) -> list[str]:
    found = []
    for number in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own is gone by now
            found.append(str(number.readlink()))
    return [target for target in found if target.startswith(str(database))]


# -- a full disk -----------------------------------------------------------------------------------------


def test_a_disk_that_fails_at_commit_leaves_the_outcome_unknown_and_the_row_whole() -> None:
    """The kernel refuses to let the write-ahead log grow, as it does on a full disk: a real failed write."""
    said = run_python(
        """
        import os, resource, tempfile
        from penstock.errors import OutcomeUnknown, Unavailable
        from penstock.stores.sqlite import SqliteStore
        from penstock.testing.contract_rows import swap
        from penstock.testing.samples import row, sample
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "penstock.db")
            store = SqliteStore(path)
            swap(store, row("main", data=b"1"))
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + 8192, hard))
            big = sample(20, "big", 4000)
            try:
                with store.turn("main") as turn:
                    turn.advance(big, row("main", data=b"2"))
            except OutcomeUnknown as unknown:
                print("unknown", flush=True)
            try:
                store.store(big)
            except Unavailable:
                print("unavailable", flush=True)
            print(store.reference("main").data.decode(), len(store.fetch(list(big))))
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            with store.turn("main") as turn:
                print(turn.advance(big, row("main", data=b"2")).swapped)
            store.close()
            again = SqliteStore(path)
            print(again.reference("main").data.decode(), len(again.fetch(list(big))))
            again.close()
        """
    )
    assert said.splitlines() == ["unknown", "unavailable", "1 0", "True", "2 20"]


def test_a_lake_on_a_disk_that_fails_at_commit_says_so_and_the_same_key_tells_the_truth_later() -> None:
    said = run_python(
        """
        import os, resource, tempfile
        import penstock
        from penstock import IcebergTable, Key, Put, Settings
        from penstock.errors import OutcomeUnknown
        with tempfile.TemporaryDirectory() as place:
            lake = penstock.open(place, settings=Settings(write_timeout_s=0.3))
            lake.branch().put("a", IcebergTable(metadata_location="1"))
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            size = os.path.getsize(os.path.join(place, "penstock.db-wal"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, hard))
            wish = [Put(Key("a"), IcebergTable(metadata_location="2"))]
            try:
                lake.commit(wish, idempotency_key="k")
            except OutcomeUnknown as unknown:
                print(unknown.details["key"], flush=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            print(lake.outcome("k"))
            first = lake.commit(wish, idempotency_key="k")
            print(first.id == lake.commit(wish, idempotency_key="k").id, len(lake.log()), lake.fsck().damages)
            lake.close()
        """
    )
    assert said.splitlines() == ["k", "None", "True 2 ()"]


def test_a_database_that_may_not_grow_is_unavailable_and_nothing_changed(database: Path) -> None:
    store = SqliteStore(database)
    swap(store, row("main", data=b"1"))
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(Unavailable, match="full"), store.turn("main") as turn:
        turn.advance(sample(30, "big", 4000), row("main", data=b"2"))
    assert store.reference("main") == row("main", data=b"1")
    store._writer.execute("PRAGMA max_page_count=1000000")
    assert swap(store, row("main", data=b"2")).swapped
    store.close()


def test_a_turn_whose_commit_fails_does_not_hold_up_the_next(database: Path) -> None:
    store = SqliteStore(database)
    swap(store, row("main", data=b"1"))
    store._writer.set_authorizer(_refuse_commit)
    with pytest.raises(OutcomeUnknown, match="while committing"), store.turn("main") as turn:
        turn.advance({}, row("main", data=b"2"))
    store._writer.set_authorizer(None)
    assert store.reference("main") == row("main", data=b"1")
    assert swap(store, row("main", data=b"3")).swapped
    store.close()


def _refuse_commit(action: int, what: str | None, *rest: str | None) -> int:
    is_commit = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
    return sqlite3.SQLITE_DENY if is_commit else sqlite3.SQLITE_OK


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_nothing_is_acknowledged_in_a_file_that_is_gone(tmp_path: Path, replaced: bool) -> None:
    place = tmp_path / "lake"
    with penstock.open(place, settings=Settings(write_timeout_s=0.1)) as lake:
        lake.branch().put("a", IcebergTable(metadata_location="s3://lake/a"))
        place.rename(tmp_path / "away")
        if replaced:
            penstock.open(place).close()
        with pytest.raises(Unavailable, match="removed or replaced"):
            lake.branch().put("b", IcebergTable(metadata_location="s3://lake/b"))
    with penstock.open(tmp_path / "away") as lake:
        assert len(lake.log()) == 1


def test_a_file_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    with penstock.open(place, create=True, settings=Settings(write_timeout_s=0.1)) as lake:
        place.rename(tmp_path / "away")
        with pytest.raises(Unavailable):
            lake.branch().put("a", IcebergTable(metadata_location="s3://lake/a"))
        (tmp_path / "away").rename(place)
        lake.branch().put("a", IcebergTable(metadata_location="s3://lake/a"))
        assert len(lake.log()) == 1
