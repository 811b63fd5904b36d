"""Places: folders of files where tables are, on disks and in buckets, for ordinary threads.

A table's location is a path or a URL without options: keys, endpoints and regions come from the environment,
as the vendors' own variables name them. Tables in one bucket share its connections.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from secrets import token_hex
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit
from weakref import finalize

from penstock.errors import InvalidRequest, OutcomeUnknown, PenstockError, Unavailable
from penstock.storage.buckets import (
    Bucket,
    BucketEntry,
    EntityTag,
    UnansweredWrite,
    WriteRefused,
)
from penstock.storage.conditional_writes import check_conditions_are_kept
from penstock.storage.forbidden_hosts import check_host
from penstock.storage.local import THREADS_MAX, LocalBucket
from penstock.storage.locations import normalise_location
from penstock.storage.moved_roots import NOT_MOVED, MovedRoots
from penstock.storage.remote import SCHEMES, RemoteBucket

if TYPE_CHECKING:
    from penstock.storage.request_loop import RequestLoop

Answer = TypeVar("Answer")

READ_AHEAD: Final = 16
"""How many small files are under way at the same time."""
LISTED_AT_ONCE: Final = 1000
LOOKED_UP_MAX: Final = 200
"""To find out whether more files than these exist, all are listed: that takes fewer requests."""
PLACES_MAX: Final = 2000
"""How many are kept open. There is one for each folder of a table."""
SCRATCH: Final = "_penstock"
"""The folder below a table's root for what other engines are not to see."""
POOL: Final = f"{SCRATCH}/data/"
"""The folder below a warehouse for notes of forks, and for files of tables without folders of their own."""
PROBES: Final = f"{SCRATCH}/probe"
ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": (),
    "az": ("AZURE_STORAGE_ENDPOINT",),
}


