"""Opening a lake on object storage: what is there, who may, and that no secret is ever shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from penstock.errors import (
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
    UnsupportedFormat,
)
from penstock.storage.buckets import Condition, EntityTag, WriteRefused
from penstock.storage.local import LocalBucket
from penstock.stores.objectstore import ObjectStore
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample
from tests.servers.s3 import S3Place
from tests.storage.hooked import HookedBucket

SECRET = "a-very-secret-secret"


def test_a_lake_that_was_not_made_is_not_found(tmp_path: Path, s3_place: S3Place) -> None:
    for url in (f"file://{tmp_path}/nothing", s3_place.url):
        with pytest.raises(LakeNotFound, match="penstock init"):
            ObjectStore(url, create=False)
    assert not (tmp_path / "nothing").exists()


def test_the_second_to_make_a_lake_finds_it(tmp_path: Path) -> None:
    first = ObjectStore(f"file://{tmp_path}", announce_wait_s=7.0)
    second = ObjectStore(f"file://{tmp_path}", announce_wait_s=9.0)
    assert first._announcements.wait_s == second._announcements.wait_s == 7.0, "all must wait as long"
    first.close()
    second.close()


def test_a_place_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidRequest, match="not empty"):
        ObjectStore(f"file://{tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "notes.txt").rename(tmp_path / "lake")
    with pytest.raises(InvalidRequest, match="is not empty, but contains no lake"):
        ObjectStore(f"file://{tmp_path}")


def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text('{"penstock": 99, "something": "new"}')
    with pytest.raises(UnsupportedFormat, match="99"):
        ObjectStore(f"file://{tmp_path}")


class Careless(LocalBucket):
    """Storage that takes conditions and does not keep them."""

    def __init__(self, root: Path, ignored: Callable[[Condition], bool]) -> None:
        super().__init__(root)
        self._ignored = ignored

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        return await super().put(key, data, None if self._ignored(condition) else condition)


@pytest.mark.parametrize(
    "ignored", [lambda condition: condition == "absent", lambda condition: isinstance(condition, EntityTag)]
)
def test_storage_that_does_not_keep_conditions_is_refused(
    ignored: Callable[[Condition], bool], tmp_path: Path
) -> None:
    bucket = Careless(tmp_path, ignored)
    with pytest.raises(InvalidRequest, match="conditional writes"):
        ObjectStore(bucket.url, bucket=bucket)
    assert not (tmp_path / "lake").exists()


def test_storage_that_no_longer_keeps_conditions_is_refused(tmp_path: Path) -> None:
    ObjectStore(f"file://{tmp_path}").close()
    bucket = Careless(tmp_path, lambda condition: condition == "absent")
    with pytest.raises(InvalidRequest, match="conditional writes"):
        ObjectStore(bucket.url, bucket=bucket, create=False)


class CheckingFirst(LocalBucket):
    """Storage that looks first and writes after, so that two can find the same."""

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        found = await self.get(key)
        if condition is not None and (found.tag if found else "absent") != condition:
            raise WriteRefused
        return await super().put(key, data)


def test_a_check_races_the_storage(tmp_path: Path) -> None:
    bucket = CheckingFirst(tmp_path)
    store = ObjectStore(bucket.url, bucket=bucket)
    assert len(store.check()) == 1
    store.close()


def test_a_check_of_real_storage_finds_nothing(s3_place: S3Place) -> None:
    store = ObjectStore(s3_place.url)
    assert store.check() == []
    store.close()


def test_wrong_keys_are_denied_and_not_shown(s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if s3_place.access_key is None:
        pytest.skip("the keys are the user's own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(Denied) as caught:
        ObjectStore(s3_place.url)
    assert_hidden(caught.value, SECRET, s3_place.access_key)


def test_nobody_at_the_address_is_unavailable(s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    nowhere = msgspec.structs.replace(s3_place, endpoint="http://127.0.0.1:9")
    with pytest.raises(Unavailable) as caught:
        ObjectStore(nowhere.url)
    assert_hidden(caught.value, SECRET)


def test_a_bucket_that_is_not_there_is_not_found(s3_place: S3Place) -> None:
    with pytest.raises(LakeNotFound, match="bucket"):
        ObjectStore(msgspec.structs.replace(s3_place, bucket="no-such-bucket").url)


def test_keys_in_the_address_are_refused_and_not_shown() -> None:
    for url in (
        f"s3://user:{SECRET}@bucket/prefix",
        f"s3://bucket/prefix?secret_access_key={SECRET}",
        f"s3://bucket/prefix?endpoint=http://x&aws_session_token={SECRET}",
    ):
        with pytest.raises(InvalidRequest) as caught:
            ObjectStore(url)
        assert_hidden(caught.value, SECRET)


def assert_hidden(error: PenstockError, *secrets: str) -> None:
    shown = f"{error} {error!r} {error.details} {error.__cause__!r}"
    assert not any(secret in shown for secret in secrets)


def test_the_address_shows_no_keys(s3_place: S3Place) -> None:
    store = ObjectStore(s3_place.url)
    for secret in s3_place.environment.values():
        assert secret not in store.url
        assert secret not in f"{store!r} {vars(store)} {vars(store._bucket)}"
    store.close()


@pytest.mark.parametrize("url", ["s3:///prefix", "gs://", "file://host/path", "file:///x?a=b", "s3://b?x=1"])
def test_addresses_that_cannot_be_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        ObjectStore(url)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidRequest, match=r"penstock\[objectstore\]"):
        ObjectStore("s3://bucket/prefix")


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}")
    store.close()
    with pytest.raises(InvalidRequest, match="closed"):
        store.reference("main")


def test_a_swap_under_way_when_the_lake_is_closed_is_unknown(tmp_path: Path) -> None:
    bucket = HookedBucket(tmp_path)
    store = ObjectStore(bucket.url, bucket=bucket)
    closing = Thread(target=store.close)
    with store.turn("main") as turn:
        bucket.at("before put rows", closing.start)
        bucket.at("after put rows", lambda: closing.join(0.2))  # it cannot end before this request does
        with pytest.raises(OutcomeUnknown):
            turn.advance({}, row("main"))
    closing.join()


def test_a_child_process_is_told_to_open_it_anew(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}")
    child = os.fork()
    if child == 0:
        try:
            store.reference("main")
        except InvalidRequest:
            store.close()
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    swap(store, row("main"))
    store.close()


def test_an_advance_takes_two_request_times(tmp_path: Path) -> None:
    """All objects at once, then the row: nothing else waits for anything else."""
    bucket = HookedBucket(tmp_path)
    store = ObjectStore(bucket.url, bucket=bucket)
    swap(store, row("main", data=b"0"))
    bucket.met.clear()
    with store.turn("main", row("main", data=b"0")) as turn:
        assert not turn.is_certain
        assert turn.advance(sample(50), row("main", data=b"1")).swapped
    requests = [(one.what, one.folder) for one in bucket.met if one.when == "before"]
    assert requests == [("put", "objects")] * 50 + [("put", "rows")]
    assert [one.when for one in bucket.met[:50]] == ["before"] * 50
    store.close()
