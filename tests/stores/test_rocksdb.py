"""What is special about the RocksDB store: its directory, its one process, its shared sync, its errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import dedent
from threading import Event, Thread
from typing import Any

import pytest
import rocksdict

from penstock.errors import (
    Damaged,
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    Unavailable,
    UnsupportedFormat,
)
from penstock.stores.port import Row
from penstock.stores.rocksdb import FAMILIES, RocksdbStore, _RocksdbTurn
from penstock.stores.rocksdb_directory import DATA_DIRECTORY, VERSION_DRAFT, VERSION_FILE
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample
from penstock.testing.threads import JOIN_MAX_S, at_once


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def store(place: Path) -> Iterator[RocksdbStore]:
    opened = RocksdbStore(place)
    yield opened
    opened.close()


def run_python(code: str, *arguments: str) -> list[str]:
    """The lines that a process of its own prints."""
    command = [sys.executable, "-c", dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# -- the directory ---------------------------------------------------------------------------------------


def test_a_url_and_a_path_are_the_same_place(place: Path) -> None:
    store = RocksdbStore(f"rocksdb://{place}")
    swap(store, row("main"))
    assert store.url == f"rocksdb://{place}"
    store.close()
    again = RocksdbStore(place, create=False)
    assert again.reference("main") == row("main")
    again.close()


def test_nothing_is_made_where_nothing_may_be_made(place: Path) -> None:
    with pytest.raises(LakeNotFound, match=f"penstock init rocksdb://{place}"):
        RocksdbStore(place, create=False)
    assert not place.exists()
    place.mkdir()
    with pytest.raises(LakeNotFound):
        RocksdbStore(place, create=False)
    assert list(place.iterdir()) == []


def test_an_empty_directory_becomes_a_store(place: Path) -> None:
    place.mkdir()
    RocksdbStore(place).close()
    RocksdbStore(place, create=False).close()


@pytest.mark.parametrize("create", [True, False])
def test_another_programs_directory_is_refused_and_left_as_it_is(place: Path, create: bool) -> None:
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    with pytest.raises(InvalidRequest, match="other files"):
        RocksdbStore(place, create=create)
    assert [entry.name for entry in place.iterdir()] == ["notes.txt"]


def test_another_programs_database_is_refused_and_left_as_it_is(place: Path) -> None:
    theirs = rocksdict.Rdict(str(place))
    theirs["key"] = "value"
    theirs.close()
    before = {entry.name: entry.stat().st_mtime_ns for entry in place.iterdir()}
    with pytest.raises(InvalidRequest, match="not a lake"):
        RocksdbStore(place)
    assert {entry.name: entry.stat().st_mtime_ns for entry in place.iterdir()} == before


def test_a_file_in_the_place_of_the_directory_is_refused(place: Path) -> None:
    place.write_text("mine")
    with pytest.raises(InvalidRequest, match="is a file"):
        RocksdbStore(place)


def test_a_directory_that_cannot_be_made_is_denied() -> None:
    with pytest.raises(Denied, match="/proc/lake"):
        RocksdbStore("/proc/lake/here")


def test_a_newer_schema_is_refused_by_its_number(place: Path) -> None:
    RocksdbStore(place).close()
    (place / VERSION_FILE).write_text("A Penstock lake in RocksDB, version 7\n")
    with pytest.raises(UnsupportedFormat, match="schema version 7") as refused:
        RocksdbStore(place)
    assert refused.value.details == {"found": 7, "known": 1}


def test_a_version_that_cannot_be_read_is_damage(place: Path) -> None:
    RocksdbStore(place).close()
    (place / VERSION_FILE).write_bytes(b"\xff\x00")
    with pytest.raises(Damaged, match="does not contain the version of the lake"):
        RocksdbStore(place)


def _only_a_draft(place: Path) -> None:
    (place / f"{VERSION_DRAFT}.123").write_text("A Pen")


def _only_the_version(place: Path) -> None:
    RocksdbStore(place).close()
    for entry in (place / DATA_DIRECTORY).iterdir():
        entry.unlink()
    (place / DATA_DIRECTORY).rmdir()


def _no_log_yet(place: Path) -> None:
    RocksdbStore(place).close()
    (place / DATA_DIRECTORY / "CURRENT").unlink()
    for log in (place / DATA_DIRECTORY).glob("*.log"):
        log.unlink()


@pytest.mark.parametrize("cut", [_only_a_draft, _only_the_version, _no_log_yet])
def test_a_lake_whose_making_was_cut_short_is_none_yet_and_can_be_finished(place: Path, cut: Any) -> None:
    place.mkdir()
    cut(place)
    with pytest.raises(LakeNotFound):
        RocksdbStore(place, create=False)
    store = RocksdbStore(place)
    assert swap(store, row("main")).swapped
    store.close()
    RocksdbStore(place, create=False).close()


def test_families_whose_making_was_cut_short_are_finished(place: Path) -> None:
    RocksdbStore(place).close()
    options = rocksdict.Options(raw_mode=True)
    families = {name: rocksdict.Options(raw_mode=True) for name in FAMILIES}
    half = rocksdict.Rdict(str(place / DATA_DIRECTORY), options, families)
    half.drop_column_family("kinds")
    half.close()
    store = RocksdbStore(place, create=False)
    swap(store, row("main"))
    assert store.references("branch") == [row("main")]
    store.close()


@pytest.mark.parametrize("create", [True, False])
def test_a_lost_file_is_told_as_damage(place: Path, create: bool) -> None:
    store = RocksdbStore(place)
    swap(store, row("main"))
    store.close()
    (place / DATA_DIRECTORY / "CURRENT").unlink()
    with pytest.raises(Damaged):
        RocksdbStore(place, create=create)


def test_damaged_bytes_are_told_as_damage(place: Path) -> None:
    store = RocksdbStore(place)
    objects = sample(300, "object", 2000)
    store.store(objects)
    store.close()
    tables = sorted((place / DATA_DIRECTORY).glob("*.sst"), key=lambda path: path.stat().st_size)
    whole = bytearray(tables[-1].read_bytes())
    for position in range(0, len(whole) // 2, 50):
        whole[position] ^= 0xFF
    tables[-1].write_bytes(whole)
    again = RocksdbStore(place)
    with pytest.raises(Damaged, match="damaged"):
        again.fetch(list(objects))
    again.close()


def test_an_object_stored_again_with_other_bytes_keeps_its_size(store: RocksdbStore) -> None:
    one = b"r" * 32
    store.store({one: b"first"})
    store.store({one: b"the second is longer"})
    ((found,), _) = store.scan(b"", 10)
    assert (found.id, found.size) == (one, len(b"first"))


def test_nothing_is_left_of_a_row_that_changed_its_kind_or_was_removed(store: RocksdbStore) -> None:
    swap(store, row("main", "branch"))
    swap(store, row("main", "deleted"))
    assert list(store._kinds.keys()) == [b"deleted\0main"]
    swap(store, None, "main")
    assert list(store._kinds.keys()) == list(store._rows.keys()) == []


class ChangesWhileListed(RocksdbStore):
    """Its first row becomes another kind's after it was listed, before it is read."""

    def reference(self, name: str) -> Row | None:
        if name == "a" and super().reference(name) == row("a"):
            _RocksdbTurn(self, "a", row("a")).advance({}, row("a", "deleted"))
        return super().reference(name)


