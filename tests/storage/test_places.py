"""Places: files of tables by name, the same on a disk and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from penstock.errors import InvalidRequest, LocationRefused, OutcomeUnknown
from penstock.storage.buckets import Bucket, Condition, EntityTag, UnansweredWrite
from penstock.storage.local import LocalBucket
from penstock.storage.places import Place, Places
from penstock.storage.request_loop import RequestLoop
from tests.servers.s3 import S3Place


@pytest.fixture
def places() -> Iterator[Places]:
    opened = Places()
    yield opened
    opened.close()


def test_of_many_places_so_many_are_kept_and_all_can_be_used(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.places.PLACES_MAX", 10)
    opened = [places.open_place(str(tmp_path / f"table{number}")) for number in range(35)]
    assert len(places._places) <= 10
    assert places._shared == {}
    for number, place in enumerate(opened):
        place.put("a", b"%d" % number)
        assert not places.open_place(place.url).create("a", b"other"), (
            "it is the same folder, whoever opened it"
        )
        assert [*places.open_place(place.url).read(["a"])] == [b"%d" % number]
    assert places.open_place(opened[-1].url) is places.open_place(opened[-1].url)


def test_a_disk_is_asked_by_no_other_thread(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places.open_place(str(tmp_path / "table"))
    monkeypatch.setattr(RequestLoop, "run_coroutine", None)
    assert place.create("log/0", b"0")
    assert [*place.read(["log/0", "log/1"])] == [b"0", None]
    entry = place.look("log/0")
    assert entry is not None
    assert (entry.key, entry.size, place.size("log/0"), place.look("log/1")) == ("log/0", 1, 1, None)
    assert names(place) == names(place, "log", "log/", "log/1") == ["log/0"]
    assert [one.key for one in place.entries("log")] == ["log/0"]
    assert [*place.folders()] == ["_penstock", "log"]


def in_bucket(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> str:
    """The location of a table in a bucket; how to get there is in the environment."""
    if s3.endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_REGION", s3.region)
    return f"s3://{s3.bucket}/{s3.prefix}/sales/orders%20of%20today"


@pytest.fixture(params=["disk", "bucket"])
def place(
    request: pytest.FixtureRequest, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    if request.param == "disk":
        return places.open_place(str(tmp_path / "orders"))
    return places.open_place(in_bucket(request.getfixturevalue("s3_place"), monkeypatch))


def names(place: Place, folder: str = "", after: str = "", before: str = "") -> list[str]:
    return [entry.key for entry in place.list(folder, after, before)]


def test_a_file_is_created_once_and_read_in_whole_or_in_part(place: Place) -> None:
    assert place.create("_delta_log/0.json", b"0123456789")
    assert not place.create("_delta_log/0.json", b"another")
    assert list(place.read(["_delta_log/0.json", "_delta_log/1.json"])) == [b"0123456789", None]
    assert place.read_range("_delta_log/0.json", 2, 3) == b"234"
    assert place.read_range("_delta_log/0.json", 8, 100) == b"89"
    assert place.read_range("_delta_log/0.json", 10, 5) == b""
    assert place.read_range("_delta_log/0.json", 3, 0) == b""
    assert place.read_range("_delta_log/1.json", 0, 5) is None
    assert place.read_range("_delta_log/1.json", 0, 0) is None
    assert place.size("_delta_log/0.json") == 10
    assert place.size("_delta_log/1.json") is None
    assert place.sizes(["_delta_log/1.json", "_delta_log/0.json"]) == [None, 10]


def test_names_are_those_below_the_place(place: Place) -> None:
    written = ["_delta_log/0", "_delta_log/1", "_delta_log/_commits/2", "a b=c%20d.parquet", "ä"]
    assert place.create_each([(name, b"x") for name in written]) == [True] * len(written)
    assert names(place) == sorted(written, key=str.encode)
    assert names(place, "_delta_log") == names(place, "_delta_log/") == written[:3]
    assert names(place, "_delta_log", after="_delta_log/0") == written[1:3]
    assert names(place, "_delta_log", before="_delta_log/:") == written[:2]
    assert list(place.read(written)) == [b"x"] * len(written)
    found = place.look("_delta_log/1")
    assert found is not None
    assert (found.key, found.size) == ("_delta_log/1", 1)
    place.delete([*written, "nothing"])
    assert names(place) == []
    place.delete([])


def test_of_several_files_those_before_one_that_exists_are_created(place: Place) -> None:
    place.create("log/3", b"theirs")
    assert place.create_all([(f"log/{number}", b"ours") for number in range(6)]) == 3
    assert names(place, "log") == ["log/0", "log/1", "log/2", "log/3"]
    assert list(place.read(["log/2", "log/3"])) == [b"ours", b"theirs"]
    assert place.create_all([]) == 0
    assert place.create_each([]) == []
    assert place.create_each([("log/3", b""), ("log/4", b"")]) == [False, True]


def test_a_file_that_may_be_replaced_is_replaced(place: Place) -> None:
    place.put("_delta_log/_last_checkpoint", b"old")
    place.put("_delta_log/_last_checkpoint", b"new")
    assert list(place.read(["_delta_log/_last_checkpoint"])) == [b"new"]


def test_of_many_who_create_the_same_files_each_file_is_created_by_one(place: Place) -> None:
    start = Barrier(4)
    wanted = [f"log/{number:02}" for number in range(20)]

    def create(writer: int) -> list[str]:
        start.wait()
        mine, data = [], b"%d" % writer
        for first in range(0, len(wanted), 5):
            part = wanted[first : first + 5]
            mine += part[: place.create_all([(name, data) for name in part])]
        return mine

    with ThreadPoolExecutor(4) as threads:
        created = list(threads.map(create, range(4)))
    assert len(created) == 4
    for writer, mine in enumerate(created):
        assert list(place.read(mine)) == [b"%d" % writer] * len(mine)
    everyone = [name for mine in created for name in mine]
    assert len(everyone) == len(set(everyone))
    assert names(place, "log") == sorted(everyone)


def test_storage_that_keeps_conditions_is_found_to(place: Place) -> None:
    assert place.keeps_conditions
    assert names(place) == []


def test_tables_of_one_bucket_share_its_connections(
    places: Places, s3_place: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = in_bucket(s3_place, monkeypatch)
    one, other = places.open_place(where), places.open_place(f"{where}/deeper")
    assert one._bucket is other._bucket
    assert places.open_place(f"{where}/") is one
    other.create("file", b"")
    assert names(one) == ["deeper/file"]


def test_a_table_on_a_disk_has_no_litter_in_its_root(places: Places, tmp_path: Path) -> None:
    place = places.open_place(f"file://{tmp_path}")
    place.create("_delta_log/0.json", b"")
    place.put("_delta_log/_last_checkpoint", b"")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["_delta_log", "_penstock"]
    assert names(place) == ["_delta_log/0.json", "_delta_log/_last_checkpoint"]
    assert list((tmp_path / "_penstock" / ".unfinished").iterdir()) == []


def test_what_a_killed_process_left_in_a_table_is_cleared_away(places: Places, tmp_path: Path) -> None:
    place = places.open_place(str(tmp_path))
    place.create("_delta_log/0.json", b"{}")
    half = tmp_path / "_penstock" / ".unfinished" / "half"
    half.write_bytes(b"{")
    assert place.tidy(0) == 0
    assert place.tidy(2**60) == 1
    assert not half.exists()
    assert names(place) == ["_delta_log/0.json"]


def test_reading_leaves_nothing_on_a_disk(places: Places, tmp_path: Path) -> None:
    place = places.open_place(str(tmp_path))
    assert (place.size("a"), place.read_range("a", 0, 1), list(place.read(["a"]))) == (None, None, [None])
    assert place.keeps_conditions
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_somebody_removed_is_made_again(places: Places, tmp_path: Path) -> None:
    place = places.open_place(str(tmp_path / "table"))
    place.create("_delta_log/0.json", b"")
    for file in sorted((tmp_path / "table").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    assert place.create("_delta_log/0.json", b"")


def test_a_file_in_the_way_of_a_folder_is_no_file_that_exists(places: Places, tmp_path: Path) -> None:
    (tmp_path / "_delta_log").write_bytes(b"in the way")
    with pytest.raises(InvalidRequest, match="_delta_log cannot be used"):
        places.open_place(str(tmp_path)).create_all([("_delta_log/0.json", b"")])


@pytest.mark.parametrize("location", ["https://example.com/t", "hdfs://host/t", "memory://x/t", "s3a://b/t"])
def test_a_scheme_that_tables_cannot_be_at_is_refused(places: Places, location: str) -> None:
    with pytest.raises(InvalidRequest, match=r"local disk, or at s3://, gs://, az://"):
        places.open_place(location)


@pytest.mark.parametrize("location", ["s3://169.254.169.254/latest", "s3://bucket/../x", "file://host/x", ""])
def test_a_location_that_leads_astray_is_refused(places: Places, location: str) -> None:
    with pytest.raises(LocationRefused):
        places.open_place(location)


class CarelessBucket(LocalBucket):
    """Storage that takes every write."""

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        return await super().put(key, data)


class SilentBucket(LocalBucket):
    """Storage that does what it is asked, and does not say so."""

    async def put_all(self, items: object) -> int:
        await super().put_all(items)  # type: ignore[arg-type]
        raise UnansweredWrite("the connection was lost")


class Disks(Places):
    """Places whose disks behave like a bucket of a kind."""

    def __init__(self, kind: type[LocalBucket]) -> None:
        super().__init__()
        self.kind = kind

    def open_bucket(self, scheme: str, bucket: str) -> Bucket:
        return self.kind(f"{scheme}/{bucket}")


@pytest.mark.parametrize(("kind", "keeps"), [(LocalBucket, True), (CarelessBucket, False)])
def test_a_bucket_is_tried_out_once(
    kind: type[LocalBucket], keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = Disks(kind)
    place = places.open_place("s3://bucket/table")
    assert place.keeps_conditions is keeps
    (tmp_path / "s3" / "bucket" / "table" / "_penstock" / "probe").rmdir()
    assert places.open_place("s3://bucket/other").keeps_conditions is keeps
    assert not (tmp_path / "s3" / "bucket" / "other").exists()
    places.close()


def test_an_answer_that_is_lost_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = Disks(SilentBucket)
    place = places.open_place("s3://bucket/table")
    with pytest.raises(OutcomeUnknown, match="it is not known whether 'a' was written to s3://bucket/table"):
        place.create_all([("a", b"1"), ("b", b"2")])
    assert list(place.read(["a", "b"])) == [b"1", b"2"]
    places.close()
