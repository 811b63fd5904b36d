"""Listing references by kind and prefix, some at a time, without reading the rest."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidRequest
from penstock.kernel.reference_rows import encode_reference_row
from penstock.lake.lake import Lake
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind, Reference
from penstock.stores.sqlite import SqliteStore
from tests.queue.hooks import HookedStore, new_lake, table


def _tag(number: int) -> Reference:
    return Reference(
        kind=Kind.TAG,
        name=f"release/{number:06}",
        head=NO_COMMIT,
        incarnation=number.to_bytes(16, "big"),
        log=NO_COMMIT,
        position=0,
        created_us=0,
    )


class StepCountingStore(SqliteStore):
    """Counts the steps that SQLite's machine takes: a row that is looked at costs some."""

    steps = 0

    def _open_connection(self) -> sqlite3.Connection:
        connection = super()._open_connection()
        connection.set_progress_handler(self._step, 1)
        return connection

    def _step(self) -> int:
        self.steps += 1
        return 0


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake with ten branches and 100,000 tags."""
    place: Path = tmp_path_factory.mktemp("crowded") / "penstock.db"
    store = StepCountingStore(place)
    lake = new_lake(store)
    for number in range(9):
        lake.branch(f"work/{number}").create()
    with sqlite3.connect(place) as connection:
        connection.executemany(
            "INSERT INTO refs VALUES (?, ?, ?)", (encode_reference_row(_tag(n)) for n in range(100_000))
        )
    connection.close()
    yield lake
    lake.close()


def _steps(lake: Lake) -> int:
    store = lake.kernel.store
    assert isinstance(store, StepCountingStore)
    steps, store.steps = store.steps, 0
    return steps


def test_listing_ten_branches_among_100_000_tags_does_not_read_the_tags(crowded: Lake) -> None:
    _steps(crowded)
    branches = crowded.branches()
    assert [branch.name for branch in branches] == ["main", *(f"work/{number}" for number in range(9))]
    assert _steps(crowded) < 1000
    crowded.tags(limit=2000)
    assert _steps(crowded) > 2000, "or the counting does not count"


def test_a_page_of_tags_does_not_read_the_others(crowded: Lake) -> None:
    _steps(crowded)
    page = crowded.tags(limit=10, after="release/050000")
    assert [tag.name for tag in page] == [f"release/{number:06}" for number in range(50_001, 50_011)]
    assert _steps(crowded) < 1000
    found = crowded.tags("release/0777", limit=1000)
    assert [tag.name for tag in found] == [f"release/{number:06}" for number in range(77_700, 77_800)]
    assert _steps(crowded) < 5000


def test_finding_creating_and_deleting_one_among_many_does_not_read_the_others(crowded: Lake) -> None:
    _steps(crowded)
    crowded.branch("new").create()
    crowded.branch("new").put("a", table())
    assert crowded.branch("new").exists
    crowded.branch("new").delete()
    assert crowded.deleted("new") == ["new"]
    assert _steps(crowded) < 5000


# --- on every store ---------------------------------------------------------------------------------------


def test_each_kind_is_listed_apart_in_order_of_name(lake: Lake) -> None:
    for name in ("zeta", "alpha", "a/b", "Upper"):
        lake.branch(name).create()
    for name in ("v2", "v1", "v10"):
        lake.tag(name).create()
    lake.branch("gone").create()
    lake.branch("gone").delete()
    assert [one.name for one in lake.branches()] == ["Upper", "a/b", "alpha", "main", "zeta"]
    assert [one.name for one in lake.tags()] == ["v1", "v10", "v2"]
    assert lake.deleted() == ["gone"]


def test_a_prefix_chooses_names_that_begin_with_it(lake: Lake) -> None:
    for name in ("job/1", "job/2", "jo", "jobs", "k", "j_b"):
        lake.branch(name).create()
    assert [one.name for one in lake.branches("job/")] == ["job/1", "job/2"]
    assert [one.name for one in lake.branches("job")] == ["job/1", "job/2", "jobs"]
    assert lake.branches("j%") == []
    assert [one.name for one in lake.branches("main")] == ["main"]
    assert lake.branches("mainly") == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_follow_each_other_without_gap_or_repetition(lake: Lake, limit: int) -> None:
    names = [f"job/{number}" for number in range(7)]
    for name in [*names, "other"]:
        lake.branch(name).create()
    found: list[str] = []
    while page := lake.branches("job/", after=found[-1] if found else "", limit=limit):
        assert len(page) <= limit
        found += [one.name for one in page]
    assert found == names


def test_a_page_goes_on_after_a_name_that_is_gone(lake: Lake) -> None:
    for name in ("a", "b", "c"):
        lake.branch(name).create()
    lake.branch("b").delete()
    assert [one.name for one in lake.branches(after="b", limit=1)] == ["c"]


def test_going_on_after_a_name_needs_no_limit(lake: Lake) -> None:
    for name in ("a", "b", "x"):
        lake.branch(name).create()
    assert [one.name for one in lake.branches(after="b")] == ["main", "x"]


def test_a_page_reads_no_more_rows_than_it_returns(lake: Lake, store: HookedStore) -> None:
    for number in range(20):
        lake.tag(f"t{number:02}").create()
    store.rows_read = 0
    assert len(lake.tags(limit=3)) == 3
    assert store.rows_read == 3
    store.rows_read = 0
    assert len(lake.branches()) == 1
    assert store.rows_read == 1


def test_all_are_listed_beyond_one_page(lake: Lake, store: HookedStore) -> None:
    for number in range(2500):
        row = encode_reference_row(_tag(number))
        with store.inner.turn(row.name) as turn:
            turn.advance({}, row)
    assert len(lake.tags()) == 2500


@pytest.mark.parametrize("limit", [-1, -100])
def test_a_limit_below_nothing_is_refused(lake: Lake, limit: int) -> None:
    with pytest.raises(InvalidRequest, match="limit"):
        lake.branches(limit=limit)


def test_a_limit_of_nothing_lists_nothing(lake: Lake) -> None:
    assert lake.branches(limit=0) == []
