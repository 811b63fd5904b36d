"""Lakes to measure on: made once a run, on a real disk, and copied for whoever needs one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import penstock
from benchmarks.counting import KindCountingStore
from benchmarks.writers import write_each
from penstock import IcebergTable, Key, Put, Settings
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.references import Kind
from penstock.stores import DATABASE_FILE
from penstock.stores.memory import MemoryStore
from penstock.stores.sqlite import SqliteStore

MAIN: Final = "main"
META: Final = CommitMeta(message="hourly load", authors=("etl",))
LOAD_CHUNK: Final = 50_000
TABLES_PER_SCHEMA: Final = 1000
HISTORY_THREADS: Final = 16


def key(index: int) -> Key:
    """The ``index``-th table; neighbours in number are neighbours in the tree."""
    return Key(f"schema{index // TABLES_PER_SCHEMA:04}", f"table{index:07}")


def put(index: int, version: int) -> Put:
    """A new version of a table: the kind of content that a catalogue holds, some 130 bytes."""
    name = key(index)
    location = f"s3://lake/warehouse/{name[0]}/{name[1]}/metadata/{version:05}.metadata.json"
    return Put(name, IcebergTable(metadata_location=location, snapshot_id=version))


class RandomPuts:
    """New versions of random tables, never the same twice; for many threads at once."""

    def __init__(self, tables: int, seed: int = 0) -> None:
        self._tables, self._random, self._versions = tables, Random(seed), count(1)

    def __call__(self) -> Put:
        return put(self._random.randrange(self._tables), next(self._versions))


class Workshop:
    """A directory for the lakes of one run, and the sizes of the questions: real, or quick.

    ``rows`` is how many the tables have that Spark changes, if that is given.
    """

    def __init__(self, directory: Path, quick: bool, rows: int | None = None) -> None:
        self.directory, self.quick, self.rows = directory, quick, rows
        self._made: dict[str, Path] = {}
        self._numbers = count()

    def size(self, full: int, quick: int) -> int:
        """How many of something: the real number, or few to see that it works."""
        return quick if self.quick else full

    def keys(self, tables: int) -> Path:
        """A lake with so many tables; for reading, or to be copied."""
        return self._once(f"{tables:,} keys", lambda kernel: load(kernel, tables))

    def history(self, commits: int, merge_every: int | None = None) -> Path:
        """A lake with so many commits on main, each of one key, with a merge at some of them."""
        name = f"{commits:,} commits" + (f", a merge every {merge_every:,}" if merge_every else "")
        return self._once(name, lambda kernel: make_history(kernel, commits, merge_every))

    def tags(self, tags: int, branches: int) -> Path:
        """A lake with so many tags and branches, all at one commit."""
        return self._once(f"{tags:,} tags, {branches} branches", lambda k: make_references(k, tags, branches))

    def large(self, tables: int, branches: int, commits: int) -> Path:
        """A lake with so many tables and commits on main, and branches that forked all along its history."""
        name = f"{tables:,} tables, {branches:,} branches, {commits:,} commits"
        return self._once(name, lambda kernel: make_large(kernel, tables, branches, commits))

    def _once(self, what: str, make: Callable[[Kernel], None]) -> Path:
        if what not in self._made:
            print(f"making a lake: {what}", file=sys.stderr, flush=True)
            place = self.directory / f"lake{next(self._numbers)}"
            penstock.init(place).close()
            # Nobody relies on it yet; what is measured is opened anew.
            kernel = Kernel(SqliteStore(place / DATABASE_FILE, synchronous="OFF"))
            try:
                make(kernel)
            finally:
                kernel.close()
            self._made[what] = place
        return self._made[what]

    @contextmanager
    def copy(self, lake: Path) -> Iterator[Path]:
        """A copy of a lake to write to, on the disk before the measuring begins."""
        place = self.directory / f"copy{next(self._numbers)}"
        shutil.copytree(lake, place)
        with (place / DATABASE_FILE).open("rb+") as file:
            os.fsync(file.fileno())
        try:
            yield place
        finally:
            shutil.rmtree(place)

    @contextmanager
    def place(self) -> Iterator[Path]:
        """An empty directory, removed at the end."""
        place = self.directory / f"place{next(self._numbers)}"
        place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)  # threads of a closed lake may still tidy up

    @contextmanager
    def kernel(
        self, lake: Path, *, synchronous: str = "FULL", settings: Settings | None = None
    ) -> Iterator[Kernel]:
        """A kernel on a copy of a lake."""
        with self.copy(lake) as place:
            opened = Kernel(SqliteStore(place / DATABASE_FILE, synchronous=synchronous), settings=settings)
            try:
                yield opened
            finally:
                opened.close()


def database(lake: Path) -> Path:
    return lake / DATABASE_FILE


@contextmanager
def counting(lake: Path) -> Iterator[tuple[Kernel, KindCountingStore]]:
    """A kernel that has nothing in memory yet, and the store that counts what it asks."""
    store = KindCountingStore(SqliteStore(database(lake)))
    try:
        yield Kernel(store), store
    finally:
        store.close()


def in_memory(lake: Path) -> Kernel:
    """A kernel on a copy of a lake in memory."""
    copied, store = MemoryStore(), SqliteStore(database(lake))
    token = b""
    while True:
        page, token = store.scan(token, 5000)
        copied.store(store.fetch([one.id for one in page]))
        if not token:
            break
    for kind in Kind:
        for row in store.references(kind.value):
            with copied.turn(row.name) as turn:
                turn.advance({}, row)
    store.close()
    return Kernel(copied)


def load(kernel: Kernel, tables: int) -> None:
    """Put so many tables, many at a time."""
    for start in range(0, tables, LOAD_CHUNK):
        chunk = [put(index, 0) for index in range(start, min(start + LOAD_CHUNK, tables))]
        kernel.commit(MAIN, chunk, META, create_namespaces=True)


def make_history(kernel: Kernel, commits: int, merge_every: int | None) -> None:
    """Commits on main until there are ``commits``; a merge shortly before every ``merge_every``-th."""
    load(kernel, TABLES_PER_SCHEMA)
    if merge_every:
        for multiple in range(merge_every, commits + 1, merge_every):
            grow(kernel, MAIN, multiple - 5)
            merge_a_side_branch(kernel, multiple)
    grow(kernel, MAIN, commits)


def make_large(kernel: Kernel, tables: int, branches: int, commits: int) -> None:
    """Tables, then commits; after each tenth of them a tenth of the branches forks, with a commit each."""
    load(kernel, tables)
    for part in range(10):
        grow(kernel, MAIN, commits * (part + 1) // 10)
        head = kernel.references.get_reference(MAIN).head
        for number in range(branches * part // 10, branches * (part + 1) // 10):
            side = kernel.references.create_reference(f"branch{number:04}", Kind.BRANCH, head)
            kernel.commit(side.name, [put(number, -number - 1)], META)


def grow(kernel: Kernel, branch: str, depth: int) -> None:
    """Commit one key at a time until a branch's head is ``depth`` commits deep."""
    start = depth_of(kernel, branch)
    # The last few one by one: threads would come out at a multiple of their number.
    each, rest = divmod(depth - start, HISTORY_THREADS)
    random = Random(start)
    indexes = [random.randrange(TABLES_PER_SCHEMA) for _ in range(depth - start)]

    def write(thread: int, number: int) -> None:
        step = number * HISTORY_THREADS + thread
        kernel.commit(branch, [put(indexes[step], start + step + 1)], META)

    if each:
        write_each(each, HISTORY_THREADS, write)
    for step in range(depth - start - rest, depth - start):
        kernel.commit(branch, [put(indexes[step], start + step + 1)], META)


def depth_of(kernel: Kernel, branch: str) -> int:
    """How many commits lead to a branch's head."""
    return kernel.history.read_commit(kernel.references.get_reference(branch).head).depth


def merge_a_side_branch(kernel: Kernel, number: int) -> None:
    """Fork, commit a table that nobody else writes, merge."""
    side = kernel.references.create_reference("side", Kind.BRANCH, kernel.references.get_reference(MAIN).head)
    grow(kernel, MAIN, depth_of(kernel, MAIN) + 1)
    landed = kernel.commit(side.name, [put(TABLES_PER_SCHEMA - 1 - number % 7, -number)], META)
    kernel.merge(landed.head, MAIN, META)
    kernel.references.delete_reference(side.name, leave_log=False)


def make_references(kernel: Kernel, tags: int, branches: int) -> None:
    """Branches and tags at one commit."""
    head = kernel.commit(MAIN, [put(0, 0)], META, create_namespaces=True).head
    for number in range(branches - 1):
        kernel.references.create_reference(f"branch{number:03}", Kind.BRANCH, head)
    for number in range(tags):
        kernel.references.create_reference(f"v{number:06}", Kind.TAG, head)
