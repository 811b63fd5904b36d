"""Whether a commit to a Delta table costs more when the table is old, large, or far from published."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Lock
from time import perf_counter
from typing import Final, NamedTuple
from unittest.mock import patch

import penstock
from benchmarks.delta_tables import NEVER, TABLE, add, create, path, remove
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, at_most, table
from benchmarks.writers import write_each
from penstock import Lake, Settings
from penstock.formats.delta.lake.calls import TableCommit, WriterReads
from penstock.model.keys import Key
from penstock.storage.buckets import Bucket, BucketEntry, Condition, EntityTag, TaggedContent
from penstock.storage.local import LocalBucket
from penstock.storage.places import SCRATCH, Places
from penstock.stores import DATABASE_FILE
from penstock.stores.sqlite import SqliteStore
from penstock.testing import CountingStore

QUESTION = "Does a commit to a Delta table cost more when the table is old, large, or far from published?"

TIMES_MOST: Final = 1.5
KEY: Final = Key.parse(TABLE)
BRANCH: Final = "side"
WRITERS: Final = 16

Commit = Callable[[Lake, int], object]
"""One commit, the so-many-th of a measurement."""


class Cost(NamedTuple):
    """What one commit costs, of many in a row, its publication included."""

    what: str
    files: int
    unpublished: int
    ms: float
    requests: float
    bytes: float
    reads: float
    writes: float
    cold_ms: float
    cold_requests: int
    cold_reads: int
    cold_writes: int


def ask(workshop: Workshop) -> Findings:
    ages = [workshop.size(full, quick) for full, quick in ((10, 10), (1000, 20), (10_000, 40))]
    with workshop.place() as place:
        by_age = [_at_age(workshop, place, age) for age in ages]
    with workshop.place() as place:
        on_branch = _on_a_branch(workshop, place, ages[-1])
    removals = []
    for files in (workshop.size(1000, 50), workshop.size(100_000, 200)):
        with workshop.place() as place:
            removals.append(_removing(workshop, place, files))
    rows = [*by_age, on_branch, *removals]
    return Findings(
        tables=(
            table(
                "One commit, by one writer",
                (
                    "commit",
                    "files",
                    "unpublished",
                    "median ms",
                    "store calls",
                    "bytes stored",
                    "files read",
                    "files written",
                    "cold ms",
                    "cold store calls",
                    "cold files read",
                    "cold files written",
                ),
                (list[Cell](one) for one in rows),
                "On SQLite, durable, with a log on a local disk. Store calls and bytes are those of the "
                "lake's store. Files are the table's, publishing included: one for each version, on a branch "
                "beside the log. A listing is a read. Cold is the first commit after the lake was opened, "
                "with all that followed from it.",
            ),
        ),
        goals=tuple(_goals(by_age, on_branch, removals)),
    )


def _at_age(workshop: Workshop, place: Path, age: int) -> Cost:
    with counted(place) as (lake, _, _):
        (known,) = lake.delta.status() or (None,)
        if known is None:
            create(lake)
        grow(lake, None, 0 if known is None else known.latest_version, age)
        lake.delta.publish(TABLE)
    return _measured(
        workshop, place, f"append, version {age:,}", age, 0, lambda lake, n: _append(lake, None, age + n)
    )


def _on_a_branch(workshop: Workshop, place: Path, versions: int) -> Cost:
    with counted(place) as (lake, _, _):
        create(lake)
        lake.branch(BRANCH).create()
        grow(lake, BRANCH, 0, versions)
    what = f"append on a branch, version {versions:,}"
    return _measured(
        workshop, place, what, versions, versions, lambda lake, n: _append(lake, BRANCH, versions + n), BRANCH
    )


def _removing(workshop: Workshop, place: Path, files: int) -> Cost:
    """Files are removed one at a time by a writer who read just these, in the version that is there."""
    with counted(place) as (lake, _, _):
        create(lake)
        for first in range(0, files, 10_000):
            lake.table(TABLE).append_actions("".join(map(add, range(first, min(first + 10_000, files)))))
        lake.delta.publish(TABLE)
        lake.delta.checkpoint(TABLE)
        (status,) = lake.delta.status(TABLE)
    latest = status.latest_version

    def commit(lake: Lake, number: int) -> None:
        looked = WriterReads(files=(path(number),))
        one = TableCommit(key=KEY, actions=remove(number), read_version=latest + number, reads=looked)
        assert lake.delta.commit([one]).version == latest + number + 1

    return _measured(workshop, place, "remove of one file that was read", files, 0, commit)


def _measured(
    workshop: Workshop,
    place: Path,
    what: str,
    files: int,
    unpublished: int,
    commit: Commit,
    branch: str | None = None,
) -> Cost:
    """One commit cold, then many in a row, then all of them published."""
    count = workshop.size(200, 4)
    with counted(place) as (lake, store, storage):
        start = perf_counter()
        commit(lake, 0)
        cold_ms = (perf_counter() - start) * 1000
    cold = store.counts  # after closing, so that all is published
    with counted(place) as (lake, store, warm):
        lake.table(TABLE, branch).backfill_to_version()  # so that nothing is left for the background
        commit(lake, 1)
        lake.table(TABLE, branch).backfill_to_version()
        store.reset()
        warm.clear()
        took_ms = []
        for number in range(2, 2 + count):
            start = perf_counter()
            commit(lake, number)
            took_ms.append((perf_counter() - start) * 1000)
    counts = store.counts
    return Cost(
        what,
        files,
        unpublished,
        median(took_ms),
        counts.requests / count,
        counts.bytes_written / count,
        warm.reads / count,
        warm.writes / count,
        cold_ms,
        cold.requests,
        storage.reads,
        storage.writes,
    )


def _append(lake: Lake, branch: str | None, number: int) -> None:
    lake.table(TABLE, branch).append_actions(add(number))


def grow(lake: Lake, branch: str | None, start: int, goal: int) -> None:
    """Append until there are so many versions."""
    each, rest = divmod(goal - start, WRITERS)
    if each:
        write_each(each, WRITERS, lambda writer, n: _append(lake, branch, start + n * WRITERS + writer))
    for number in range(goal - rest, goal):
        _append(lake, branch, number)


# -- counting ------------------------------------------------------------------------------------------------


@contextmanager
def counted(place: Path) -> Iterator[tuple[Lake, CountingStore, Storage]]:
    """A lake with nothing in memory, its store and its tables' storage, which count what they are asked."""
    storage = Storage()
    home = place / "lake"
    home.mkdir(exist_ok=True)
    store = CountingStore(SqliteStore(home / DATABASE_FILE))
    settings = Settings(publish_wait_s=0.0, publish_close_s=120.0, unpublished_max=NEVER)

    def open_disk(_: Places, root: Path) -> Bucket:
        return _CountingBucket(root, storage)

    with (
        patch.object(Places, "open_disk", open_disk),
        penstock.open(store, settings=settings, catch_up=False) as lake,
    ):
        store.reset()
        yield lake, store, storage


