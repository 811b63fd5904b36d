"""The drill and the stores and kernels broken on purpose, on every adapter there is.

Every adapter goes through a whole drill in ``make verify``, and a few of the mistakes. ``make test`` drills
those that need no server but PostgreSQL, and has the few mistakes noticed on one: that a mistake is noticed
does not hang on what lies below it. So ``make reliability`` has all mistakes noticed on that one adapter, and
each of them on one other in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.mark import ParameterSet

from penstock.model.clock import Clock
from penstock.stores.dynamodb import DynamoStore
from penstock.stores.mongodb import MongoStore
from penstock.stores.objectstore import ObjectStore
from penstock.stores.port import Store
from penstock.stores.postgres import PostgresStore
from penstock.stores.rocksdb import RocksdbStore
from penstock.stores.sqlite import SqliteStore
from penstock.stores.wrapped import WrappedStore
from penstock.testing import BROKEN, FaultyStore
from penstock.testing.broken import Broken
from penstock.testing.drill import Drill, OpenData

ADAPTERS = ("sqlite", "rocksdb", "postgres", "mongodb", "dynamodb", "directory", "s3")
QUICK = ("sqlite", "rocksdb", "postgres", "directory")
LOCKING = ("sqlite", "postgres")
FEW = (
    "replaces a row without comparing it",
    "swaps before the objects are there",
    "forgets that it has seen a request",
)
BY_DRILL = [one for one in BROKEN if one.noticed_by != {"contract"}]
OTHERS = ADAPTERS[1:]
WAIT_S = 0.5
SERVER_WAIT_S = 2.0


class _Shared(WrappedStore):
    """One handle for all who open the store: they are threads of one process."""

    def close(self) -> None:
        """It is closed at the end of the test."""


class Place(NamedTuple):
    """Where a drill keeps its data."""

    open_data: OpenData
    locks: bool

    def drill(self, wrap: Callable[[Store], Store] = lambda store: store) -> Drill:
        """A drill in which writers can come between each other, which a lock would keep apart."""
        if not self.locks:
            return Drill(wrap, open_data=self.open_data)
        return Drill(lambda store: wrap(FaultyStore(store, locking=False)), open_data=self.open_data)


def adapters(quick: Collection[str], other_than: str = "") -> list[ParameterSet]:
    """The adapters, of which `make test` takes the quick ones."""
    chosen = [one for one in ADAPTERS if one != other_than]
    return [pytest.param(one, marks=() if one in quick else pytest.mark.verify) for one in chosen]


@pytest.fixture(params=adapters(QUICK))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    shared: list[Store] = []

    def rocksdb(clock: Clock) -> Store:
        if not shared:
            shared.append(RocksdbStore(tmp_path / "lake", clock=clock))
        return _Shared(shared[0])

    def url(fixture: str) -> Any:
        return request.getfixturevalue(fixture)

    openers: dict[str, Callable[[], OpenData]] = {
        "sqlite": lambda: lambda clock: SqliteStore(tmp_path / "penstock.db", clock=clock),
        "rocksdb": lambda: rocksdb,
        "postgres": lambda: _at(url("postgres_schema_url"), PostgresStore),
        "mongodb": lambda: _at(url("mongodb_url"), MongoStore),
        "dynamodb": lambda: _at(url("dynamodb_place").url, DynamoStore),
        "directory": lambda: _at(f"file://{tmp_path}/lake", ObjectStore, announce_wait_s=WAIT_S),
        "s3": lambda: _at(url("s3_place").url, ObjectStore, announce_wait_s=SERVER_WAIT_S),
    }
    yield Place(openers[request.param](), request.param in LOCKING)
    for store in shared:
        store.close()


def _at(url: str, adapter: Callable[..., Store], **how: Any) -> OpenData:
    return lambda clock: adapter(url, clock=clock, **how)


def test_a_drill_finds_nothing_wrong(place: Place) -> None:
    found = place.drill().run()
    assert found.kinds == set(), str(found)
    assert found.accepted > 60
    assert found.refused >= 14


@pytest.mark.parametrize("place", LOCKING, indirect=True)
def test_a_drill_with_locks_finds_nothing_wrong(place: Place) -> None:
    found = Drill(open_data=place.open_data, locks=True).run()
    assert found.kinds == set(), str(found)
    assert found.accepted > 60


@pytest.mark.parametrize(
    "broken", [one for one in BY_DRILL if one.mistake in FEW], ids=lambda broken: broken.mistake
)
@pytest.mark.parametrize("place", adapters(["sqlite"], other_than="s3"), indirect=True)
def test_some_mistakes_are_noticed(place: Place, broken: Broken) -> None:
    _check_noticed(place, broken)


def in_turn() -> list[ParameterSet]:
    """Every mistake on the first adapter, and the next mistake on the next of the others."""
    return [
        pytest.param(adapter, broken, id=f"{adapter}-{broken.mistake}")
        for number, broken in enumerate(BY_DRILL)
        for adapter in (ADAPTERS[0], OTHERS[number % len(OTHERS)])
    ]


@pytest.mark.reliability
@pytest.mark.parametrize(("place", "broken"), in_turn(), indirect=["place"])
def test_every_mistake_is_noticed(place: Place, broken: Broken) -> None:
    _check_noticed(place, broken)


def _check_noticed(place: Place, broken: Broken) -> None:
    found = place.drill(broken.wrap).run(broken.tamper)
    wanted = broken.noticed_by - {"contract"}
    assert found.kinds >= wanted, f"it {broken.mistake}, and {found} was found"
