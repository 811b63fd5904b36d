"""Files of tables in buckets of a real S3 server."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import CommitConflict, Damaged, InvalidRequest
from penstock.formats.files.lake import pending_changes as files_pending_changes
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.storage import remote
from penstock.testing.threads import at_once
from tests.servers.s3 import S3Place

KEY = Key("raw", "events")


@pytest.fixture(params=["s3_place", pytest.param("moto_place", marks=pytest.mark.verify)])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    place: S3Place = request.getfixturevalue(request.param)
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.endpoint or "")
    monkeypatch.setenv("AWS_REGION", place.region)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    warehouse = f"s3://{place.bucket}/{place.prefix}/wh"
    with penstock.init(tmp_path / "lake", warehouse=warehouse) as lake:
        yield lake


def stored(lake: Lake) -> list[str]:
    return [one.key for one in lake.places.open_place(f"{lake.warehouse}/_penstock/data/").entries()]


def test_files_are_put_read_listed_and_removed(lake: Lake, tmp_path: Path) -> None:
    files = lake.table(KEY).files
    odd = {"day=1/a b.csv": b"1", "ü/%20#?&+": b"22", "a": b"", "a/b": b"4"}
    files.write(odd)
    assert {one.path: files.read(one.path) for one in files.walk()} == odd
    assert files.stat("day=1/a b.csv").address.startswith(f"{lake.warehouse}/_penstock/data/")
    assert [one.path for one in files.folder()] == ["a", "a/", "day=1/", "ü/"]
    files.move("a/b", "c")
    files.delete("a")
    assert (files.read("c"), len(stored(lake))) == (b"4", 4)
    assert files.export(tmp_path / "out").files == 3
    with pytest.raises(CommitConflict):
        files.put("c", b"5", if_absent=True)
    assert len(stored(lake)) == 4


def test_a_large_file_is_sent_in_parts(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_pending_changes, "PIECE_BYTES", 3 * 1024 * 1024)
    monkeypatch.setattr(remote, "PART_BYTES", 5 * 1024 * 1024)
    data = bytes(range(256)) * 4096 * 12
    (tmp_path / "big").write_bytes(data)
    files = lake.table(KEY).files
    files.put("big", tmp_path / "big")
    entry = files.stat("big")
    assert entry.size == len(data)
    with files.open("big") as file:
        assert (file.read(4), file.seek(-5, io.SEEK_END), file.read()) == (data[:4], len(data) - 5, data[-5:])
    seam = 5 * 1024 * 1024 - 3
    assert files.read("big", seam, 6) == data[seam : seam + 6]
    assert files.export(tmp_path / "out").size == len(data)  # which compares the hash of all bytes


def test_a_stream_that_breaks_off_leaves_no_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= 2000:
                raise OSError(5, "Input/output error")
            return super().read(size)

    monkeypatch.setattr(files_pending_changes, "PIECE_BYTES", 1000)
    with pytest.raises(InvalidRequest, match="cannot be read: Input/output error"):
        lake.table(KEY).files.put("x", Broken(bytes(5000)))
    assert (stored(lake), lake.log()) == ([], [])


def test_of_many_who_create_a_file_one_does(lake: Lake) -> None:
    def put() -> bool:
        try:
            lake.table(KEY).files.put("x", b"1", if_absent=True)
        except CommitConflict:
            return False
        return True

    assert sorted(at_once(*[put] * 4)) == [False, False, False, True]
    assert len(stored(lake)) == 1


def test_a_file_that_the_bucket_lost_is_told_as_damage(lake: Lake) -> None:
    files = lake.table(KEY).files
    files.put("x", b"1")
    lake.places.open_place(f"{lake.warehouse}/_penstock/data/").delete(stored(lake))
    with pytest.raises(Damaged):
        files.read("x")
