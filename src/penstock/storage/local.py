"""A directory as a bucket, for any number of processes on one machine.

A file appears whole or not at all: it is written and synchronised under another name first. One that must
not exist yet is linked into place, which fails if somebody was faster. One that replaces another is
compared and renamed under a lock. A tag is the hash of the bytes, so that it never comes back by chance.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, ParamSpec, TypeVar
from zlib import crc32

from penstock.errors import InvalidRequest, PenstockError, StorageRefused, Unavailable
from penstock.storage.buckets import (
    Bucket,
    BucketEntry,
    Condition,
    EntityTag,
    TaggedContent,
    UnansweredWrite,
    WriteRefused,
)
from penstock.storage.disk_space import NO_ROOM, storage_full_error

LOCKS: Final = 64
MADE_MAX: Final = 10_000
"""Of how many folders it is remembered that they are there."""
THREADS_MAX: Final = 16
WRITERS: Final = 4
"""So many threads write files that are to appear together."""
FIRST_PAGE: Final = 32
PAGE: Final = 500
"""How many entries of a folder are looked at together: first few, then more."""
SECOND_US: Final = 1_000_000
TICK_US: Final = 10_000
"""How coarse the clock is, at most, that file times are taken from."""
SHOWN_MAX: Final = 300
"""How much of a name an error shows."""
UNFINISHED: Final = ".unfinished"
LOCKED: Final = ".locks"
NO_FILE: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""There is no file with this name. A folder does not count, as it does not in a bucket."""
NEVER: Final = frozenset({errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP})
"""What stays so however often it is tried: the name cannot be, or something else has it."""

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class LocalBucket(Bucket):
    """A bucket in a directory; folders are made as they are needed.

    ``scratch`` is the folder right below it for what only this class looks at: unfinished files and locks.
    All who use the directory must name the same. ``threads`` are those of several buckets, which somebody
    else closes. Where links to folders are not followed, a listing leaves out what lies behind them: the same
    file would have several names. The root, and a folder that is listed by name, may be reached by links. New
    folders right below the root have ``folders_mode``, as far as the umask lets them.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        scratch: str = "",
        threads: ThreadPoolExecutor | None = None,
        follows_links: bool = True,
        folders_mode: int = 0o777,
    ) -> None:
        self._root = Path(root).absolute()
        self.url = f"file://{self._root}"
        self._unfinished = self._root / scratch / UNFINISHED
        self._locks = self._root / scratch / LOCKED
        self._follows_links = follows_links
        self._own_threads = threads is None
        self._threads = threads or ThreadPoolExecutor(THREADS_MAX, "penstock-files")
        self._made: set[Path] = set()
        self._folders_mode = folders_mode

    @property
    def resolution_us(self) -> int:  # type: ignore[override]
        """Some file systems show whole seconds only."""
        with suppress(OSError), os.scandir(self._root) as entries:
            if all(entry.stat().st_mtime_ns % 1_000_000_000 == 0 for entry in entries if entry.is_file()):
                return SECOND_US
        return TICK_US

    @property
    def is_read_only(self) -> bool:
        return self._root.is_dir() and not os.access(self._root, os.W_OK)

    async def get(self, key: str) -> TaggedContent | None:
        return await self._run_in_thread(self._read_tagged, key)

    async def head(self, key: str) -> BucketEntry | None:
        return await self._run_in_thread(self._stat_file, key)

    async def size(self, key: str) -> int | None:
        return await self._run_in_thread(self._measure_size, key)

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return await self._run_in_thread(self._read_range, key, start, length)

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        return await self._run_in_thread(self._retry_once, partial(self._write_file, key, data, condition))

    async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        """All are written under other names, by a few threads, and then flushed, one flush often doing for
        many; only their links come one after the other."""
        import asyncio

        written: list[list[Path]] = [[] for _ in range(min(WRITERS, len(items)))]
        contents = [data for _, data in items]
        work = [
            partial(self._write_unfinished, contents[start :: len(written)], unfinished)
            for start, unfinished in enumerate(written)
        ]
        try:
            for outcome in await asyncio.gather(
                *(self._run_in_thread(self._retry_once, task) for task in work), return_exceptions=True
            ):
                if isinstance(outcome, BaseException):
                    raise outcome
            unfinished = [written[n % len(written)][n // len(written)] for n in range(len(items))]
            link_all = partial(self._link_all, [key for key, _ in items], unfinished)
            return await self._run_in_thread(self._retry_once, link_all)
        finally:
            await self._run_in_thread(_remove_paths, [path for paths in written for path in paths])

    async def put_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        await self._run_in_thread(self._write_pieces, key, pieces)

    async def delete(self, keys: Sequence[str]) -> None:
        import asyncio

        few = min(THREADS_MAX, len(keys))
        work = [partial(self._remove_files, keys[start::few]) for start in range(few)]
        await asyncio.gather(*(self._run_in_thread(self._retry_once, task) for task in work))

    async def list(self, folder: str, after: str = "") -> AsyncIterator[BucketEntry]:
        entries = self._walk_keys(self._root / folder, f"{folder}/" if folder else "", after)
        size = FIRST_PAGE  # who looks for few files next to one another does not have others looked at
        while page := await self._run_in_thread(lambda size: list(islice(entries, size)), size):
            for entry in page:
                yield entry
            size = min(PAGE, 4 * size)

    async def folders(self) -> Sequence[str]:
        """The names of the folders right below the root, in the order of their bytes."""
        return await self._run_in_thread(self._list_folders)

    async def prune(self) -> None:
        """Remove this class's own files and all folders that are empty then, the root too."""
        await self._run_in_thread(self._prune_folders)

    async def remove_empty_folders(self) -> None:
        """Remove folders below the root that are empty, apart from those whose names begin with a ``_``."""
        await self._run_in_thread(self._remove_empty)

    async def tidy(self, before_us: int) -> int:
        return await self._run_in_thread(self._remove_unfinished, before_us)

    def close(self) -> None:
        if self._own_threads:
            self._threads.shutdown()

    # -- the same in the caller's own thread ---------------------------------------------------------------

    def read_now(self, key: str) -> bytes | None:
        """What ``get`` reads."""
        return self._run_now(self._read_data, key)

    def size_now(self, key: str) -> int | None:
        """As ``size``."""
        return self._run_now(self._measure_size, key)

    def look_now(self, key: str) -> BucketEntry | None:
        """As ``head``."""
        return self._run_now(self._stat_file, key)

    def list_now(self, folder: str, after: str, before: str) -> Sequence[BucketEntry]:
        """As ``list``, of the keys that come before another one, if that is not empty."""
        entries = self._walk_keys(self._root / folder, f"{folder}/" if folder else "", after)
        return self._run_now(lambda: [*takewhile(lambda entry: not before or entry.key < before, entries)])

    def entries_now(self, folder: str) -> Iterator[BucketEntry]:
        """As ``list``, a page at a time."""
        entries = self._walk_keys(self._root / folder, f"{folder}/" if folder else "", "")
        size = FIRST_PAGE
        while page := self._run_now(lambda size: [*islice(entries, size)], size):
            yield from page
            size = min(PAGE, 4 * size)

    def folders_now(self) -> Sequence[str]:
        """As ``folders``."""
        return self._run_now(self._list_folders)

    def put_new_now(self, key: str, data: bytes) -> bool:
        """As ``put_all`` for one file."""
        unfinished: list[Path] = []
        try:
            self._run_now(self._retry_once, partial(self._write_unfinished, [data], unfinished))
            return self._run_now(self._retry_once, partial(self._link_all, [key], unfinished)) == 1
        finally:
            self._run_now(_remove_paths, unfinished)

    def link_now(self, key: str, other: str) -> bool:
        """Give a file one more name, unless another file has that; whether it has the name now.

        A power cut may take the name back.
        """
        file, path = self._root / key, self._root / other
        try:
            self._make_folder(path.parent)
            os.link(file, path)
        except FileExistsError:
            return self._run_now(self._is_same, file, path)
        except OSError:
            self._made.clear()
            return False
        return True

    @staticmethod
    def _is_same(file: Path, path: Path) -> bool:
        try:
            return file.samefile(path)
        except FileNotFoundError:
            return False

    def _run_now(self, work: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs) -> Answer:
        try:
            return work(*given, **named)
        except OSError as problem:
            self._made.clear()
            raise self._explain_os_error(problem) from None

    async def _run_in_thread(
        self, work: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs
    ) -> Answer:
        import asyncio

        call = partial(work, *given, **named)
        try:
            under_way = asyncio.get_running_loop().run_in_executor(self._threads, call)
        except RuntimeError:  # there are no threads any more
            raise InvalidRequest("the lake was closed; open it again") from None
        try:
            return await under_way
        except OSError as problem:
            self._made.clear()
            raise self._explain_os_error(problem) from None

    def _retry_once(self, call: Callable[[], Answer]) -> Answer:
        """Do it, and once more if a folder that was made is gone: somebody removed it from outside."""
        try:
            return call()
        except FileNotFoundError:
            self._made.clear()
            return call()

    def _explain_os_error(self, problem: OSError) -> PenstockError:
        reason = f"{self._root} cannot be used: {problem.strerror}"
        if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return StorageRefused(reason, path=str(self._root), **self._part_detail)
        if problem.errno in NO_ROOM:
            return storage_full_error(str(self._root), problem, path=str(self._root), **self._part_detail)
        if problem.errno in NEVER:
            name = str(problem.filename2 or problem.filename or self._root)
            shown = name if len(name) <= SHOWN_MAX else f"{name[:SHOWN_MAX]}…"
            return InvalidRequest(
                f"{shown} cannot be used: {problem.strerror}; choose another name", path=shown
            )
        return Unavailable(reason, path=str(self._root), **self._part_detail)

    def _read_tagged(self, key: str) -> TaggedContent | None:
        data = self._read_data(key)
        return None if data is None else TaggedContent(data, _make_tag(data))

    def _read_data(self, key: str) -> bytes | None:
        try:
            # Paths cost as much as the file here, and a commit reads a few files of each of its tables.
            with open(f"{self._root}/{key}", "rb", buffering=0) as file:  # noqa: PTH123
                return file.readall()
        except NO_FILE:
            return None

    def _stat_file(self, key: str) -> BucketEntry | None:
        try:
            with (self._root / key).open("rb") as file:
                status = os.fstat(file.fileno())
                data = file.read()
        except NO_FILE:
            return None
        return BucketEntry(key, len(data), status.st_mtime_ns // 1000, _make_tag(data))

    def _measure_size(self, key: str) -> int | None:
        try:
            status = (self._root / key).stat()
        except NO_FILE:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def _read_range(self, key: str, start: int, length: int) -> bytes | None:
        try:
            with (self._root / key).open("rb", buffering=0) as file:
                return os.pread(file.fileno(), length, start)
        except NO_FILE:
            return None

    def _write_file(self, key: str, data: bytes, condition: Condition) -> EntityTag:
        path, unfinished = self._root / key, list[Path]()
        try:
            self._write_unfinished([data], unfinished)
            self._make_folder(path.parent)
            if condition != "absent":
                self._rename_into_place(unfinished[0], path, key, condition)
            elif not self._link_all([key], unfinished):
                raise WriteRefused
        finally:
            _remove_paths(unfinished)
        return _make_tag(data)

    def _write_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        """The pieces come once, so that folders are made sure of before the first one."""
        path, unfinished = self._root / key, self._unfinished / secrets.token_hex(16)
        self._made.clear()
        self._make_own_folder(self._unfinished)
        self._make_folder(path.parent)
        try:
            with unfinished.open("xb") as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(path)
            self._sync_folder(path.parent)
        finally:
            _remove_paths([unfinished])

    def _write_unfinished(self, contents: Sequence[bytes], unfinished: MutableSequence[Path]) -> None:
        """Files with these bytes, on the disk, under names that nobody else uses; ``unfinished`` tells them,
        also if it fails."""
        self._make_own_folder(self._unfinished)
        _remove_paths(unfinished)
        unfinished.clear()
        token = secrets.token_hex(16)
        with ExitStack() as files:
            opened = []
            for number, data in enumerate(contents):
                path = self._unfinished / f"{token}{number or ''}"
                file = files.enter_context(path.open("xb"))
                unfinished.append(path)
                file.write(data)
                file.flush()
                opened.append(file)
            for file in opened:  # the first flush makes most of the others cheap
                os.fsync(file.fileno())

    def _link_all(self, keys: Sequence[str], unfinished: Sequence[Path]) -> int:
        """Give files their names, in order, until one is taken; say how many have them, durably."""
        paths = [self._root / key for key in keys]
        folders = {path.parent for path in paths}
        for folder in folders:
            self._make_folder(folder)
        count = 0
        try:
            for file, path in zip(unfinished, paths, strict=True):
                os.link(file, path)
                count += 1
        except FileExistsError:
            # It may be another's, not yet on the disk: nobody may build on it before it is.
            pass
        except OSError as problem:
            if count:
                raise UnansweredWrite(problem.strerror) from None
            raise
        for folder in folders:
            self._sync_folder(folder)
        return count

    def _rename_into_place(self, unfinished: Path, path: Path, key: str, condition: Condition) -> None:
        with self._lock_key(key):
            if condition is not None:
                content = self._read_tagged(key)
                if content is None or content.tag != condition:
                    raise WriteRefused
            unfinished.rename(path)
            self._sync_folder(path.parent)

    def _sync_folder(self, folder: Path) -> None:
        """Make names durable; until then a power cut may still take them back."""
        try:
            _sync_folder(folder)
        except OSError as problem:
            raise UnansweredWrite(problem.strerror) from None

    def _remove_files(self, keys: Sequence[str]) -> None:
        folders = set()
        for key in keys:
            path = self._root / key
            with self._lock_key(key), suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            _sync_folder(folder)

    @contextmanager
    def _lock_key(self, key: str) -> Iterator[None]:
        """Against all threads and processes; let go by the system if this one dies."""
        self._make_own_folder(self._locks)
        with (self._locks / str(crc32(key.encode()) % LOCKS)).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _make_own_folder(self, folder: Path) -> None:
        """A folder for what only this class looks at. A power cut may take it: nothing in it is of use then.

        By that no folder above it is known to be durable: whoever puts a file there makes sure of it.
        """
        if folder not in self._made:
            self._make_folders(folder, is_durable=False)

    def _make_folder(self, folder: Path) -> None:
        """A folder, durably: also those above it that were made for it."""
        if folder not in self._made:
            self._make_folders(folder, is_durable=True)

    def _make_folders(self, folder: Path, *, is_durable: bool) -> None:
        missing = []
        for parent in (folder, *folder.parents):
            if parent in self._made:
                break
            missing.append(parent)
            if parent.is_dir():
                break
        depth = len(self._root.parts)
        for parent in reversed(missing):
            parent.mkdir(self._folders_mode if len(parent.parts) == depth + 1 else 0o777, exist_ok=True)
            if is_durable and len(parent.parts) > depth:  # what is above the root is somebody else's
                _sync_folder(parent.parent)
            if len(self._made) >= MADE_MAX:
                self._made.clear()
            if is_durable or parent == folder:
                self._made.add(parent)

    def _walk_keys(self, folder: Path, start: str, after: str) -> Iterator[BucketEntry]:
        """Keys in the order of their bytes: a folder stands where its name with a slash does."""
        first = after[len(start) :].partition("/")[0] if after.startswith(start) else ""
        above = {first[:length] for length in range(len(first))}
        try:
            with os.scandir(folder) as entries:
                # Most of a long folder may come before: that is neither looked at nor sorted.
                following = [entry for entry in entries if entry.name >= first or entry.name in above]
                names = sorted(
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=self._follows_links) else entry.name
                    for entry in following
                    if entry.name not in (UNFINISHED, LOCKED) and _may_follow(f"{start}{entry.name}/", after)
                )
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            key = start + name
            if name.endswith("/"):
                if _may_follow(key, after):
                    yield from self._walk_keys(folder / name, key, after)
            elif key > after and (status := _stat_listed_file(f"{folder}/{name}")) is not None:
                yield BucketEntry(key, status.st_size, status.st_mtime_ns // 1000, EntityTag(None))

    def _list_folders(self) -> Sequence[str]:
        try:
            with os.scandir(self._root) as entries:
                return sorted(
                    entry.name for entry in entries if entry.is_dir(follow_symlinks=self._follows_links)
                )
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _prune_folders(self) -> None:
        self._made.clear()
        for own in (self._unfinished, self._locks):
            with suppress(FileNotFoundError):
                _remove_paths([*own.iterdir()])
        for folder, _, _ in os.walk(self._root, topdown=False):
            with suppress(OSError):  # it is not empty
                Path(folder).rmdir()

    def _remove_empty(self) -> None:
        for folder, _, _ in os.walk(self._root, topdown=False):
            below = Path(folder).relative_to(self._root).parts
            if below and not below[0].startswith("_"):
                with suppress(OSError):  # it is not empty
                    Path(folder).rmdir()

    def _remove_unfinished(self, before_us: int) -> int:
        removed = 0
        with suppress(FileNotFoundError), os.scandir(self._unfinished) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat().st_mtime_ns // 1000 < before_us:
                        Path(entry).unlink()
                        removed += 1
        return removed


def _remove_paths(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _may_follow(folder: str, after: str) -> bool:
    """Whether keys that begin with a folder's name and a slash may come after a key."""
    return folder > after or after.startswith(folder)


def _stat_listed_file(path: str) -> os.stat_result | None:
    """Size and time of a file that was listed; ``None`` if it is gone, or a link to anything but a file."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            return None
        raise
    return None if stat.S_ISDIR(status.st_mode) else status


def _make_tag(data: bytes) -> EntityTag:
    return EntityTag(blake2b(data, digest_size=16).hexdigest())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
