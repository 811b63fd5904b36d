"""What is counted: the time after the warm-up, every commit in it, and nothing else."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from penstock.bench.benchmark import BenchmarkComparison, BenchmarkPlan, run_benchmark
from penstock.bench.benchmark_lake import BenchmarkLake
from penstock.bench.commit_strategies import CommitStrategy
from penstock.bench.load import LoadShape, WriterLoad
from penstock.bench.measure import LoadMeasurement, measure_writers
from penstock.bench.tally_store import StoreTally, TallyStore
from penstock.errors import Denied
from penstock.kernel.kernel import Kernel
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult, Turn
from penstock.stores.wrapped import Advance
from tests.queue.hooks import wait_until


def measured(commits: int, seconds: float = 2.0) -> LoadMeasurement:
    latencies_s = tuple((number + 1) / 1000 for number in range(commits))
    return LoadMeasurement(
        seconds=seconds, latencies_s=latencies_s, tally=StoreTally(calls=300, swaps=50, lost_swaps=1)
    )


def test_figures_of_a_measurement() -> None:
    found = measured(100)
    assert (found.commits, found.commits_per_s) == (100, 50.0)
    assert found.latency_ms(0.5) == pytest.approx(51)
    assert found.latency_ms(0.99) == pytest.approx(100)
    assert found.latency_ms(1) == pytest.approx(100)
    assert (found.commits_per_swap, found.calls_per_commit) == (2.0, 3.0)


def test_a_measurement_without_commits_has_no_averages() -> None:
    nothing = LoadMeasurement(seconds=1.0, latencies_s=(), tally=StoreTally())
    assert (nothing.commits_per_s, nothing.commits_per_swap, nothing.calls_per_commit) == (0, None, None)
    assert nothing.latency_ms(0.5) is None


def test_the_ratio_compares_rates() -> None:
    def pair(naive: LoadMeasurement | None) -> BenchmarkComparison:
        return BenchmarkComparison(shape=LoadShape.ONE_BRANCH, writers=1, group=measured(100), naive=naive)

    assert pair(measured(20, seconds=4.0)).times_naive == 10
    assert pair(None).times_naive is None
    assert pair(measured(0)).times_naive is None


class Noting(TallyStore):
    """Notes every tally that is taken of it. The second one is taken when some more swaps were made."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.taken: list[StoreTally] = []

    @property
    def tally(self) -> StoreTally:
        if len(self.taken) == 1:
            enough = super().tally.swaps + 5
            wait_until(lambda: super(Noting, self).tally.swaps >= enough)
        self.taken.append(super().tally)
        return self.taken[-1]


def test_commits_are_those_of_the_branch_and_the_warm_up_is_left_out() -> None:
    """A clock cannot be read at the same instant as a tally: between the two, any number may land."""
    store = Noting()
    branch, *_ = branches = BenchmarkLake(store.inner).create_branches(1)
    found = measure_writers(
        store, WriterLoad(LoadShape.ONE_BRANCH, 2, branches), CommitStrategy.NAIVE, 0.2, 0.2
    )
    kernel = Kernel(store)
    landed = kernel.history.read_commit(kernel.references.get_reference(branch).head).depth - 1
    assert 3 <= found.commits < landed, "of five swaps, each writer's last may not be acknowledged"
    assert found.seconds >= 0.2
    before, after = store.taken
    assert found.tally == after - before
    assert 0 < before.swaps < after.swaps


@pytest.mark.parametrize("way", CommitStrategy)
def test_nothing_counts_before_every_writer_has_been_at_all_its_branches(way: CommitStrategy) -> None:
    class Gated(TallyStore):
        """Keeps the last branch from moving until it is opened."""

        opened = Event()

        def advance(self, turn: Turn, wish: Advance) -> AdvanceResult:
            if wish.name == branches[-1]:
                assert self.opened.wait(60)
            return super().advance(turn, wish)

    store = Gated(MemoryStore())
    branches = BenchmarkLake(store.inner).create_branches(4)
    load, found = WriterLoad(LoadShape.MANY_BRANCHES, 2, branches), list[LoadMeasurement]()
    thread = Thread(target=lambda: found.append(measure_writers(store, load, way, 0.01, 0.0)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive(), "it measured although a writer had not been at the last branch"
    store.opened.set()
    thread.join(60)
    assert len(found) == 1


def test_an_error_of_one_writer_ends_the_measurement() -> None:
    class Refusing(TallyStore):
        def advance(self, turn: Turn, wish: Advance) -> AdvanceResult:
            if self.tally.swaps == 20:
                raise Denied("no more")
            return super().advance(turn, wish)

    store = Refusing(MemoryStore())
    branches = BenchmarkLake(store).create_branches(1)
    with pytest.raises(Denied, match="no more"):
        measure_writers(
            store, WriterLoad(LoadShape.ONE_BRANCH, 4, branches), CommitStrategy.GROUP_COMMIT, 600, 600
        )


def test_a_plan_is_carried_out_in_its_order() -> None:
    plan = BenchmarkPlan(writers=(1, 2), seconds=0.01)
    announced: list[tuple[LoadShape, int, CommitStrategy]] = []
    pairs = list(run_benchmark(BenchmarkLake(MemoryStore()), plan, lambda *what: announced.append(what)))
    assert announced == [
        (shape, writers, way) for shape in LoadShape for writers in (1, 2) for way in CommitStrategy
    ]
    assert [(pair.shape, pair.writers) for pair in pairs] == [(s, w) for s in LoadShape for w in (1, 2)]
    assert len(announced) == plan.measurements
    assert plan.takes_s == pytest.approx(12 * 0.012)


def test_without_the_naive_loop_there_is_half_as_much_to_do() -> None:
    plan = BenchmarkPlan(shapes=(LoadShape.ONE_TABLE,), writers=(3,), seconds=0.01, naive=False)
    [pair] = run_benchmark(BenchmarkLake(MemoryStore()), plan)
    assert (plan.measurements, pair.naive, pair.times_naive) == (1, None, None)
