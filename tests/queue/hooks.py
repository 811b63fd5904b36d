"""What these tests share: a store that a test can step into, a clock that it can set, threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.errors import CommitConflict
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.description import make_description, read_description, write_description
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.model.clock import Clock, now_us
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.objects import CommitObject, LogEntry
from penstock.model.operations import Delete, Put
from penstock.model.references import Kind
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn

T = TypeVar("T")
Go: TypeAlias = Callable[[], AdvanceResult]
"""Lets an advance go on."""
WAIT_S = 60.0
"""How long a test waits for a thread that should be done at once, before it says that it hangs."""

START_US = 1_800_000_000_000_000
DAY_S = 24 * 3600.0


class SetClock:
    """A clock that a test sets; it ticks by a microsecond whenever it is asked."""

    def __init__(self, start_us: int = START_US) -> None:
        self._now_us, self._lock = start_us, Lock()

    def __call__(self) -> int:
        with self._lock:
            self._now_us += 1
            return self._now_us

    def go_on(self, seconds: float) -> None:
        with self._lock:
            self._now_us += int(seconds * 1_000_000)


def _pass_on(_: object) -> None:
    """Do nothing."""


class HookedStore(Store):
    """Passes everything on to another store, counts, and lets a test step in where it likes."""

    def __init__(self, inner: Store) -> None:
        self.inner, self.url = inner, inner.url
        self.around_advance: Callable[[Go], AdvanceResult] = lambda go: go()
        self.before_turn: Callable[[str], None] = _pass_on
        self.before_swap: Callable[[], None] = lambda: None
        self.before_read: Callable[[], None] = lambda: None
        self.before_scan: Callable[[], None] = lambda: None
        self.before_delete: Callable[[Sequence[StoredObject]], None] = _pass_on
        self.advances = 0
        self.swaps = 0
        self.fetched = 0
        self.fetches = 0
        self.rows_read = 0

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        self.before_read()
        self.fetches += 1
        self.fetched += len(ids)
        return self.inner.fetch(ids)

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self.inner.store(objects)

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        self.before_turn(name)
        with self.inner.turn(name, remembered) as turn:
            yield _HookedTurn(self, turn)

    def reference(self, name: str) -> Row | None:
        self.before_read()
        self.rows_read += 1
        return self.inner.reference(name)

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        self.before_read()
        rows = self.inner.references(kind, prefix, after, limit)
        self.rows_read += len(rows)
        return rows

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        self.before_scan()
        return self.inner.scan(after, limit)

    def delete(self, objects: Sequence[StoredObject]) -> int:
        self.before_delete(objects)
        return self.inner.delete(objects)

    def erase(self) -> None:
        self.inner.erase()

    def close(self) -> None:
        self.inner.close()


class _HookedTurn(Turn):
    def __init__(self, store: HookedStore, inner: Turn) -> None:
        self._store, self._inner = store, inner
        self.row, self.is_certain = inner.row, inner.is_certain

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        self._store.advances += 1

        def written() -> None:
            self.written()
            self._store.before_swap()

        self._inner.written = written

        def go() -> AdvanceResult:
            advanced = self._inner.advance(objects, row, fresh)
            self._store.swaps += advanced.swapped
            return advanced

        return self._store.around_advance(go)


class Once:
    """True the first time it is asked, or the first few times."""

    def __init__(self, times: int = 1) -> None:
        self._left, self._lock = times, Lock()

    def __call__(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0


class Gate:
    """A place where a thread waits until the test opens it."""

    def __init__(self) -> None:
        self._reached, self._opened = Event(), Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._opened.wait(WAIT_S), "nobody opened the gate"

    def wait_until_reached(self) -> None:
        assert self._reached.wait(WAIT_S), "nobody came to the gate"

    def open(self) -> None:
        self._opened.set()


class Caller(Thread, Generic[T]):
    """A thread that calls something and keeps what came of it."""

    def __init__(self, do: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._do = do
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result.append(self._do())
        except BaseException as error:
            self._error = error

    @property
    def error(self) -> BaseException | None:
        """What it raised, once it is done; ``TimeoutError`` if it hangs."""
        self.join(WAIT_S)
        return TimeoutError("the thread hangs") if self.is_alive() else self._error

    def result(self) -> T:
        if (error := self.error) is not None:
            raise error
        return self._result[0]


def new_kernel(store: Store, clock: Clock = now_us, settings: Settings | None = None) -> Kernel:
    """A kernel on a store, which is made a lake with an empty branch ``main`` if it is none."""
    kernel = Kernel(store, settings=settings, clock=clock)
    if store.reference("main") is None:
        kernel.references.create_reference("main", Kind.BRANCH, NO_COMMIT)
        write_description(store, make_description(clock(), "main", "", ()))
    return kernel


def new_lake(store: Store, clock: Clock = now_us, settings: Settings | None = None) -> Lake:
    """The same as a lake."""
    kernel = new_kernel(store, clock, settings)
    return Lake(Embedded(kernel, read_description(store), open_lake=Lake), "tester")


def keep_history(
    store: Store, commits: int | None = None, days: float | None = None, pattern: str = "*"
) -> None:
    """Limit the history of all references, as if that had been done long ago."""
    Kernel(store, clock=lambda: 0).keep_history(pattern, commits, days)


def table(place: str = "there") -> IcebergTable:
    return IcebergTable(metadata_location=place)


def put(kernel: Kernel, *keys: str, message: str = "", **how: Any) -> RequestOutcome:
    """Commit tables under some keys of ``main``."""
    meta = CommitMeta(message=message or "+".join(keys))
    return kernel.commit("main", [Put(Key(key), table()) for key in keys], meta, **how)


def head(kernel: Kernel, branch: str = "main") -> ObjectId:
    return kernel.references.get_reference(branch).head


def messages(kernel: Kernel, branch: str = "main") -> list[str]:
    """The messages of a branch's commits, oldest first."""
    return [commit.message for _, commit in history(kernel, branch)]


