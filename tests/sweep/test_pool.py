"""What jobs left in the pool goes, and whatever a kept commit names stays."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import penstock
from penstock.errors import PenstockError, Unavailable
from penstock.formats.files.files import File, decode_file, find_slice
from penstock.formats.files.lake import referenced_files as files_named
from penstock.formats.files.lake.calls import GetFilesTable
from penstock.formats.files.metrics import SWEPT_BYTES, SWEPT_FILES
from penstock.kernel.settings import Settings
from penstock.lake import sweep_engine
from penstock.lake.lake import Lake
from penstock.metrics.memory import Metrics
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place
from tests.sweep.pool import Pool, names, swept
from tests.sweep.tables import LateClock


@pytest.fixture
def lake(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester", clock=later) as lake:
        yield lake


@pytest.fixture
def pool(lake: Lake) -> Pool:
    return Pool(lake)


def test_files_that_nobody_committed_go_after_the_grace_time_and_not_before(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    pool.write("raw.events", "a", "day=1/b")
    left = pool.put(pool.folder(), "x", "day=1/y") | pool.put(pool.folder(), "z")
    for days in (0.0, 6.9):
        later.days = days
        told = swept(lake)
        assert (told.data_files, pool.files() & left) == (0, left)
    later.days = 8
    told = swept(lake)
    assert (told.data_files, told.data_bytes, told.kept, told.waiting) == (3, 9, 2, 0)
    assert (set(told.names), told.data_removed) == (left, True)
    assert not pool.files() & left
    assert pool.read("raw.events") == {"a": b"a", "day=1/b": b"day=1/b"}
    assert swept(lake).data_files == 0


def test_files_are_only_counted_unless_it_is_asked_to_remove_them(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    left = pool.put(pool.folder(), "x")
    pool.write("t", "a")
    later.days = 8
    for remove_data, dry_run in ((False, False), (False, True), (True, True)):
        told = swept(lake, remove_data=remove_data, dry_run=dry_run)
        assert (told.data_files, told.data_removed, told.dry_run) == (1, False, dry_run)
        assert pool.files() >= left


def test_a_file_without_a_time_goes_as_an_old_one(lake: Lake, pool: Pool, later: LateClock) -> None:
    (left,) = pool.put(pool.folder(), "x")
    pool.write("t", "a")
    os.utime(pool.root / left, (0, 0))
    later.days = 8
    assert swept(lake).names == (left,)


def test_days_within_the_grace_time_are_not_even_listed(
    lake: Lake, pool: Pool, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    listing = Place.entries

    def entries(place: Place, folder: str = "") -> Iterator[BucketEntry]:
        if place.url == lake.places.open_place(pool.url).url:
            listed.append(folder)
        return listing(place, folder)

    pool.write("t", "a")
    later.days = 10
    pool.write("t", "b")
    monkeypatch.setattr(Place, "entries", entries)
    swept(lake)
    (day,) = [one for one in listed if one != "forks/"]
    assert day == pool.folder(days=10).partition("/")[0]


def test_a_file_goes_only_where_this_lake_gives_folders_to_attempts(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    """Strangers' files stay: those of other lakes, and whatever does not fit the pattern."""
    day, fence = pool.folder().split("/")[:2]
    other = find_slice(str(uuid4()), day[:8])
    strangers = {
        "notes.txt",
        f"{day}/notes.txt",
        f"{day}/{fence}",
        f"{day}/{fence}x/part-0",
        f"{day}/{fence[:-1]}/part-0",
        f"{day}/{fence.upper()[:-1]}G/part-0",
        f"{other}/{fence}/part-0",
        f"99999999-{day[9:]}/{fence}/part-0",
        f"{day}x/{fence}/part-0",
        f"{day[:8]}/{fence}/part-0",
    }
    place = lake.places.open_place(pool.url)
    for name in strangers:
        place.put(name, b"somebody's")
    ours = pool.put(pool.folder(), "part-0")
    pool.write("t", "a")
    later.days = 30
    assert set(swept(lake).names) == ours
    assert strangers <= {entry.key for entry in place.entries()}


