"""A directory as a bucket: conditions under races, the order of keys, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Denied, Unavailable
from penstock.storage.buckets import Refused, Tag, Unanswered
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


def test_of_many_writes_on_one_condition_one_is_done(bucket: LocalBucket, tmp_path: Path) -> None:
    other = LocalBucket(tmp_path)

    async def go() -> None:
        condition: Tag | str = "absent"
        for turn in range(20):
            tries = [
                (bucket, other)[number % 2].put("row", b"%d %d" % (turn, number), condition)  # type: ignore[arg-type]
                for number in range(8)
            ]
            answers = await asyncio.gather(*tries, return_exceptions=True)
            won = [answer for answer in answers if isinstance(answer, Tag)]
            assert [type(answer) for answer in answers if not isinstance(answer, Tag)] == [Refused] * 7
            (condition,) = won
            found = await bucket.get("row")
            assert found is not None
            assert found.tag == condition

    asyncio.run(go())
    other.close()
    assert not list((tmp_path / UNFINISHED).iterdir())


class FailingDisk(LocalBucket):
    """A disk that takes names, and does not say that they will stay."""

    def _settle(self, folder: Path) -> None:
        raise Unanswered(f"{folder.name} is not on the disk")


def test_a_name_that_may_be_lost_again_is_not_said_to_be_written(tmp_path: Path) -> None:
    bucket = FailingDisk(tmp_path)
    for _ in range(2):  # also where another wrote it, who may not know either
        with pytest.raises(Unanswered, match="rows is not on the disk"):
            asyncio.run(bucket.put_all([("rows/a", b""), ("rows/b", b"")]))
    with pytest.raises(Unanswered):
        asyncio.run(bucket.put("rows/a", b"", "absent"))
    with pytest.raises(Unanswered):
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


def test_a_directory_that_cannot_be_used_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    bucket = LocalBucket(tmp_path / "file" / "lake")
    with pytest.raises((Denied, Unavailable), match="cannot be used"):
        asyncio.run(bucket.put("key", b""))
    bucket.close()
