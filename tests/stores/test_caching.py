"""The caching store keeps every promise of the port, and keeps only what can never change."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from threading import Event, Thread

import pytest

from penstock.metrics.memory import Metrics
from penstock.metrics.table import CACHE_BYTES, CACHE_OBJECTS
from penstock.model.encoding import ObjectId, hash_object
from penstock.stores.caching import ENTRY_BYTES, CachingStore
from penstock.stores.memory import MemoryStore
from penstock.stores.wrapped import WrappedStore
from penstock.testing import CountingStore, FaultyStore, StoreContract
from penstock.testing.drill import Drill
from penstock.testing.samples import OpenStore, row, scan_all
from penstock.testing.threads import JOIN_MAX_S, at_once

MAX_BYTES = 1_000_000


class TestCachingStore(StoreContract):
    """Every handle has a cache of its own, as every process has, and it is so small that objects are kept,
    dropped and read anew all the time. What lies behind it is the contract of what lies there."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        data = MemoryStore()
        return lambda: CachingStore(data, 8 * ENTRY_BYTES)


def lasting(count: int, label: str = "object", size: int = 100) -> dict[ObjectId, bytes]:
    """Objects that are named by their bytes."""
    made = [f"{label} {number}".encode().ljust(size, b".") for number in range(count)]
    return {hash_object(data): data for data in made}


@pytest.fixture
def counted() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
def cache(counted: CountingStore) -> CachingStore:
    return CachingStore(counted, MAX_BYTES)


def test_only_what_is_missing_is_asked_for(cache: CachingStore, counted: CountingStore) -> None:
    objects = lasting(10)
    cache.store(objects)
    first, *_ = objects
    assert cache.fetch([first]) == {first: objects[first]}
    assert (cache.hits, cache.misses) == (0, 1)
    assert cache.fetch(list(objects)) == objects
    assert counted.counts.objects_read == 10
    before = counted.counts.requests
    assert cache.fetch([*objects, *objects]) == objects
    assert counted.counts.requests == before
    assert (cache.hits, cache.misses) == (11, 10)


def test_what_does_not_exist_is_asked_for_every_time(cache: CachingStore) -> None:
    objects = lasting(1)
    assert cache.fetch(list(objects)) == {}
    cache.inner.store(objects)
    assert cache.fetch(list(objects)) == objects


def test_an_object_that_is_not_named_by_its_bytes_is_not_kept(cache: CachingStore) -> None:
    """K7: a receipt. Swept, it may be written anew with other bytes."""
    receipt = hash_object(b"of a key")
    cache.store({receipt: b"first"})
    assert cache.fetch([receipt]) == {receipt: b"first"}
    cache.inner.delete(scan_all(cache.inner))
    cache.inner.store({receipt: b"second"})
    assert cache.fetch([receipt]) == {receipt: b"second"}
    assert cache.kept_bytes == 0


def test_every_object_is_stored_every_time(cache: CachingStore, counted: CountingStore) -> None:
    """K9: storing it again is what keeps the sweep away."""
    objects = lasting(3)
    cache.store(objects)
    cache.fetch(list(objects))
    cache.store(objects)
    with cache.turn("main") as turn:
        assert turn.advance(objects, row("main")).swapped
    assert counted.counts.objects_written == 9


def test_the_least_recently_used_are_dropped_first(counted: CountingStore) -> None:
    a, b, c, d = objects = lasting(4)
    cache = CachingStore(counted, 3 * (100 + ENTRY_BYTES))
    cache.store(objects)
    cache.fetch([a])
    cache.fetch([b])
    cache.fetch([c])
    cache.fetch([a])
    cache.fetch([d])
    assert cache.kept_bytes == cache.max_bytes
    hits = cache.hits
    cache.fetch([a])
    cache.fetch([c])
    cache.fetch([d])
    assert cache.hits == hits + 3
    cache.fetch([b])
    assert cache.hits == hits + 3


