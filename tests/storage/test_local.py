"""A directory as a bucket: conditions under races, the order of keys, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidRequest
from penstock.storage.buckets import BucketEntry, EntityTag, UnansweredWrite, WriteRefused
from penstock.storage.local import UNFINISHED, LocalBucket

FAR_FUTURE_US = 2**60


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[LocalBucket]:
    opened = LocalBucket(tmp_path)
    yield opened
    opened.close()


def test_keys_are_listed_in_the_order_of_their_bytes(bucket: LocalBucket) -> None:
    keys = ["a/b", "a/b!c", "a/bc/x", "a/bc!", "a/b(c", "a/b-c", "a/@", "a/Z", "a/bc/y"]
    keys.remove("a/b")

    async def go() -> None:
        for key in keys:
            await bucket.put(key, key.encode())
        await bucket.put("b/other", b"")
        assert [entry.key async for entry in bucket.list("a")] == sorted(keys)
        for after in sorted(keys):
            found = [entry.key async for entry in bucket.list("a", after)]
            assert found == [key for key in sorted(keys) if key > after]
        assert [entry.key async for entry in bucket.list("nothing")] == []

    asyncio.run(go())


def test_of_many_folders_that_were_made_so_many_are_remembered(
    bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.local.MADE_MAX", 5)

    async def go() -> None:
        for number in range(20):
            await bucket.put(f"a/{number}/b/{number}", b"x")
        assert len(bucket._made) <= 5
        assert len([entry async for entry in bucket.list("a")]) == 20

    asyncio.run(go())


def test_of_many_writes_on_one_condition_one_is_done(bucket: LocalBucket, tmp_path: Path) -> None:
    other = LocalBucket(tmp_path)

    async def go() -> None:
        condition: EntityTag | str = "absent"
        for turn in range(20):
            tries = [
                (bucket, other)[number % 2].put("row", b"%d %d" % (turn, number), condition)  # type: ignore[arg-type]
                for number in range(8)
            ]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            won = [answer for answer in answers if isinstance(answer, EntityTag)]
            assert [type(answer) for answer in answers if not isinstance(answer, EntityTag)] == [
                WriteRefused
            ] * 7
            (condition,) = won
            found = await bucket.get("row")
            assert found is not None
            assert found.tag == condition

    asyncio.run(go())
    other.close()
    assert not list((tmp_path / UNFINISHED).iterdir())


class FailingDisk(LocalBucket):
    """A disk that takes names, and does not say that they will stay."""

    def _sync_folder(self, folder: Path) -> None:
        raise UnansweredWrite(f"{folder.name} is not on the disk")


def test_a_name_that_may_be_lost_again_is_not_said_to_be_written(tmp_path: Path) -> None:
    bucket = FailingDisk(tmp_path)
    for _ in range(2):  # also where another wrote it, who may not know either
        with pytest.raises(UnansweredWrite, match="rows is not on the disk"):
            asyncio.run(bucket.put_all([("rows/a", b""), ("rows/b", b"")]))
    with pytest.raises(UnansweredWrite):
        asyncio.run(bucket.put("rows/a", b"", "absent"))
    with pytest.raises(UnansweredWrite):
        asyncio.run(bucket.put("rows/a", b""))
    bucket.close()


def test_what_a_killed_process_left_is_cleared_away(bucket: LocalBucket, tmp_path: Path) -> None:
    asyncio.run(bucket.put("key", b"data"))
    (tmp_path / UNFINISHED / "half").write_bytes(b"da")
    assert asyncio.run(bucket.tidy(0)) == 0
    assert asyncio.run(bucket.tidy(FAR_FUTURE_US)) == 1
    assert not list((tmp_path / UNFINISHED).iterdir())
    found = asyncio.run(bucket.get("key"))
    assert found is not None
    assert found.data == b"data"


def test_a_file_in_the_way_is_named_and_trying_again_not_advised(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    bucket = LocalBucket(tmp_path / "file" / "lake")
    with pytest.raises(InvalidRequest, match=r"/file cannot be used"):
        asyncio.run(bucket.put("key", b""))
    bucket.close()


@pytest.mark.parametrize(
    "key",
    ["x" * 300, "d/" + "x" * 300, "/".join(["y" * 200] * 30), "a/" * 2500 + "z", "folder", "file/below"],
    ids=["long", "long below", "long path", "deep", "folder", "below a file"],
)
def test_a_name_that_cannot_be_is_refused_and_not_said_to_be_a_trouble_that_passes(
    bucket: LocalBucket, tmp_path: Path, key: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidRequest, match="cannot be used") as caught:
        asyncio.run(bucket.put(key, b"data"))
    assert len(str(caught.value)) < 500
    assert not list((tmp_path / UNFINISHED).iterdir())


def test_a_folder_is_no_file(bucket: LocalBucket, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert asyncio.run(bucket.get("folder")) is None
    assert asyncio.run(bucket.head("folder")) is None
    assert asyncio.run(bucket.size("folder")) is None
    assert asyncio.run(bucket.get_range("folder", 0, 1)) is None


@pytest.mark.parametrize("gone", [".", "log", "log/deep", UNFINISHED])
def test_folders_that_somebody_removed_are_made_again(tmp_path: Path, gone: str) -> None:
    root = tmp_path / "table"
    bucket = LocalBucket(root)
    asyncio.run(bucket.put("log/deep/first", b"1", "absent"))
    shutil.rmtree(root / gone)
    asyncio.run(bucket.put("log/deep/second", b"2", "absent"))
    shutil.rmtree(root / gone)
    assert asyncio.run(bucket.put_all([("log/deep/third", b"3"), ("log/deep/fourth", b"4")])) == 2
    shutil.rmtree(root / gone)
    asyncio.run(bucket.delete(["log/deep/third"]))
    asyncio.run(bucket.put("log/deep/fifth", b"5"))
    assert (root / "log/deep/fifth").read_bytes() == b"5"
    bucket.close()


def test_a_file_gets_a_second_name_unless_another_file_has_that(bucket: LocalBucket, tmp_path: Path) -> None:
    assert bucket.put_new_now("first", b"one")
    assert bucket.put_new_now("taken", b"another")
    assert bucket.link_now("first", "deep/second")
    assert bucket.link_now("first", "deep/second"), "it has that name already"
    assert not bucket.link_now("first", "taken")
    assert not bucket.link_now("nothing", "deep/third")
    (tmp_path / "first").unlink()
    assert bucket.read_now("deep/second") == b"one"
    assert bucket.read_now("taken") == b"another"
    assert bucket.read_now("deep/third") is None


def test_what_is_done_in_the_callers_thread_comes_to_the_same(bucket: LocalBucket, tmp_path: Path) -> None:
    assert bucket.put_new_now("rows/a", b"123")
    assert not bucket.put_new_now("rows/a", b"4567")
    shutil.rmtree(tmp_path / "rows")
    assert bucket.put_new_now("rows/a", b"89"), "a folder that was removed from outside is made again"
    assert (bucket.read_now("rows/a"), bucket.size_now("rows/a")) == (b"89", 2)
    assert (bucket.read_now("rows"), bucket.size_now("rows")) == (None, None)
    assert not list((tmp_path / UNFINISHED).iterdir())
    with pytest.raises(InvalidRequest):
        bucket.put_new_now("rows/a/below a file", b"")


def test_only_what_has_to_stay_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first file waits for its bytes, its name and its folder's name, and not for the bucket's own folders.
    A file that is put beside these later waits for the folder that they share."""
    waited: list[str] = []

    def noted(descriptor: int) -> None:
        waited.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()).removeprefix(str(tmp_path)))

    monkeypatch.setattr(os, "fsync", noted)
    bucket = LocalBucket(tmp_path / "table", scratch="own")
    (tmp_path / "table").mkdir()
    assert bucket.put_new_now("log/0", b"")
    assert [one for one in waited if UNFINISHED not in one] == ["/table", "/table/log"]
    assert len(waited) == 3
    assert bucket.put_new_now("log/1", b"")
    assert len(waited) == 5
    waited.clear()
    assert bucket.put_new_now("own/data/file", b"")
    assert [one for one in waited if UNFINISHED not in one] == ["/table", "/table/own", "/table/own/data"]
    bucket.close()


def test_a_disk_is_listed_and_looked_at_in_this_thread_as_by_requests(bucket: LocalBucket) -> None:
    keys = sorted(["a/0", "a/1", "a/b/2", "a/c", "b/0", "a!"])
    for key in keys:
        bucket.put_new_now(key, key.encode())

    async def listed(folder: str, after: str) -> list[BucketEntry]:
        return [entry async for entry in bucket.list(folder, after)]

    for folder in ("", "a", "a/b", "nothing"):
        for after in ("", *keys):
            there = asyncio.run(listed(folder, after))
            assert bucket.list_now(folder, after, "") == there
            for before in keys:
                kept = [entry for entry in there if entry.key < before]
                assert bucket.list_now(folder, after, before) == kept
        assert [*bucket.entries_now(folder)] == asyncio.run(listed(folder, ""))
    assert bucket.folders_now() == asyncio.run(bucket.folders()) == [UNFINISHED, "a", "b"]
    assert bucket.look_now("a/1") == asyncio.run(bucket.head("a/1"))
    assert bucket.look_now("nothing") is None
