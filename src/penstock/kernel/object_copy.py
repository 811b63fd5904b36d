"""Copying all objects of a store to another one, page by page of a scan, checked on the way.

What it costs is mostly per object, so much goes by one call: some thousands of objects are read, checked and
stored together, and while one such part is being stored, the next ones are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from typing import Final, NamedTuple

from penstock.kernel.objects import check_bytes
from penstock.kernel.settings import Settings
from penstock.kernel.time_limits import retry_reads
from penstock.model.encoding import ObjectId
from penstock.stores.port import Store, StoredObject

SCAN_PAGE: Final = 5000
CHUNK_MAX_BYTES: Final = 4 * 1024 * 1024
"""Of objects that one worker holds in memory, unless the target takes more by one call."""
WORKERS: Final = 8
PAGES_MAX: Final = 3
"""How many pages are under way at once."""


class CopiedPage(NamedTuple):
    """All objects up to a token of the scan are copied; the page has added so much."""

    token: bytes
    """Where to go on; empty after the last page."""
    objects: int
    size_bytes: int


def copy_objects(
    source: Store, target: Store, token: bytes, settings: Settings, workers: Executor
) -> Iterator[CopiedPage]:
    """Copy what a scan of the source finds from a token on. Pages are handed out in their order, each when it
    is stored; so its token may be noted, and whoever goes on from there misses nothing.

    What a sweep has removed since it was scanned is left out. ``Damaged`` if the source is.
    """

    def store_objects(data_by_id: dict[ObjectId, bytes]) -> tuple[int, int]:
        for object_id, data in data_by_id.items():
            check_bytes(object_id, data)
        if data_by_id:
            retry_reads(settings, partial(target.store, data_by_id))
        return len(data_by_id), sum(map(len, data_by_id.values()))

    def fetch_and_store(chunk: list[StoredObject]) -> tuple[int, int]:
        return store_objects(
            retry_reads(settings, partial(whole.fetch, [stored_object.id for stored_object in chunk]))
        )

    whole, size_max = source.uncached, max(target.batch_max_bytes, CHUNK_MAX_BYTES)
    page_max = SCAN_PAGE * size_max // CHUNK_MAX_BYTES
    running: deque[tuple[bytes, list[Future[tuple[int, int]]]]] = deque()
    is_scanned = False
    try:
        while running or not is_scanned:
            if not is_scanned:
                data_by_id, others, token = retry_reads(
                    settings, partial(whole.scan_data, token, page_max, size_max)
                )
                parts = [workers.submit(store_objects, data_by_id)] if data_by_id else []
                running.append(
                    (token, parts + [workers.submit(fetch_and_store, chunk) for chunk in split_page(others)])
                )
                is_scanned = not token
            if is_scanned or len(running) == PAGES_MAX:
                reached, parts = running.popleft()
                carried = [part.result() for part in parts]
                yield CopiedPage(
                    reached, sum(count for count, _ in carried), sum(size for _, size in carried)
                )
    finally:
        for _, parts in running:
            for part in parts:
                part.cancel()


def count_objects(store: Store, settings: Settings) -> int:
    """How many objects a store has."""
    count, token = 0, b""
    while True:
        page, token = retry_reads(settings, partial(store.scan, token, SCAN_PAGE))
        count += len(page)
        if not token:
            return count


def split_page(page: Iterable[StoredObject]) -> Iterator[list[StoredObject]]:
    """A page in parts that a worker can hold in memory."""
    chunk: list[StoredObject] = []
    size = 0
    for stored_object in page:
        if chunk and (len(chunk) >= SCAN_PAGE or size + stored_object.size > CHUNK_MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(stored_object)
        size += stored_object.size
    if chunk:
        yield chunk