def test_what_a_branch_a_tag_or_an_older_commit_names_stays(lake: Lake, pool: Pool, later: LateClock) -> None:
    pool.write("t", "a", "b")
    lake.tag("v1").create()
    pool.remove("t", "a")
    lake.branch("dev").create()
    pool.write("t", "only-dev", branch="dev")
    pool.write("t", "c", replaced=("",))
    later.days = 400
    assert (swept(lake).data_files, swept(lake).kept) == (0, 4)
    assert names(lake, "t", "v1") == {"a", "b"}
    assert names(lake, "t", "main~1") == {"b"}
    assert names(lake, "t", "dev") == {"b", "only-dev"}


def test_files_go_once_the_commits_that_named_them_have_expired(tmp_path: Path, later: LateClock) -> None:
    settings = Settings(grace_s=0, nobody_writes=True)
    with penstock.open(tmp_path / "lake", create=True, settings=settings, clock=later) as lake:
        pool = Pool(lake)
        old = pool.write("t", "a", "b")
        pool.write("t", "c", replaced=("",))
        for number in range(5):
            lake.branch().put("other", IcebergTable(metadata_location=f"s3://bucket/{number}"))
        later.days = 8
        assert swept(lake).data_files == 0, "older commits still name them"
        lake.keep_history(max_commits=2)
        lake.sweep()
        assert set(swept(lake).names) == {f"{old}a", f"{old}b"}
        assert pool.read("t") == {"c": b"c"}
        assert lake.fsck().damages == ()


def test_files_of_a_dropped_table_stay_for_as_long_as_it_can_be_brought_back(
    tmp_path: Path, later: LateClock
) -> None:
    with penstock.open(
        tmp_path / "lake", create=True, settings=Settings(grace_s=0, nobody_writes=True), clock=later
    ) as lake:
        pool = Pool(lake)
        pool.write("t", *(f"p={number}/part" for number in range(200)))
        lake.branch().drop("t")
        later.days = 8
        assert (swept(lake).data_files, swept(lake).kept) == (0, 200)
        lake.revert("main", on="main")
        assert len(names(lake, "t")) == 200
        lake.branch().drop("t")
        other = IcebergTable(metadata_location="s3://bucket/1")
        lake.branch().commit([Put(Key(f"other{number}"), other) for number in range(600)])
        lake.keep_history(max_commits=1)
        gone = lake.sweep()
        assert gone.removed > 30, "its tree went, with the commits that had it and what was recent then"
        assert swept(lake).data_files == 200
        assert pool.files() == set()
        assert lake.fsck().damages == ()


def test_a_deleted_branch_keeps_its_files_for_as_long_as_it_can_be_brought_back(
    tmp_path: Path, later: LateClock
) -> None:
    settings = Settings(grace_s=10 * 86_400.0, nobody_writes=True)
    with penstock.open(tmp_path / "lake", create=True, settings=settings, clock=later) as lake:
        pool = Pool(lake)
        pool.write("t", "a")
        lake.branch("dev").create()
        folder = pool.write("t", "b", branch="dev")
        lake.branch("dev").delete()
        later.days = 8
        assert swept(lake).data_files == 0
        later.days = 11
        assert set(swept(lake).names) == {f"{folder}b"}


def test_a_file_that_several_paths_and_tables_share_stays_while_one_of_them_names_it(
    tmp_path: Path, later: LateClock
) -> None:
    with penstock.open(
        tmp_path / "lake", create=True, settings=Settings(grace_s=0, nobody_writes=True), clock=later
    ) as lake:
        pool = Pool(lake)
        lake.keep_history(max_commits=1)
        pool.write("t", "a")
        pool.copy("t", "a", "copies/a", "t")
        pool.copy("t", "a", "b", "other")
        later.days = 8
        for path in ("a", "copies/a"):
            pool.remove("t", path)
            lake.sweep()
            assert swept(lake).data_files == 0
        assert pool.read("other") == {"b": b"a"}
        pool.remove("other", "b")
        lake.sweep()
        assert swept(lake).data_files == 1