def test_an_object_larger_than_the_cache_is_not_kept(counted: CountingStore) -> None:
    cache = CachingStore(counted, 1000)
    large = lasting(1, size=5000)
    cache.store(large)
    assert cache.fetch(list(large)) == large
    assert cache.kept_bytes == 0


def test_what_is_deleted_or_erased_is_forgotten(cache: CachingStore) -> None:
    objects = lasting(5)
    cache.store(objects)
    cache.fetch(list(objects))
    doomed = scan_all(cache)[:2]
    assert cache.delete(doomed) == 2
    assert cache.fetch([one.id for one in doomed]) == {}
    assert len(cache.fetch(list(objects))) == 3
    cache.erase()
    assert cache.fetch(list(objects)) == {}
    assert cache.kept_bytes == 0


class _Slow(WrappedStore):
    """Its fetch has read the objects, and waits before it answers."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.has_read, self.may_answer = Event(), Event()

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        found = super().fetch(ids)
        self.has_read.set()
        assert self.may_answer.wait(JOIN_MAX_S)
        return found


def test_what_is_deleted_while_it_is_fetched_is_not_kept() -> None:
    slow, objects = _Slow(), lasting(1)
    cache = CachingStore(slow, MAX_BYTES)
    cache.store(objects)
    answers: list[dict[ObjectId, bytes]] = []
    reader = Thread(target=lambda: answers.append(cache.fetch(list(objects))))
    reader.start()
    assert slow.has_read.wait(JOIN_MAX_S)
    assert cache.delete(scan_all(cache)) == 1
    slow.may_answer.set()
    reader.join(JOIN_MAX_S)
    assert answers == [objects]
    assert cache.fetch(list(objects)) == {}


def test_what_another_process_deleted_is_seen_by_asking_past_the_cache() -> None:
    data, objects = MemoryStore(), lasting(1)
    cache = CachingStore(data, MAX_BYTES)
    cache.store(objects)
    cache.fetch(list(objects))
    data.delete(scan_all(data))
    assert cache.fetch(list(objects)) == objects
    assert cache.uncached.fetch(list(objects)) == {}


def test_asking_past_the_cache_passes_every_cache_and_nothing_else() -> None:
    data = FaultyStore(MemoryStore())
    assert data.uncached is data
    assert CachingStore(data, 1).uncached is data
    assert CountingStore(CachingStore(CachingStore(data, 1), 1)).uncached is data


def test_threads_share_it_and_it_stays_within_its_bound() -> None:
    data, objects = MemoryStore(), lasting(500)
    data.store(objects)
    cache, ids = CachingStore(data, 100 * (100 + ENTRY_BYTES)), list(objects)

    def read(start: int) -> None:
        for number in range(400):
            chosen = [ids[(start * 131 + number * 7 + step * 3) % 500] for step in range(10)]
            assert cache.fetch(chosen) == {one: objects[one] for one in chosen}
            assert cache.kept_bytes <= cache.max_bytes

    at_once(*(partial(read, start) for start in range(4)))
    assert cache.hits + cache.misses == 4 * 400 * 10
    assert cache.kept_bytes == sum(len(data) + ENTRY_BYTES for data in cache._kept.values())


def test_it_tells_a_meter_about_hits_and_misses() -> None:
    metrics, objects = Metrics(), lasting(4)
    cache = CachingStore(MemoryStore(), MAX_BYTES, metrics)
    cache.store(objects)
    cache.fetch(list(objects))
    cache.fetch(list(objects))
    now = metrics.snapshot()
    assert now.count(CACHE_OBJECTS, result="hit") == 4
    assert now.count(CACHE_OBJECTS, result="miss") == 4
    assert now.gauge(CACHE_BYTES) == cache.kept_bytes == 4 * (100 + ENTRY_BYTES)


@pytest.mark.parametrize("max_bytes", [2000, MAX_BYTES])
def test_a_kernel_behind_a_cache_leaves_one_history(max_bytes: int) -> None:
    found = Drill(lambda store: CachingStore(store, max_bytes)).run()
    assert found.kinds == set(), str(found)
    assert found.accepted > 60
