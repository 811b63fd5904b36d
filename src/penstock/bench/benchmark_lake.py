"""Where the load runs: a lake that is made for it and erased again, or branches of its own in a user's lake.

Nothing that somebody else wrote is ever touched. Branches carry a note that says whose they are, and a lake
that was made for a measurement has a default branch that no other lake has, so that what a killed process
left behind can be told from everything else.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

from penstock.bench.commit_strategies import META
from penstock.bench.load import TABLES, make_put
from penstock.errors import InvalidRequest, PenstockError, ReferenceNotFound, Unavailable
from penstock.kernel.description import (
    find_description,
    make_description,
    read_description,
    write_description,
)
from penstock.kernel.kernel import Kernel
from penstock.model.clock import now_us
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.references import Kind, Reference
from penstock.stores import DATABASE_FILE, open_store
from penstock.stores.port import Store
from penstock.stores.urls import split_url

PREFIX: Final = "bench/"
HOME: Final = f"{PREFIX}home"
"""The default branch of a lake that was made to be measured."""
NOTE: Final = b"penstock bench"
"""The note of every branch that was made to be measured."""
AT_ONCE: Final = 16
"""How many branches are made or deleted at the same time."""


class BenchmarkLake:
    """A lake to measure in: it makes branches, and knows which ones it made."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._kernel = Kernel(store)
        self._prefix = f"{PREFIX}{uuid4().hex[:12]}/"
        self._made: list[str] = []
        self._first: ObjectId | None = None

    def create_branches(self, number: int) -> list[str]:
        """So many branches, each with the tables that the load changes."""
        if self._first is None:
            self._first = self._fill_branch(self._create_branch(f"{self._prefix}00", NO_COMMIT))
        names = [f"{self._prefix}{place:02}" for place in range(number)]
        first = self._first
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(lambda name: self._create_branch(name, first), names[len(self._made) :]))
        return names

    def _create_branch(self, name: str, at: ObjectId) -> str:
        self._made.append(name)
        self._kernel.references.create_reference(name, Kind.BRANCH, at, note=NOTE)
        return name

    def _fill_branch(self, branch: str) -> ObjectId:
        tables = [make_put(table, 0) for table in range(TABLES)]
        return self._kernel.commit(branch, tables, META, create_namespaces=True).head

    def delete_branches(self) -> None:
        """Delete the branches that were made here; their objects are the sweep's."""
        _delete_branches(self._kernel, self._made)


@contextmanager
def own_lake(target: str) -> Iterator[BenchmarkLake]:
    """A lake in an empty store, for as long as the context lasts; then the store is as empty as before.

    ``InvalidRequest`` if there is a lake, or anything else.
    """
    traces = _LeftBranches(target)
    store = open_store(target, True, now_us)
    is_erased = False
    try:
        _require_empty(store)
        mine = make_description(now_us(), HOME, "", ())
        write_description(store, mine)
        try:
            Kernel(store).references.create_reference(HOME, Kind.BRANCH, NO_COMMIT, note=NOTE)
            yield BenchmarkLake(store)
        finally:
            with _cleanup_errors_explained(store):
                if read_description(store).id != mine.id:
                    raise InvalidRequest(f"the lake at {store.url} was replaced; it is left as it is")
                store.erase()
            is_erased = True
    finally:
        store.close()
        if is_erased:
            traces.remove()


@contextmanager
def open_guest_lake(target: str) -> Iterator[BenchmarkLake]:
    """Branches in a lake that is there, until the context ends. Other branches are not touched."""
    store = open_store(target, False, now_us)
    try:
        read_description(store)
        site = BenchmarkLake(store)
        try:
            yield site
        finally:
            with _cleanup_errors_explained(store):
                site.delete_branches()
    finally:
        store.close()


class CleanupResult(NamedTuple):
    """What was removed, and where."""

    url: str
    branches: int


def clean_up(target: str) -> CleanupResult:
    """Remove what a measurement left behind that was killed, and say how many branches that were.

    A lake that was made for a measurement is erased. No measurement may be under way.
    """
    store = open_store(target, False, now_us)
    try:
        lake = read_description(store)
        kernel = Kernel(store)
        branches = list(kernel.references.list_all_references(Kind.BRANCH))
        own_names = [branch.name for branch in branches if branch.note == NOTE]
        if lake.default_branch != HOME:
            return CleanupResult(store.url, _delete_branches(kernel, own_names))
        if len(own_names) < len(branches) or kernel.references.list_references(Kind.TAG, limit=1):
            raise InvalidRequest(
                f"the lake at {store.url} was made by 'penstock bench', but somebody else uses it too; "
                "it is left as it is"
            )
        store.erase()
        return CleanupResult(store.url, len(own_names))
    finally:
        store.close()


def _delete_branches(kernel: Kernel, names: Sequence[str]) -> int:
    def delete(name: str) -> Reference | None:
        with suppress(ReferenceNotFound):  # interrupted before it was made, or deleted by somebody else
            return kernel.references.delete_reference(name, kind=Kind.BRANCH, leave_log=False)
        return None

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return sum(reference is not None for reference in threads.map(delete, names))


def _require_empty(store: Store) -> None:
    if find_description(store) is not None:
        raise InvalidRequest(
            f"there is a lake at {store.url}. Give an empty store, which is erased afterwards, or say "
            "--in-lake to measure in this lake, on branches that are deleted afterwards.",
            url=store.url,
        )
    rows = (row for kind in Kind for row in store.references(kind.value, limit=1))
    objects, _ = store.scan(b"", 1)
    if objects or next(rows, None) is not None:
        raise InvalidRequest(f"{store.url} is not empty, and not a lake either; it is left as it is")


@contextmanager
def _cleanup_errors_explained(store: Store) -> Iterator[None]:
    """A failure to tidy up says what to do about it."""
    try:
        yield
    except InvalidRequest:
        raise
    except PenstockError as problem:
        raise Unavailable(
            f"what was measured at {store.url} could not be removed: {problem}\n"
            "  'penstock bench --clean' with the same address removes it later."
        ) from problem


class _LeftBranches:
    """What opening a store makes on this machine's disk: of that, what was not there before is removed."""

    def __init__(self, target: str) -> None:
        database, directory = _find_local_paths(target)
        self._database = database if database is not None and not database.exists() else None
        self._directory = directory if directory is not None and not directory.exists() else None
        place = database.parent if database is not None else directory
        around = () if place is None else (place, *place.absolute().parents)
        self._around = [path for path in around if not path.exists()]

    def remove(self) -> None:
        if self._database is not None:
            for suffix in ("", "-wal", "-shm"):
                self._database.with_name(self._database.name + suffix).unlink(missing_ok=True)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        for directory in self._around:
            with suppress(OSError):  # it is gone already, or somebody else put something there
                directory.rmdir()


def _find_local_paths(target: str) -> tuple[Path | None, Path | None]:
    """The database file, or the directory, of a store that is on this machine's disk."""
    if target.startswith(("rocksdb://", "file://")):
        return None, Path(unquote(split_url(target).path))
    if target.startswith("memory:") or ("://" in target and not target.startswith("sqlite://")):
        return None, None
    path = Path(target.removeprefix("sqlite://"))
    return path if path.name == DATABASE_FILE else path / DATABASE_FILE, None
