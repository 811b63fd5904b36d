"""A disk without room: every caller is told so, at once, and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from penstock import IcebergTable
from penstock.cli.root import penstock as command
from penstock.errors import OutcomeUnknown, StorageFull
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake, open_lake
from penstock.lake.tokens import make_token
from penstock.metrics.memory import Metrics
from penstock.metrics.table import TRIES
from penstock.server import health, writability
from penstock.server.access import TokenGate
from penstock.server.error_redaction import RedactingCatalogue
from penstock.server.health import Readiness
from penstock.server.native import NATIVE
from penstock.stores.memory import MemoryStore
from penstock.stores.sqlite import SqliteStore
from penstock.testing.faults import FaultyStore, Point
from tests.outages.conftest import SmallDisk
from tests.server.running import local, program

LARGE = IcebergTable(metadata_location="s3://bucket/" + "x" * 20_000)
ROWS = pa.table({"x": [float(n) for n in range(5_000)]})


@pytest.fixture
def meter() -> Metrics:
    return Metrics()


@pytest.fixture
def lake(small_disk: SmallDisk, tmp_path: Path, meter: Metrics) -> Iterator[Lake]:
    """A lake whose database is on the small disk, and whose tables are not."""
    init_lake(str(small_disk.path / "lake"), warehouse=str(tmp_path / "warehouse")).close()
    with open_lake(small_disk.path / "lake", author="ada", meter=meter) as made:
        yield made


@pytest.fixture
def other_lake(small_disk: SmallDisk, tmp_path: Path) -> Iterator[Lake]:
    """A lake whose tables are on the small disk, and whose database is not."""
    init_lake(str(tmp_path / "lake"), warehouse=str(small_disk.path / "warehouse")).close()
    (small_disk.path / "warehouse").mkdir(exist_ok=True)
    with open_lake(tmp_path / "lake", author="ada") as made:
        yield made


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readiness is looked into whenever somebody asks."""
    monkeypatch.setattr(writability, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(health, "PROBE_EVERY_S", 0.0)


def tries(meter: Metrics) -> float:
    return meter.snapshot().count(TRIES)


def test_a_commit_to_a_full_database_says_so_after_one_try(
    lake: Lake, small_disk: SmallDisk, meter: Metrics
) -> None:
    small_disk.fill()
    before = tries(meter)
    with pytest.raises(
        StorageFull, match=r"penstock\.db has no room left: .*Free space there, then try again"
    ):
        lake.branch().put("a.t", LARGE)
    assert tries(meter) - before == 1
    with pytest.raises(StorageFull):
        lake.branch("dev").create()
    assert [one.name for one in lake.branches()] == ["main"], "reads go on"
    small_disk.make_room()
    lake.branch().put("a.t", LARGE)
    assert not lake.fsck().damages


def test_what_had_no_room_is_not_found_in_the_database_later(
    lake: Lake, small_disk: SmallDisk, tmp_path: Path
) -> None:
    """Not even if the process dies right then: the files are as it left them."""
    lake.branch().put("a.first", LARGE)
    small_disk.fill()
    with pytest.raises(StorageFull):
        lake.branch().put("a.t", LARGE)
    shutil.copytree(small_disk.path / "lake", tmp_path / "copy", ignore=shutil.ignore_patterns("*-shm"))
    with open_lake(tmp_path / "copy") as copy:
        assert [str(entry.key) for entry in copy.branch().tables()] == ["a.first"]
        assert not copy.fsck().damages


def test_a_database_that_may_not_grow_says_so_too(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "lake" / "penstock.db")
    with open_lake(store, author="ada") as lake:
        pages = store._run_pragma("page_count")
        store._run_pragma(f"max_page_count={pages}")
        with pytest.raises(StorageFull, match="has no room left"):
            lake.branch().put("a.t", LARGE)
        store._run_pragma(f"max_page_count={pages + 1000}")
        lake.branch().put("a.t", LARGE)


def test_rocksdb_on_a_full_disk_says_that_it_has_to_be_opened_anew(small_disk: SmallDisk) -> None:
    place = f"rocksdb://{small_disk.path / 'lake'}"
    with open_lake(place, create=True, author="ada") as lake:
        small_disk.fill()
        # It notices when it syncs, so that it cannot say what is found of this later.
        with pytest.raises((OutcomeUnknown, StorageFull), match="has no room left") as first:
            _put_many(lake)
        with pytest.raises(StorageFull, match="Free space there, then open the lake again"):
            lake.branch().put("a.next", LARGE)
        small_disk.make_room()
    with open_lake(place, author="ada") as lake:
        if key := first.value.details.get("key"):
            lake.outcome(key)
        lake.branch().put("a.next", LARGE)
        assert not lake.fsck().damages


def test_a_new_lake_on_a_full_disk_says_so(small_disk: SmallDisk) -> None:
    small_disk.fill()
    with pytest.raises(StorageFull):
        open_lake(small_disk.path / "lake", create=True)


def _put_many(lake: Lake) -> None:
    for number in range(100):
        lake.branch().put(f"a.t{number}", LARGE)


def _append(lake: Lake) -> None:
    lake.table("a.delta").append(ROWS)


def _append_lance(lake: Lake) -> None:
    lake.table("a.lance").append(ROWS)


def _put_file(lake: Lake) -> None:
    lake.table("a.files").files.put("one.bin", bytes(10_000))


@pytest.mark.parametrize("write", [_append, _append_lance, _put_file])
def test_tables_on_a_full_disk_say_so_and_take_rows_again_once_there_is_room(
    other_lake: Lake, small_disk: SmallDisk, write: Callable[[Lake], None]
) -> None:
    other_lake.create_table("a.delta", data=ROWS)
    other_lake.table("a.lance").write(ROWS, format="lance")
    other_lake.finish_background()
    head = other_lake.branch().head
    small_disk.fill()
    with pytest.raises(StorageFull, match="has no room left") as refused:
        write(other_lake)
    assert refused.value.details["part"] == "storage"
    assert other_lake.branch().head == head
    small_disk.make_room()
    write(other_lake)
    assert not other_lake.fsck().damages


def test_clients_of_a_server_are_told_at_once_and_only_administrators_where(
    lake: Lake, small_disk: SmallDisk
) -> None:
    gate = TokenGate(RedactingCatalogue(lake.catalogue))
    tokens = {}
    for name, grant in (("etl", "write"), ("root", "admin")):
        tokens[name], call = make_token(name, [grant])
        lake.catalogue.do(call)
    with local(lake.catalogue, [NATIVE], gate=gate) as server:
        small_disk.fill()
        for name, token in tokens.items():
            with open_lake(server.url, token=token) as client, pytest.raises(StorageFull) as refused:
                client.branch("dev").create()
            assert (str(small_disk.path) in refused.value.message) is (name == "root")
            assert refused.value.details["part"] == "database"
            if name == "etl":
                assert refused.value.message == (
                    "the lake's database has no room left; the server's administrator must free space there"
                )
        assert len([one for one in server.lines if one["status"] == 503]) == 2, "nobody asks again in vain"


def test_the_command_line_says_what_to_do_and_that_nothing_was_changed(
    lake: Lake, small_disk: SmallDisk
) -> None:
    small_disk.fill()
    place = str(small_disk.path / "lake")
    ran = CliRunner().invoke(command, ["--lake", place, "branch", "create", "dev"])
    assert ran.exit_code == 5
    assert "has no room left" in ran.stderr
    assert "Free space there, then try again" in ran.stderr
    assert "Nothing was changed" in ran.stderr


def test_a_server_is_not_ready_while_its_database_has_no_room(
    lake: Lake, small_disk: SmallDisk, looks_at_once: None
) -> None:
    readiness = Readiness(lake.catalogue)
    readiness.require_ready()
    small_disk.fill()
    with pytest.raises(StorageFull, match="the lake's database has no room left"):
        readiness.require_ready()
    readiness.require_ready(writes=False)
    small_disk.make_room()
    readiness.require_ready()


def test_a_server_is_not_ready_after_a_write_failed_until_one_lands(looks_at_once: None) -> None:
    """The disk of a database elsewhere cannot be looked at; its answers can."""
    store = FaultyStore(MemoryStore())
    full = StorageFull("db.internal has no room left")
    with open_lake(store, author="ada") as lake:
        readiness = Readiness(lake.catalogue)
        store.fail(Point.BEFORE_OBJECTS, full)
        store.fail(Point.STORE, full)
        readiness.require_ready()
        with pytest.raises(StorageFull) as refused:
            lake.branch().put("a.t", LARGE)
        readiness.note_error(refused.value)
        with pytest.raises(StorageFull) as told:
            readiness.require_ready()
        assert told.value.message.startswith("the lake's database has no room left")
        readiness.require_ready()


def test_a_server_is_not_ready_while_the_disk_of_its_tables_has_no_room(
    other_lake: Lake, small_disk: SmallDisk, looks_at_once: None
) -> None:
    readiness = Readiness(other_lake.catalogue)
    small_disk.fill()
    with pytest.raises(StorageFull, match="the lake's storage of tables has no room left"):
        readiness.require_ready()
    small_disk.make_room()
    readiness.require_ready()


def test_a_lake_that_can_only_be_read_needs_no_room(
    lake: Lake, small_disk: SmallDisk, looks_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(lake.catalogue, Embedded)
    monkeypatch.setattr(SqliteStore, "is_read_only", property(lambda _: True))
    small_disk.fill()
    Readiness(lake.catalogue).require_ready()


def test_no_write_is_made_while_all_is_well(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a write")

    monkeypatch.setattr(SqliteStore, "store", fail)
    monkeypatch.setattr(SqliteStore, "turn", fail)
    Readiness(lake.catalogue).require_ready()


def test_a_server_that_was_started_says_why_it_is_not_ready(
    lake: Lake, small_disk: SmallDisk, tmp_path: Path
) -> None:
    with program(tmp_path, "--lake", str(small_disk.path / "lake")) as server:
        assert server.get("/readyz").status == 200
        small_disk.fill()
        with open_lake(server.url) as client, pytest.raises(StorageFull):
            client.branch("dev").create()
        answer = server.get("/readyz")
        while answer.status == 200:  # until the look before that is a second old
            answer = server.get("/readyz")
        assert (answer.status, answer.code) == (503, "storage_full")
        assert answer.message.startswith("the lake's database has no room left")
        assert str(small_disk.path) not in answer.message
        assert server.get("/readyz?writes=false").status == 200
        assert server.get("/healthz").status == 200


def test_a_transaction_on_a_full_disk_stays_open_and_lands_once_there_is_room(
    lake: Lake, small_disk: SmallDisk
) -> None:
    with lake.transaction() as transaction:
        transaction.writes.put("a.t", LARGE)
        small_disk.fill()
        with pytest.raises(StorageFull):
            transaction.land()
        small_disk.make_room()
    assert [str(entry.key) for entry in lake.branch().tables()] == ["a.t"]