class Storage:
    """How many files were read or looked for, and how many were written; a listing is a read."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    @property
    def reads(self) -> int:
        return self._counts["read"]

    @property
    def writes(self) -> int:
        return self._counts["write"]

    def note(self, what: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[what] += amount

    def clear(self) -> None:
        with self._lock:
            self._counts.clear()


class _CountingBucket(LocalBucket):
    """A directory whose requests are counted."""

    def __init__(self, root: Path, storage: Storage) -> None:
        super().__init__(root, scratch=SCRATCH)
        self._storage = storage

    async def get(self, key: str) -> TaggedContent | None:
        self._storage.note("read")
        return await super().get(key)

    async def head(self, key: str) -> BucketEntry | None:
        self._storage.note("read")
        return await super().head(key)

    async def size(self, key: str) -> int | None:
        self._storage.note("read")
        return await super().size(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        self._storage.note("read")
        return await super().get_range(key, start, length)

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        self._storage.note("write")
        return await super().put(key, data, condition)

    async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        self._storage.note("write", len(items))
        return await super().put_all(items)

    async def list(self, folder: str, after: str = "") -> AsyncIterator[BucketEntry]:
        self._storage.note("read")
        async for entry in super().list(folder, after):
            yield entry


# -- what came of it -----------------------------------------------------------------------------------------


def _goals(by_age: list[Cost], on_branch: Cost, removals: list[Cost]) -> Iterator[Goal]:
    young, old = by_age[0], by_age[-1]
    few, many = removals
    yield at_most(f"time of {old.what} : of {young.what}", old.ms / young.ms, TIMES_MOST, "times")
    yield at_most(
        f"bytes stored by {old.what} : by {young.what}", old.bytes / young.bytes, TIMES_MOST, "times"
    )
    yield at_most(f"time of {on_branch.what} : of {young.what}", on_branch.ms / young.ms, TIMES_MOST, "times")
    yield at_most(
        f"bytes stored by {on_branch.what} : by {young.what}",
        on_branch.bytes / young.bytes,
        TIMES_MOST,
        "times",
    )
    ratio = many.ms / few.ms
    yield at_most(
        f"time to remove one of {many.files:,} files : of {few.files:,}", ratio, TIMES_MOST, "times"
    )
