"""Objects in memory: the cache holds no more bytes than it may, and what is in use."""

from __future__ import annotations

import pytest

import penstock
from penstock import IcebergTable, Key, Put
from penstock.kernel.objects import Objects
from penstock.kernel.settings import Settings
from penstock.lake.embedded import Embedded
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.objects import Blob
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.counting_store import CountingStore


def stored_blobs(store: Store, count: int) -> list[ObjectId]:
    data = [encode(Blob(number.to_bytes(4, "big") * 250)) for number in range(count)]
    store.store({hash_object(one): one for one in data})
    return [hash_object(one) for one in data]


def kept_bytes(objects: Objects) -> int:
    """The bytes in the store of all objects that are in memory."""
    kept = {*objects._young, *objects._old[0]}
    return sum(map(len, objects.store.fetch(kept).values()))


@pytest.mark.parametrize("max_bytes", [20_000, 64 * 1024])
def test_objects_that_are_all_in_use_are_kept_within_the_bytes_allowed(max_bytes: int) -> None:
    objects = Objects(MemoryStore(), max_bytes)
    ids = stored_blobs(objects.store, 300)
    for number, one in enumerate(ids):
        objects.get(one)
        for earlier in ids[:number]:
            objects.get_cached(earlier)
        assert kept_bytes(objects) <= max_bytes


def test_a_lake_that_grows_and_is_listed_all_the_time_keeps_what_it_may_in_memory() -> None:
    with penstock.open(MemoryStore(), settings=Settings(cache_max_bytes=100_000)) as lake:
        assert isinstance(lake.catalogue, Embedded)
        branch = lake.branch()
        branch.create_namespace("sales")
        for number in range(8):
            tables = [Key("sales", f"t{number}_{one:04}") for one in range(200)]
            branch.commit([Put(key, IcebergTable(metadata_location=f"s3://b/{key}")) for key in tables])
            for _ in range(2):
                assert sum(1 for _ in lake.at("main").entries()) == 1 + 200 * (number + 1)
            assert kept_bytes(lake.catalogue.kernel.objects) <= 100_000


def test_what_is_used_all_the_time_is_not_read_again() -> None:
    store = CountingStore(MemoryStore())
    objects = Objects(store, 64 * 1024)
    ids = stored_blobs(store, 500)
    hot, others = ids[:10], ids[10:]
    objects.get_many(hot)
    store.reset()
    for one in others:
        objects.get(one)
        for each in hot:
            assert objects.get(each)
    assert store.counts.objects_read == len(others)


def test_an_object_that_is_larger_than_the_cache_is_read() -> None:
    objects = Objects(MemoryStore(), 100)
    (one,) = stored_blobs(objects.store, 1)
    assert isinstance(objects.get(one), Blob)
    assert isinstance(objects.get(one), Blob)
