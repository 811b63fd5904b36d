"""Both ways land the same commits; the naive one by a swap each, and by beginning anew when it lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from penstock.bench.benchmark_lake import BenchmarkLake
from penstock.bench.commit_strategies import META, CommitStrategy, NaiveLoop
from penstock.bench.load import TABLES, LoadShape, WriterLoad, make_put
from penstock.bench.tally_store import TallyStore
from penstock.errors import Damaged, OutcomeUnknown
from penstock.kernel.kernel import Kernel
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult, Row, Store, Turn
from penstock.stores.sqlite import SqliteStore
from penstock.stores.wrapped import Advance
from penstock.testing.samples import scan_all

FAMILIES: dict[str, Callable[[Path], Store]] = {
    "objects first, then a swap": lambda _: MemoryStore(),
    "transactions": lambda place: SqliteStore(place / "penstock.db"),
}


@pytest.fixture(params=FAMILIES)
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = FAMILIES[request.param](tmp_path)
    yield store
    store.close()


@pytest.fixture
def store(inner: Store) -> TallyStore:
    return TallyStore(inner)


def depth(store: Store, branch: str) -> int:
    kernel = Kernel(store)
    return kernel.history.read_commit(kernel.references.get_reference(branch).head).depth


@pytest.mark.parametrize("way", CommitStrategy)
def test_what_is_said_to_have_landed_is_on_the_branch(store: TallyStore, way: CommitStrategy) -> None:
    branch, *_ = branches = BenchmarkLake(store).create_branches(1)
    load, stop = WriterLoad(LoadShape.ONE_BRANCH, 4, branches), Event()
    committing, barrier = way.start(store, 4, stop), Barrier(4)
    landed: list[bool] = []

    def write(writer: int) -> None:
        barrier.wait()
        landed.extend(committing.commit_once(writer, branch, load.next_operation(writer)) for _ in range(5))

    before, at_first = store.tally, depth(store, branch)
    threads = [Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert landed == [True] * 20
    assert all(tries >= 5 for tries in committing.tries)
    assert depth(store, branch) == at_first + 20
    swaps = (store.tally - before).swaps
    assert swaps == 20 if way is CommitStrategy.NAIVE else 1 <= swaps <= 20


class Overtaking(TallyStore):
    """Lets somebody else commit right after the naive loop has read the row, so many times."""

    def __init__(self, inner: Store, times: int) -> None:
        super().__init__(inner)
        self._other, self._times = Kernel(inner), times

    def reference(self, name: str) -> Row | None:
        row = super().reference(name)
        if self._times:
            self._times -= 1
            self._other.commit(name, [make_put(TABLES - 1, self._times + 1)], META)
        return row


def test_a_naive_writer_who_was_overtaken_begins_anew(inner: Store) -> None:
    branch, *_ = BenchmarkLake(inner).create_branches(1)
    store, at_first = Overtaking(inner, times=3), depth(inner, branch)
    naive = NaiveLoop(store, 1, Event())
    assert naive.commit_once(0, branch, make_put(0, 1))
    assert depth(inner, branch) == at_first + 4
    assert (store.tally.swaps, store.tally.lost_swaps) == (1, 3)
    assert naive.tries == [4]


def test_a_naive_writer_who_is_always_overtaken_ends_when_the_time_is_up(inner: Store) -> None:
    stop = Event()

    class Ending(Overtaking):
        def count_swap(self, advanced: AdvanceResult) -> None:
            super().count_swap(advanced)
            if self.tally.lost_swaps == 3:
                stop.set()

    branch, *_ = BenchmarkLake(inner).create_branches(1)
    store = Ending(inner, times=1000)
    assert not NaiveLoop(store, 1, stop).commit_once(0, branch, make_put(0, 1))
    assert (store.tally.swaps, store.tally.lost_swaps) == (0, 3)


def test_a_naive_writer_who_got_no_answer_begins_anew(inner: Store) -> None:
    class Silent(TallyStore):
        def advance(self, turn: Turn, wish: Advance) -> AdvanceResult:
            advanced = super().advance(turn, wish)
            if self.tally.swaps == 1:
                raise OutcomeUnknown("no answer")
            return advanced

    branch, *_ = BenchmarkLake(inner).create_branches(1)
    store, at_first = Silent(inner), depth(inner, branch)
    assert NaiveLoop(store, 1, Event()).commit_once(0, branch, make_put(0, 1))
    assert depth(inner, branch) == at_first + 2, "nobody can tell it that it had landed"


def test_a_row_from_memory_costs_no_call() -> None:
    store, row = TallyStore(MemoryStore()), Row("main", "branch", b"row")
    with store.turn("main") as turn:
        assert turn.advance({}, row).swapped
    assert store.tally.calls == 2
    with store.turn("main", row) as turn:
        assert turn.advance({}, row._replace(data=b"new")).swapped
    assert store.tally.calls == 3
    with store.turn("main", row) as turn:
        assert not turn.advance({}, row).swapped
    assert (store.tally.swaps, store.tally.lost_swaps) == (2, 1)


@pytest.mark.parametrize("way", CommitStrategy)
def test_an_error_that_no_waiting_cures_is_raised(store: TallyStore, way: CommitStrategy) -> None:
    branch, *_ = BenchmarkLake(store).create_branches(1)
    head = Kernel(store).references.get_reference(branch).head
    store.delete([one for one in scan_all(store) if one.id == head])
    with pytest.raises(Damaged):
        way.start(store, 1, Event()).commit_once(0, branch, make_put(0, 1))