def test_a_row_that_changes_its_kind_while_it_is_listed_is_left_out(place: Path) -> None:
    store = ChangesWhileListed(place)
    for name in ("b", "c", "a"):
        _RocksdbTurn(store, name, None).advance({}, row(name))
    assert store.references("branch", limit=2) == [row("b"), row("c")]
    store.close()


MAKE = """
import sys
from penstock.errors import InvalidRequest, Unavailable
from penstock.stores.rocksdb import RocksdbStore
print("ready", flush=True)
sys.stdin.readline()
try:
    store = RocksdbStore(sys.argv[1])
except Unavailable:
    print("in use")
else:
    print("made", flush=True)
    sys.stdin.readline()
    store.close()
"""


def test_of_processes_that_make_the_same_lake_at_once_one_makes_it(place: Path) -> None:
    command = [sys.executable, "-c", MAKE, str(place)]
    makers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for maker in makers:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "ready\n"
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.flush()
    said = []
    for maker in makers:
        assert maker.stdout is not None
        said.append(maker.stdout.readline())
    for maker in makers:
        maker.communicate("done\n", timeout=60)
    assert sorted(said) == ["in use\n", "in use\n", "made\n"]


def test_a_missing_library_is_named_with_its_extra(place: Path) -> None:
    said = run_python(
        """
        import sys
        sys.modules["rocksdict"] = None  # as if it were not installed
        from penstock.errors import InvalidRequest
        from penstock.model.clock import now_us
        from penstock.stores import open_store
        try:
            open_store("rocksdb://" + sys.argv[1], True, now_us)
        except InvalidRequest as refused:
            print("penstock[rocksdb]" in refused.message)
        """,
        str(place),
    )
    assert said == ["True"]


# -- one process -----------------------------------------------------------------------------------------

HOLD = """
import sys
from penstock.stores.rocksdb import RocksdbStore
store = RocksdbStore(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
store.close()
"""


def test_a_second_process_is_told_why_it_must_wait(place: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Unavailable, match="in use by another process"):
            RocksdbStore(place)
        holder.communicate("go\n", timeout=60)
    RocksdbStore(place).close()


