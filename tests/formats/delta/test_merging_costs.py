"""What a merge of a Delta table costs: what the sides changed, and not what the lake or the table holds.

Costs are what a process that knows nothing yet asks of the store, and whether it reads the table's storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from penstock.storage.places import Place, Places
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing import CountingStore
from penstock.testing.counting_store import Counts
from tests.formats.delta.managed import Owner, add, days, remove


class Watched(Places):
    """Table storage, and how often somebody went there."""

    visits = 0

    def open_place(self, location: str) -> Place:
        self.visits += 1
        return super().open_place(location)


@contextmanager
def owning(store: Store, directory: Path, places: Places | None = None) -> Iterator[Owner]:
    owner = Owner(store, directory, places=places)
    yield owner
    owner.close()


def other_tables(owner: Owner, number: int) -> None:
    puts = [
        Put(Key.parse(f"t{one:05}"), IcebergTable(metadata_location=f"s3://b/{one}")) for one in range(number)
    ]
    for start in range(0, number, 1000):
        owner.kernel.commit("main", puts[start : start + 1000])


def files(owner: Owner, number: int) -> None:
    owner.commit([add(f"f{one:05}", f"d{one % 100}") for one in range(number)])


def commits(owner: Owner, number: int) -> None:
    for one in range(number):
        owner.commit([add(f"c{one:05}", "d1")])
    owner.publisher.publish_line(owner.content())


def append(owner: Owner, branch: str) -> None:
    owner.commit([add("new", "d2")], branch=branch, has_new_files=True)


def delete(owner: Owner, branch: str) -> None:
    reads = DeltaReads(files=frozenset({"some"}))
    owner.commit([remove("some", "tue"), add("rest", "tue")], branch=branch, reads=reads, has_new_files=True)


def replace(owner: Owner, branch: str) -> None:
    owner.commit([add("instead", "wed")], branch=branch, replaces=(days("wed"),))


WORKS = {"append": append, "delete": delete, "replace": replace}
GROWS = {
    "tables in the lake": (other_tables, 100, 10_000),
    "files in the table": (files, 100, 10_000),
    "commits of the table": (commits, 100, 1_500),
}


def costs(directory: Path, fill: Callable[[Owner, int], None], number: int) -> dict[str, tuple[Counts, int]]:
    """What merges of a branch each ask of the store, and how often they go to table storage, where main has
    changed too."""
    store = MemoryStore()
    with owning(store, directory) as owner:
        owner.create(partition_by=["day"])
        owner.commit([add("some", "tue"), add("other", "wed")])
        fill(owner, number)
        for name, work in WORKS.items():
            owner.branch(name)
            work(owner, name)
        owner.commit([add("beside", "d1")])
        owner.publisher.publish_line(owner.content())
    found = {}
    for name in WORKS:
        counting, places = CountingStore(store), Watched()
        with owning(counting, directory, places) as owner:
            before, latest = counting.counts, owner.line().latest
            owner.kernel.merge(
                owner.kernel.references.get_reference(name).head, "main", CommitMeta(message="land")
            )
            assert owner.line().latest == latest + 1
            found[name] = counting.counts - before, places.visits
    store.close()
    return found


@pytest.mark.parametrize("grows", GROWS)
def test_a_merge_costs_what_was_changed_however_much_there_is(grows: str, tmp_path: Path) -> None:
    fill, few, many = GROWS[grows]
    small, large = (costs(tmp_path / str(one), fill, one) for one in (few, many))
    for name, (cost, visits) in large.items():
        before, _ = small[name]
        assert cost.requests <= before.requests + 10, "a level or two more of each tree"
        assert cost.objects_read <= before.objects_read + 12
        assert cost.objects_written <= before.objects_written + 2
        assert cost.bytes_written <= before.bytes_written + 4096
        assert cost.bytes_read <= before.bytes_read + 64 * 1024
        if name != "replace":  # which has to find what it replaces
            assert visits == 0, "what a branch removed was there when the branch did"
