"""At its turn no change reads or writes table storage, whatever it is and whatever came in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.formats.delta.format import DeltaFormat
from penstock.formats.delta.protocol.actions import Action, Txn
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.kernel.format import AppliedChange, Table
from penstock.model.operations import Change
from penstock.storage.buckets import Bucket
from penstock.storage.local import LocalBucket
from penstock.storage.places import Places
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import Owner, add, days, remove


class Turn:
    """Whether a change is having its turn, and what was asked of storage then."""

    def __init__(self) -> None:
        self.is_now = False
        self.asked: list[str] = []
        self._between: list[Callable[[], object]] = []

    def interrupt(self, work: Callable[[], object]) -> None:
        """Have something happen before the next turn."""
        self._between.append(work)

    def come(self) -> None:
        while self._between:
            self._between.pop()()


TURN = Turn()


class WatchedFormat(DeltaFormat):
    def prepare(self, table: Table, change: Change) -> Any:
        result = super().prepare(table, change)
        TURN.come()
        return result

    def apply(self, table: Table, change: Change, prepared: Any) -> AppliedChange:
        TURN.is_now = True
        try:
            return super().apply(table, change, prepared)
        finally:
            TURN.is_now = False


class WatchedBucket(LocalBucket):
    async def _run_in_thread(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if TURN.is_now:
            TURN.asked.append(str(given[0] if given else work))
        return await super()._run_in_thread(work, *given, **named)


class WatchedPlaces(Places):
    def open_disk(self, root: Path) -> Bucket:
        return WatchedBucket(root, scratch="_penstock/unfinished")


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[tuple[Owner, Owner]]:
    """Two processes, of which the first is watched."""
    store = MemoryStore()
    TURN.__init__()  # type: ignore[misc]
    both = (Owner(store, tmp_path, kind=WatchedFormat, places=WatchedPlaces()), Owner(store, tmp_path))
    yield both
    for owner in both:
        owner.close()


def _large() -> list[Action]:
    return [add(f"{number}-{'x' * 100}", "z") for number in range(1000)]


@pytest.mark.parametrize("winner", ["assigned", "given", "published"])
@pytest.mark.parametrize(
    "how",
    [
        {"actions": [add("new", "x")]},
        {"actions": _large()},
        {"actions": [remove("b", "y"), add("new", "y")]},
        {"actions": [add("new", "x"), Txn(app_id="app", version=1)]},
        {"actions": [add("new", "x")], "replaces": (days("x"),)},
        {"actions": [add("new", "x"), *_large()], "replaces": ()},
        {"actions": [remove("b", "y")], "read_version": 1, "reads": DeltaReads(partitions=(days("y"),))},
        {"actions": [add("new", "x")], "version": 2},
    ],
    ids=["append", "large", "remove", "batch", "replace", "large replace", "read", "version"],
)
def test_at_its_turn_nothing_is_asked_of_table_storage(
    owners: tuple[Owner, Owner], how: dict[str, Any], winner: str
) -> None:
    owner, other = owners
    owner.create(partition_by=["day"])
    owner.commit([add("a", "x"), add("b", "y")])

    def between() -> None:
        if "version" in how:
            return
        other.commit([add("c", "x")], version=2 if winner == "given" else None)
        if winner == "published":
            other.published()
            other.commit([add("d", "x")])

    TURN.interrupt(between)
    owner.commit(**how)
    assert TURN.asked == []
    assert {one.path for one in owner.published().read_files()} == other.paths()