def history(kernel: Kernel, branch: str = "main") -> list[tuple[ObjectId, CommitObject]]:
    return list(kernel.walk_commits(head(kernel, branch)))[::-1]


def ref_log(kernel: Kernel, branch: str = "main") -> list[LogEntry]:
    """The log of a reference, oldest first."""
    return [entry for _, entry in kernel.references.walk_log(branch)][::-1]


def wait_until(done: Callable[[], bool]) -> None:
    """Until another thread has come to where the test wants it."""
    end = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)


class Arrivals:
    """Requests that come to ``main`` one after the other, while its queue is held up."""

    def __init__(self, kernel: Kernel) -> None:
        self._queue = kernel._find_queue("main")
        self._held_up = len(self._queue._waiting)
        self.callers: list[Caller[Any]] = []

    def add(self, call: Callable[[], object]) -> None:
        """Send one, and wait until it is in the queue, or was refused on its way there."""
        before = len(self._queue._waiting)
        caller = Caller(call)
        wait_until(lambda: len(self._queue._waiting) > before or not caller.is_alive())
        self.callers.append(caller)

    def expect_first(self) -> None:
        """Wait until the first one is in the queue, which somebody else sends."""
        wait_until(lambda: len(self._queue._waiting) > self._held_up)


def gather(kernel: Kernel, store: HookedStore, *calls: Callable[[], object]) -> list[Caller[Any]]:
    """Have requests to ``main`` arrive one after the other while its queue is busy: they make one batch.

    What keeps the queue busy is a request that is refused, so that the branch does not move.
    """
    gate, first = Gate(), Once()
    earlier = store.before_turn

    def stop_first(name: str) -> None:
        if first():
            store.before_turn = earlier
            gate.pass_through()

    store.before_turn = stop_first
    opener = Caller(lambda: kernel.commit("main", [Delete(Key("nothing is here"))]))
    gate.wait_until_reached()
    arrivals = Arrivals(kernel)
    for call in calls:
        arrivals.add(call)
    gate.open()
    assert isinstance(opener.error, CommitConflict)
    return arrivals.callers


def everything(store: Store) -> tuple[dict[str, Row], dict[ObjectId, bytes]]:
    """All rows and all objects of a store."""
    rows = {row.name: row for kind in Kind for row in store.references(kind.value, limit=1_000_000)}
    ids: list[ObjectId] = []
    token = b""
    while True:
        page, token = store.scan(token, 1000)
        ids += [one.id for one in page]
        if not token:
            return rows, store.fetch(ids)