class Places:
    """Opens places, each once. May be used by many threads.

    A location below a root that has ``moved`` is opened where its files are now, and so is one that names
    that place itself.
    """

    def __init__(self, moved: MovedRoots = NOT_MOVED) -> None:
        self.moved = moved
        self._loop: RequestLoop | None = None
        self._threads = ThreadPoolExecutor(THREADS_MAX, "penstock-table-files")
        self._places: dict[str, Place] = {}
        self._shared: dict[str, SharedBucket] = {}
        """The buckets, by their URLs."""
        self._lock = Lock()

    def open_place(self, location: str) -> Place:
        """The place at a location.

        ``InvalidRequest`` if nothing can be opened there, ``LocationRefused`` if no table can be.
        """
        if (place := self._places.get(location)) is not None:
            return place
        where = self.moved.map_to_storage(normalise_location(location))
        with self._lock:
            place = self._places.get(where)
            if place is None:
                if len(self._places) >= PLACES_MAX:
                    newer = islice(self._places.items(), PLACES_MAX // 2, None)
                    self._places = dict(newer)  # whoever has one of the others goes on using it
                place = self._places[where] = self._open_place(where)
            return place

    def release_place(self, place: Place) -> None:
        """Keep a place open without holding it."""
        with self._lock:
            self._places = {where: other for where, other in self._places.items() if other is not place}

    def close_apart(self) -> None:
        """Close in a thread apart, for a caller that may be a thread which closing waits for."""
        with suppress(RuntimeError):  # no threads are started while the interpreter ends
            Thread(target=self.close, name="penstock-close", daemon=True).start()

    def close(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._places, shared, self._shared = {}, self._shared, {}
            loop, self._loop = self._loop, None
        for bucket in shared.values():
            bucket.bucket.close()
        if loop is not None:
            loop.close()
        self._threads.shutdown()

    def open_disk(self, root: Path) -> Bucket:
        """The bucket of a table in a directory. What is listed there may be removed, so that a link must not
        lead to files of other places, nor to the table's own under other names."""
        return LocalBucket(root, scratch=SCRATCH, threads=self._threads, follows_links=False)

    def open_bucket(self, scheme: str, bucket: str) -> Bucket:
        """The bucket that tables at a URL are in."""
        named = (os.environ.get(name) for name in ENDPOINTS[scheme])
        endpoint = next((value for value in named if value), None)
        return RemoteBucket(f"{scheme}://{bucket}", scheme, bucket, endpoint=endpoint)

    def _open_place(self, where: str) -> Place:
        if self._loop is None:
            from penstock.storage.request_loop import RequestLoop

            self._loop = RequestLoop()
        if "://" not in where:
            # It has nothing open, and uses the threads of all: there is nothing to close.
            shared = SharedBucket(self.open_disk(Path(where)), is_disk=True)
            return Place(where, shared, self._loop, formers=self.moved.list_known_roots(where)[1:])
        check_host(where)
        parts = urlsplit(where)
        if parts.scheme not in SCHEMES:
            raise InvalidRequest(
                f"{where} cannot be opened: tables are on a local disk, or at "
                + ", ".join(f"{scheme}://" for scheme in SCHEMES),
                location=where,
            )
        root = f"{parts.scheme}://{parts.netloc}"
        if root not in self._shared:
            self._shared[root] = SharedBucket(self.open_bucket(parts.scheme, parts.netloc))
        folder = unquote(parts.path.strip("/"))
        return Place(where, self._shared[root], self._loop, folder, self.moved.list_known_roots(where)[1:])


def open_place(location: str) -> Place:
    """A place that is closed by itself, when nothing refers to it any more: no reader, no stream of rows.

    Raises as ``Places.open_place``.
    """
    places = Places()
    try:
        place = places.open_place(location)
    except BaseException:
        places.close()
        raise
    places.release_place(place)
    finalize(place, places.close_apart).atexit = False
    return place


class SharedBucket:
    """A bucket, and what was found out about it."""

    def __init__(self, bucket: Bucket, *, is_disk: bool = False) -> None:
        self.bucket = bucket
        bucket.part = "storage"
        self.keeps_conditions: bool | None = True if is_disk else None
        self.takes_conditions = True
        """Whether it carries out writes that have a condition, as far as is known."""
        self.lock = Lock()


class Place:
    """A folder of files. Names are relative to it, with ``/`` between their parts.

    All calls raise ``Unavailable`` if there is no answer, and ``StorageRefused`` if there is no right.
    """

    def __init__(
        self,
        url: str,
        shared: SharedBucket,
        loop: RequestLoop,
        folder: str = "",
        formers: tuple[str, ...] = (),
    ) -> None:
        self.url = url
        self.roots = (url, *formers)
        """Where it is, and where it was before it was moved: addresses in its files may name either."""
        self.location = formers[0] if formers else url
        """The location by which the lake knows it."""
        self._shared, self._bucket, self._loop = shared, shared.bucket, loop
        self._folder = f"{folder}/" if folder else ""
        # A disk answers before another thread would have been told what to ask it.
        self._disk = shared.bucket if type(shared.bucket) is LocalBucket else None

    @property
    def keeps_conditions(self) -> bool:
        """Whether of several who create one file only one does it. Buckets are tried out, once each."""
        shared = self._shared
        with shared.lock:
            if shared.keeps_conditions is None:
                shared.keeps_conditions = self._loop.run_coroutine(self._probe_conditions())
            return shared.keeps_conditions

    def read(self, names: Iterable[str]) -> Iterator[bytes | None]:
        """The bytes of each file, in the order of the names; ``None`` for one that does not exist."""
        if self._disk is not None:
            for name in names:
                yield self._disk.read_now(self._folder + name)
            return
        waiting = iter(names)
        while some := tuple(islice(waiting, READ_AHEAD)):
            yield from self._loop.run_coroutine(self._read_files(some))

    def read_range(self, name: str, start: int, length: int) -> bytes | None:
        """Some bytes of a file, fewer where it ends; ``None`` if it does not exist."""
        return self._loop.run_coroutine(self._bucket.get_range(self._folder + name, start, length))

    def size(self, name: str) -> int | None:
        """A file's size in bytes, without reading it; ``None`` if there is none."""
        if self._disk is not None:
            return self._disk.size_now(self._folder + name)
        return self._loop.run_coroutine(self._bucket.size(self._folder + name))

    def sizes(self, names: Iterable[str]) -> Sequence[int | None]:
        """The sizes of several files."""
        return self._loop.run_coroutine(_run_all([self._bucket.size(self._folder + name) for name in names]))

    def missing(self, names: Sequence[str]) -> Sequence[str]:
        """Those of some files that do not exist: looked up one by one, or in a list of all if many."""
        if len(names) <= LOOKED_UP_MAX:
            return [name for name, size in zip(names, self.sizes(names), strict=True) if size is None]
        present = {entry.key for entry in self.entries()}
        return [name for name in names if name not in present]

    def sizes_in_order(self, names: Sequence[str]) -> dict[str, int]:
        """The sizes of those of some files that exist: looked up one by one, or, if there are many, in a list
        of what lies between the first and the last of them."""
        if len(names) <= LOOKED_UP_MAX:
            pairs = zip(names, self.sizes(names), strict=True)
            return {name: size for name, size in pairs if size is not None}
        first, last, requested = min(names), max(names), {*names}
        between = self.list("", first[:-1], last + "\0")
        return {entry.key: entry.size for entry in between if entry.key in requested}

    def look(self, name: str) -> BucketEntry | None:
        """A file's size, time and tag, ``None`` if there is none."""
        if self._disk is not None:
            entry = self._disk.look_now(self._folder + name)
        else:
            entry = self._loop.run_coroutine(self._bucket.head(self._folder + name))
        return None if entry is None else entry._replace(key=name)

    def list(self, folder: str, after: str = "", before: str = "") -> Sequence[BucketEntry]:
        """All files below a folder whose names come after one text and before another, in the order of
        their bytes."""
        if self._disk is not None:
            below, start = (self._folder + folder).rstrip("/"), self._folder + after if after else ""
            end = self._folder + before if before else ""
            cut = len(self._folder)
            return [entry._replace(key=entry.key[cut:]) for entry in self._disk.list_now(below, start, end)]
        return self._loop.run_coroutine(self._list_files(folder.rstrip("/"), after, before))

    def entries(self, folder: str = "") -> Iterator[BucketEntry]:
        """All files below a folder in the order of their bytes, of which a page at a time is in memory."""
        cut = len(self._folder)
        if self._disk is not None:
            for entry in self._disk.entries_now((self._folder + folder).rstrip("/")):
                yield entry._replace(key=entry.key[cut:])
            return
        listing = aiter(self._bucket.list((self._folder + folder).rstrip("/")))
        while page := self._loop.run_coroutine(_take_some(listing, LISTED_AT_ONCE)):
            for entry in page:
                yield entry._replace(key=entry.key[cut:])

    def folders(self) -> Iterator[str]:
        """The names of the folders right below, in the order of their bytes; what lies in them is not
        listed, but for the first file of each in a bucket."""
        if self._disk is not None and not self._folder:
            yield from self._disk.folders_now()
            return
        cut, after = len(self._folder), self._folder
        while page := self._loop.run_coroutine(
            _take_some(self._bucket.list(self._folder.rstrip("/"), after), 1)
        ):
            name, slash, _ = page[0].key[cut:].partition("/")
            if slash:
                yield name
            after = self._folder + (f"{name}0" if slash else name)  # what comes next to a slash

    def prune(self) -> None:
        """Remove empty folders of a disk, and its own records; in a bucket there are none. Only where nobody
        writes any more: who has just made a folder would miss it."""
        if isinstance(self._bucket, LocalBucket) and not self._folder:
            self._loop.run_coroutine(self._bucket.prune())

    def remove_empty_folders(self) -> None:
        """Remove folders of a disk that are empty, such as those of partitions whose files are gone: their
        names have values. Who is about to write there makes the folder again."""
        if isinstance(self._bucket, LocalBucket) and not self._folder:
            self._loop.run_coroutine(self._bucket.remove_empty_folders())

    def create(self, name: str, data: bytes) -> bool:
        """Write a file durably if there is none of that name; say whether this very call did.

        ``OutcomeUnknown`` if that cannot be said: look what is there.
        """
        if self._disk is None:
            return self.create_all([(name, data)]) == 1
        with self._outcome_unknown_raised(name):
            return self._disk.put_new_now(self._folder + name, data)

    def create_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        """Write files durably, in their order, and stop at the first whose name is taken; say how many.

        No file is there before the one ahead of it. ``OutcomeUnknown`` if it cannot be said which were
        written: look what is there.
        """
        keys = [(self._folder + name, data) for name, data in items]
        return self._create_files(items, lambda: self._put_all(keys))

    def create_each(self, items: Sequence[tuple[str, bytes]]) -> Sequence[bool]:
        """Write files durably where there are none, in any order; say of each whether this call did.

        ``OutcomeUnknown`` if that cannot be said of one of them.
        """
        keys = [(self._folder + name, data) for name, data in items]
        results = self._create_files(items, lambda: _run_all([self._put_all([item]) for item in keys]))
        return [count == 1 for count in results]

    def link(self, name: str, other: str) -> bool:
        """Give a file one more name, unless another file has that; whether it has the name now.

        Only on a disk, where it costs less than to write it once more. A power cut may take the name back.
        """
        return self._disk is not None and self._disk.link_now(self._folder + name, self._folder + other)

    def has_permission(self, folder: str) -> bool | None:
        """Whether this process may write to a folder of a disk, by its permissions; ``None`` in a bucket."""
        return None if self._disk is None else os.access(Path(self.url) / folder, os.W_OK | os.X_OK)

    def require_writable(self, name: str) -> None:
        """Raise why nothing can be written here, without writing: by a write on a condition that no file of
        that name meets, which storage refuses for that alone to whoever has the right to write."""
        with suppress(WriteRefused, UnansweredWrite):
            self._loop.run_coroutine(self._bucket.put(self._folder + name, b"", EntityTag(etag="none")))

    def put(self, name: str, data: bytes) -> None:
        """Write a file durably, whatever is there. ``OutcomeUnknown`` if it may have been."""
        self._write_file(name, self._bucket.put(self._folder + name, data))

    def put_pieces(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file durably from pieces that come one after the other, under a name that nobody else uses.

        ``OutcomeUnknown`` if it may have been.
        """
        self._write_file(name, self._bucket.put_pieces(self._folder + name, pieces))

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; those that do not exist are no mistake. ``OutcomeUnknown`` if some may be gone."""
        if names:
            self._write_file(names[0], self._bucket.delete([self._folder + name for name in names]))

    def tidy(self, before_us: int) -> int:
        """Remove what interrupted writes left on a disk before a time; say how many pieces."""
        return self._loop.run_coroutine(self._bucket.tidy(before_us))

    def _create_files(
        self, items: Sequence[tuple[str, bytes]], work: Callable[[], Coroutine[Any, Any, Answer]]
    ) -> Answer:
        """Write files where there are none; once more if it turns out that storage knows no conditions."""
        name = items[0][0] if items else ""
        were_taken = self._shared.takes_conditions
        try:
            return self._write_file(name, work())
        except (OutcomeUnknown, Unavailable):
            with suppress(PenstockError):
                self.keeps_conditions  # noqa: B018 - what is not known of the bucket is found out
            if not were_taken or self._shared.takes_conditions:
                raise
        return self._write_file(name, work())

    async def _put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        """As the bucket does it; where that takes no conditions, by looking first."""
        if self._shared.takes_conditions:
            return await self._bucket.put_all(items)
        for count, (key, data) in enumerate(items):
            if await self._bucket.size(key) is not None:
                return count
            await self._bucket.put(key, data)
        return len(items)

    def _write_file(self, name: str, work: Coroutine[Any, Any, Answer]) -> Answer:
        with self._outcome_unknown_raised(name):
            return self._loop.run_coroutine(work)

    @contextmanager
    def _outcome_unknown_raised(self, name: str) -> Iterator[None]:
        try:
            yield
        except UnansweredWrite as problem:
            raise OutcomeUnknown(
                f"it is not known whether {name!r} was written to {self.url}: {problem}",
                location=self.url,
                name=name,
            ) from None

    async def _read_files(self, names: Sequence[str]) -> Sequence[bytes | None]:
        contents = await _run_all(self._bucket.get(self._folder + name) for name in names)
        return [None if content is None else content.data for content in contents]

    async def _list_files(self, folder: str, after: str, before: str) -> Sequence[BucketEntry]:
        cut, entries = len(self._folder), []
        start = self._folder + after if after else ""
        async for entry in self._bucket.list((self._folder + folder).rstrip("/"), start):
            name = entry.key[cut:]
            if before and name >= before:
                break
            entries.append(entry._replace(key=name))
        return entries

    async def _probe_conditions(self) -> bool:
        # Storage that is careless only under races passes. Publishers do no harm there: all of them write the
        # same bytes.
        try:
            return await check_conditions_are_kept(self._bucket, self._folder + PROBES)
        except Unavailable:
            if not await self._refuses_conditions():
                raise
            self._shared.takes_conditions = False
            return False

    async def _refuses_conditions(self) -> bool:
        """Whether a plain write is carried out, and one with a condition fails without being refused."""
        key = f"{self._folder}{PROBES}/{token_hex(16)}"
        try:
            await self._bucket.put(key, b"")
            try:
                await self._bucket.put(key, b"", "absent")
            except WriteRefused:
                return False
            except (UnansweredWrite, Unavailable):
                return True
            return False
        except UnansweredWrite:
            return False
        finally:
            with suppress(UnansweredWrite, PenstockError):
                await self._bucket.delete([key])


async def _take_some(items: AsyncIterator[BucketEntry], count: int) -> Sequence[BucketEntry]:
    """The next few of them."""
    batch: list[BucketEntry] = []
    async for item in items:
        batch.append(item)
        if len(batch) == count:
            break
    return batch


async def _run_all(work: Iterable[Coroutine[Any, Any, Answer]]) -> Sequence[Answer]:
    """All answers; the first error, but only when nothing is under way any more."""
    import asyncio

    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return cast("Sequence[Answer]", outcomes)