@pytest.mark.parametrize(
    "name", ["ä b/ü", "100%/%41", "a+b&c=d/#?", "k=v:w/[x]{y}~", "日本/𝒳", "a\\b", "'\"`", "_SUCCESS", "k=/x"]
)
def test_odd_names_are_known_again(lake: Lake, pool: Pool, later: LateClock, name: str) -> None:
    pool.write("t", name)
    left = pool.put(pool.folder(), name)
    later.days = 8
    assert set(swept(lake).names) == left
    assert pool.read("t") == {name: name.encode()}


def test_checksums_that_hadoop_keeps_beside_files_go_when_these_do(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    folder = pool.write("t", "day=1/part-0")
    pool.put(folder, "day=1/.part-0.crc", "day=1/.part-1.crc", "day=1/part-1")
    later.days = 8
    assert set(swept(lake).names) == {f"{folder}day=1/.part-1.crc", f"{folder}day=1/part-1"}
    assert f"{folder}day=1/.part-0.crc" in pool.files()


def test_folders_that_are_empty_afterwards_go_from_a_disk(lake: Lake, pool: Pool, later: LateClock) -> None:
    left = pool.folder()
    pool.put(left, "day=1/hour=2/x")
    kept = pool.write("t", "a")
    later.days = 8
    swept(lake, remove_data=False)
    assert (pool.root / left).exists()
    swept(lake)
    assert not (pool.root / left).exists()
    assert (pool.root / kept / "a").exists()


# -- what cannot be accounted for ---------------------------------------------------------------------------


def test_where_a_named_file_is_missing_nothing_goes_and_it_is_told(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    folder = pool.write("t", "a", "b")
    beside = pool.put(folder, "unnamed")
    elsewhere = pool.put(pool.folder(), "x")
    whole = pool.write("t", "c")
    (pool.root / folder / "a").unlink()
    (pool.root / whole / "c").unlink()
    later.days = 8
    told = lake.sweep_files(remove_data=True)
    assert told.missing == 2
    assert all(one.rstrip("/") in told.problem for one in (folder, whole))
    assert set(told.names) == elsewhere
    assert pool.files() >= beside


def test_if_history_cannot_be_read_nothing_goes(lake: Lake, pool: Pool, later: LateClock) -> None:
    pool.write("t", *(f"p={number}/part" for number in range(100)))
    left = pool.put(pool.folder(), "x")
    later.days = 8
    root = lake.do(GetFilesTable(key=Key("t"))).root
    victim = lake.kernel.objects.get(ObjectId(bytes.fromhex(root))).children[0]
    database = sqlite3.connect(Path(lake.kernel.store.url.partition("://")[2]))
    database.execute("DELETE FROM objects WHERE id = ?", (victim,))
    database.commit()
    database.close()
    with penstock.open(lake.url, clock=later) as again:
        told = again.sweep_files(remove_data=True)
        assert victim.hex() in told.problem
        assert told.data_files == 0
    assert pool.files() >= left


def test_a_job_row_that_cannot_be_read_stops_it(lake: Lake, pool: Pool, later: LateClock) -> None:
    begun = pool.begin("t")
    left = pool.put(pool.folder(), "x")
    database = sqlite3.connect(Path(lake.kernel.store.url.partition("://")[2]))
    database.execute("UPDATE refs SET data = ? WHERE name = ?", (b"?", f"@job/{begun.job.id}"))
    database.commit()
    database.close()
    later.days = 8
    told = lake.sweep_files(remove_data=True)
    assert begun.job.id in told.problem
    assert pool.files() >= left


# -- cost ---------------------------------------------------------------------------------------------------


def test_names_that_do_not_fit_into_memory_are_gone_through_in_parts(
    lake: Lake, pool: Pool, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_named, "NAMES_MAX", 10)
    monkeypatch.setattr(sweep_engine, "REMOVED_AT_ONCE", 4)
    kept = {f"{number}/{each}" for number in range(12) for each in range(3)}
    left: set[str] = set()
    for number in range(12):
        folder = pool.write("t", *(f"{number}/{each}" for each in range(3)))
        left |= pool.put(folder, "lost-a", "lost-b")
        left |= pool.put(pool.folder(), "x")
    big = pool.write("t", *(f"big/{each}" for each in range(25)))
    left |= pool.put(big, "lost")
    later.days = 8
    told = swept(lake)
    assert (told.data_files, told.kept) == (len(left), len(kept) + 25)
    assert set(told.names) == left
    assert names(lake, "t") == kept | {f"big/{each}" for each in range(25)}


def test_a_node_that_many_commits_share_is_read_once(
    lake: Lake, pool: Pool, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.write("t", *(f"p={number:03}/part" for number in range(300)))
    for number in range(20):
        pool.write("t", f"p={number:03}/more")
    lake.branch("dev").create()
    decoded = 0

    def counting(value: object) -> File:
        nonlocal decoded
        decoded += 1
        return decode_file(value)

    monkeypatch.setattr(files_named, "decode_file", counting)
    later.days = 8
    assert swept(lake).kept == 320
    assert decoded < 1200, "and not 300 for each of 21 commits"


def test_what_went_is_counted(tmp_path: Path, later: LateClock) -> None:
    meter = Metrics()
    with penstock.open(tmp_path / "lake", create=True, clock=later, meter=meter) as lake:
        pool = Pool(lake)
        pool.put(pool.folder(), "x", "yy")
        pool.write("t", "a")
        later.days = 8
        swept(lake)
    found = meter.snapshot()
    assert (found.count(SWEPT_FILES), found.count(SWEPT_BYTES)) == (2, 3)


def test_files_of_a_write_that_was_refused_go_also_where_no_table_ever_was(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    folder = pool.folder()
    left = pool.put(folder, "x")
    with pytest.raises(PenstockError):
        lake.do(pool.writing("t", folder, "x", branch="no-such-branch"))
    later.days = 6
    assert swept(lake).data_files == 0
    later.days = 8
    assert set(swept(lake).names) == left
    assert pool.files() == set()


def test_storage_that_does_not_answer_is_told_only_if_files_may_be_there(
    lake: Lake, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Place) -> Iterator[str]:
        raise Unavailable("the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr(Place, "folders", away)
        assert lake.sweep_files().problem == ""
    pool.write("t", "a")
    with monkeypatch.context() as patch:
        patch.setattr(Place, "folders", away)
        assert lake.sweep_files().problem == "the storage is away"


def test_lists_that_readers_made_for_spark_go_after_a_day(lake: Lake, pool: Pool, later: LateClock) -> None:
    pool.write("t", "a")
    place = lake.places.open_place(lake.warehouse)
    lists = [f"_penstock/reads/{one * 32}/_spark_metadata/0" for one in "ab"]
    others = ["_penstock/reads/somebody's", "_penstock/other", f"t/_penstock/reads/{'c' * 32}/0"]
    for name in (*lists, *others):
        place.put(name, b"v1")

    def there() -> list[str]:
        return [name for name in (*lists, *others) if place.size(name) is not None]

    later.days = 0.9
    swept(lake)
    assert there() == [*lists, *others]
    later.days = 1.1
    swept(lake, dry_run=True)
    assert there() == [*lists, *others]
    now_s = time.time() + 86_400
    os.utime(Path(lake.warehouse) / lists[1], (now_s, now_s))
    swept(lake, remove_data=False)
    assert there() == [lists[1], *others], "it was made again meanwhile"
    assert not (Path(lake.warehouse) / lists[0]).parent.exists()
    place.put(lists[0], b"v1")
    assert place.size(lists[0]) == 2, "a folder that is gone is made again"