def test_a_second_handle_in_one_process_is_refused(place: Path, store: RocksdbStore) -> None:
    with pytest.raises(InvalidRequest, match="already open in this process"):
        RocksdbStore(place)
    assert swap(store, row("main")).swapped


def test_closing_lets_go_of_the_directory_though_others_are_reading(place: Path) -> None:
    for _ in range(20):
        store = RocksdbStore(place)
        store.store(sample(50))
        started = Event()

        def read(store: RocksdbStore = store, started: Event = started) -> None:
            with suppress(InvalidRequest):
                while True:
                    store.fetch(list(sample(50)))
                    store.references("branch")
                    started.set()

        reader = Thread(target=read)
        reader.start()
        assert started.wait(JOIN_MAX_S)
        store.close()
        reader.join(JOIN_MAX_S)
        assert not reader.is_alive()


def test_a_closed_store_says_so(place: Path) -> None:
    store = RocksdbStore(place)
    with store.turn("main") as turn:
        store.close()
        with pytest.raises(InvalidRequest, match="was closed"):
            turn.advance({}, row("main"))
    uses = [
        lambda: store.fetch([b"a" * 32]),
        lambda: store.store({}),
        lambda: store.reference("main"),
        lambda: store.references("branch"),
        lambda: store.scan(b"", 1),
        lambda: store.delete([]),
        store.check,
        store.erase,
    ]
    for use in uses:
        with pytest.raises(InvalidRequest, match="was closed"):
            use()


def test_a_store_is_refused_in_a_forked_child_which_can_end(place: Path) -> None:
    said = run_python(
        """
        import os, sys
        from penstock.errors import InvalidRequest
        from penstock.stores.rocksdb import RocksdbStore
        store = RocksdbStore(sys.argv[1])
        store.store({b"a" * 32: b"kept"})
        child = os.fork()
        if child == 0:
            reads = [lambda: store.fetch([b"a" * 32]), lambda: store.scan(b"", 1)]
            for use in (*reads, lambda: store.store({}), lambda: store.reference("main")):
                try:
                    use()
                except InvalidRequest as refused:
                    print("fork" in refused.message, flush=True)
            store.close()
            sys.exit(0)  # the interpreter frees everything, and must not wait for threads that are not there
        os.waitpid(child, 0)
        print(store.fetch([b"a" * 32])[b"a" * 32].decode())
        store.store({b"b" * 32: b"more"})
        store.close()
        again = RocksdbStore(sys.argv[1])
        print(len(again.fetch([b"a" * 32, b"b" * 32])))
        again.close()
        """,
        str(place),
    )
    assert said == ["True"] * 4 + ["kept", "2"]


# -- the shared sync -------------------------------------------------------------------------------------


class Gated(RocksdbStore):
    """Its syncs can be made to wait, and are counted."""

    def __init__(self, path: Path) -> None:
        self.syncing, self.may_sync = Event(), Event()
        self.may_sync.set()
        self.synced = 0
        super().__init__(path)

    def _sync_batch(self, number: int) -> None:
        if not self.may_sync.is_set():
            self.syncing.set()
            assert self.may_sync.wait(JOIN_MAX_S)
        self.synced += 1
        super()._sync_batch(number)


@pytest.fixture
def gated(place: Path) -> Iterator[Gated]:
    opened = Gated(place)
    yield opened
    opened.may_sync.set()
    opened.close()


def in_thread(work: Any) -> tuple[Thread, list[Any]]:
    answers: list[Any] = []
    thread = Thread(target=lambda: answers.append(work()), daemon=True)
    thread.start()
    return thread, answers


def test_a_row_that_is_not_durable_is_shown_to_nobody(gated: Gated) -> None:
    swap(gated, row("main", data=b"1"))
    swap(gated, row("audit", data=b"1"))
    gated.may_sync.clear()
    writer, written = in_thread(partial(swap, gated, row("main", data=b"2")))
    assert gated.syncing.wait(JOIN_MAX_S)
    gated.syncing.clear()
    reader, read = in_thread(lambda: gated.reference("main"))
    assert gated.syncing.wait(JOIN_MAX_S), "the reader must wait for the sync"
    gated.syncing.clear()
    lister, listed = in_thread(lambda: gated.references("branch"))
    assert gated.syncing.wait(JOIN_MAX_S), "whoever lists it must wait for the sync"
    assert gated.reference("audit") == row("audit", data=b"1"), "other rows are not held up"
    assert not written
    assert not read
    assert not listed
    gated.may_sync.set()
    for thread in (writer, reader, lister):
        thread.join(JOIN_MAX_S)
    assert read == [row("main", data=b"2")]
    assert listed == [[row("audit", data=b"1"), row("main", data=b"2")]]
    assert written[0].swapped


