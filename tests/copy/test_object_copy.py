"""Objects are copied many at a time, several parts at once, and no page is said to be copied too early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore

import pytest

from penstock.errors import Damaged, Unavailable
from penstock.kernel import object_copy
from penstock.kernel.object_copy import PAGES_MAX, WORKERS, copy_objects
from penstock.model.encoding import ObjectId, hash_object
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from penstock.stores.wrapped import WrappedStore
from penstock.testing.faults import FaultyStore, Gate, Point
from penstock.testing.samples import sample
from tests.copy.lakes import QUICK, objects

OBJECTS = sample(100)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_copy, "SCAN_PAGE", 10)


@pytest.fixture
def workers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(WORKERS) as pool:
        yield pool


@pytest.fixture(params=["memory", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """With one of these, a scan has the bytes at hand."""
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "source.db")
    store.store(OBJECTS)
    yield store
    store.close()


def test_a_copy_goes_on_from_every_page_and_misses_nothing(
    source: Store, workers: ThreadPoolExecutor
) -> None:
    pages = [*copy_objects(source, MemoryStore(), b"", QUICK, workers)]
    assert sum(page.objects for page in pages) == len(OBJECTS)
    assert sum(page.size_bytes for page in pages) == sum(map(len, OBJECTS.values()))
    assert [page.token for page in pages].index(b"") == len(pages) - 1
    for taken in range(len(pages)):
        target = MemoryStore()
        token = b""
        for _, page in zip(range(taken), copy_objects(source, target, b"", QUICK, workers), strict=False):
            token = page.token
        if taken == 0 or token:
            for _ in copy_objects(source, target, token, QUICK, workers):
                pass
        assert objects(target) == OBJECTS


def test_a_page_is_handed_out_when_it_and_all_before_it_are_stored(
    source: Store, workers: ThreadPoolExecutor
) -> None:
    target = _Holding(MemoryStore(), {one.id for one in source.scan(b"", 10)[0]})
    pages = copy_objects(source, target, b"", QUICK, workers)
    first = workers.submit(lambda: next(pages))
    target.gate.wait_until_reached()
    for _ in range(PAGES_MAX - 1):
        assert target.stored.acquire(timeout=30), "the pages after it are stored meanwhile"
    assert not first.done()
    target.gate.open()
    first.result(30)
    for _ in pages:
        pass
    assert objects(target) == OBJECTS


class _Holding(WrappedStore):
    """Holds up whoever stores some objects."""

    def __init__(self, inner: Store, held: set[ObjectId]) -> None:
        super().__init__(inner)
        self._held, self.gate, self.stored = held, Gate(), Semaphore(0)

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        if objects.keys() & self._held:
            self.gate()
        super().store(objects)
        self.stored.release()


def test_a_store_that_does_not_answer_for_a_moment_is_asked_again(
    source: Store, workers: ThreadPoolExecutor
) -> None:
    faulty, target = FaultyStore(source), FaultyStore(MemoryStore())
    for store, point in ((faulty, Point.FETCH), (faulty, Point.SCAN), (target, Point.STORE)):
        store.fail(point, Unavailable("nobody answers"), times=2)
    for _ in copy_objects(faulty, target, b"", QUICK, workers):
        pass
    assert objects(target) == OBJECTS


def test_a_damaged_object_ends_the_copy_and_is_not_stored(source: Store, workers: ThreadPoolExecutor) -> None:
    damaged, target = hash_object(b"other bytes"), MemoryStore()
    source.store({damaged: b"these"})
    with pytest.raises(Damaged):
        [*copy_objects(source, target, b"", QUICK, workers)]
    workers.shutdown()
    assert damaged not in objects(target)