def test_a_removed_row_is_not_missed_before_that_is_durable(gated: Gated) -> None:
    swap(gated, row("main"))
    gated.may_sync.clear()
    remover, _ = in_thread(partial(swap, gated, None, "main"))
    assert gated.syncing.wait(JOIN_MAX_S)
    gated.syncing.clear()
    reader, read = in_thread(lambda: gated.reference("main"))
    assert gated.syncing.wait(JOIN_MAX_S)
    assert not read
    gated.may_sync.set()
    remover.join(JOIN_MAX_S)
    reader.join(JOIN_MAX_S)
    assert read == [None]


def test_a_fresh_object_that_is_not_durable_is_not_called_present(gated: Gated) -> None:
    """K7: who is told that its request was made before must be able to rely on it."""
    fresh = sample(1, "receipt")

    def advance(name: str) -> Any:
        with gated.turn(name) as turn:
            return turn.advance(fresh, row(name), list(fresh))

    gated.may_sync.clear()
    first, won = in_thread(partial(advance, "one"))
    assert gated.syncing.wait(JOIN_MAX_S)
    gated.syncing.clear()
    second, lost = in_thread(partial(advance, "two"))
    assert gated.syncing.wait(JOIN_MAX_S)
    assert not lost
    gated.may_sync.set()
    first.join(JOIN_MAX_S)
    second.join(JOIN_MAX_S)
    assert won[0].swapped
    assert lost[0].present == frozenset(fresh)


def test_nothing_is_pending_once_all_is_durable(store: RocksdbStore) -> None:
    def count_up(name: str) -> None:
        for number in range(20):
            swap(store, row(name, data=b"%d" % number))

    at_once(*(partial(count_up, name) for name in ("a", "b", "c", "a")))
    assert store._pending == {}
    assert store._durable == store._written


class Failing:
    """RocksDB, on a disk that does not take a sync."""

    def __init__(self, inner: rocksdict.Rdict) -> None:
        self._inner = inner
        self.fails = True

    def flush_wal(self, sync: bool) -> None:
        if self.fails:
            raise Exception("IO error: While fdatasync: Input/output error")
        self._inner.flush_wal(sync)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_failed_sync_leaves_the_outcome_unknown_and_is_never_called_durable_later(
    place: Path, store: RocksdbStore
) -> None:
    swap(store, row("main", data=b"1"))
    failing: Any = Failing(store._db)
    store._db = failing
    with store.turn("main") as turn, pytest.raises(OutcomeUnknown, match="Input/output error"):
        turn.advance(sample(1), row("main", data=b"2"))
    failing.fails = False
    with pytest.raises(Unavailable, match="Open the lake again"):
        store.reference("main")
    with pytest.raises(Unavailable, match="Open the lake again"):
        store.store(sample(1, "more"))
    with store.turn("audit") as turn, pytest.raises(OutcomeUnknown):
        turn.advance({}, row("audit"))
    store.close()
    again = RocksdbStore(place)
    found = again.reference("main")
    assert isinstance(found, Row)
    assert swap(again, row("main", data=b"3")).swapped
    again.close()


def test_a_full_disk_is_told_and_what_was_acknowledged_stays(place: Path) -> None:
    """The system refuses to let files grow, as it does on a full disk: a real failed write."""
    said = run_python(
        """
        import os, resource, sys
        from penstock.errors import OutcomeUnknown, TryAgainError
        from penstock.stores.rocksdb import RocksdbStore
        from penstock.testing.contract_rows import swap
        from penstock.testing.samples import row, sample
        store = RocksdbStore(sys.argv[1])
        swap(store, row("main", data=b"1"))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
        big = sample(100, "big", 4000)
        try:
            with store.turn("main") as turn:
                turn.advance(big, row("main", data=b"2"))
        except OutcomeUnknown as unknown:
            print("unknown", flush=True)
        try:
            store.store(big)
        except TryAgainError as unavailable:
            print("not now", flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        store.close()
        again = RocksdbStore(sys.argv[1])
        print(again.reference("main").data.decode() in ("1", "2"))
        with again.turn("main") as turn:
            print(turn.advance(big, row("main", data=b"3")).swapped)
        again.close()
        """,
        str(place),
    )
    assert said == ["unknown", "not now", "True", "True"]


def test_a_directory_that_may_not_be_written_is_denied(place: Path) -> None:
    if os.geteuid() != 0:
        RocksdbStore(place).close()
        (place / DATA_DIRECTORY).chmod(0o500)
        try:
            with pytest.raises(Denied):
                RocksdbStore(place)
        finally:
            (place / DATA_DIRECTORY).chmod(0o700)
