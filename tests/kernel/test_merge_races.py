"""Merges among other writers: every merge that landed is, after the fact, the right one for its parents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from threading import Barrier, Thread

import pytest

from penstock.errors import MergeConflict
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.testing import FaultyStore, Point
from tests.kernel.brute_force import Ambiguous, bring, virtual_base, wander
from tests.kernel.graphs import Graph
from tests.kernel.lakes import Ticking, branch, commit, head, new_kernel, places, puts, reopened, state

META = CommitMeta(message="merge")


def _graph_of(kernel: Kernel) -> Graph:
    """The graph of everything that a lake's branches lead to."""
    graph = Graph(kernel)
    for reference in kernel.references.list_all_references(Kind.BRANCH):
        for one, stored in kernel.walk_commits(reference.head, all_parents=True):
            graph.parents[one] = [stored.parent, *stored.further_parents]
    return graph


def _check_merges(kernel: Kernel) -> int:
    """Work out every merge again by brute force, and say how many there were."""
    graph = _graph_of(kernel)
    checked = 0
    for one, parents in graph.parents.items():
        if len(parents) < 2:
            continue
        target, source = parents
        bases = graph.merge_bases(target, source)
        assert source not in bases
        base, ambiguous = state(kernel, next(iter(bases))), Ambiguous()
        if len(bases) > 1:
            origins = graph.merge_bases(*sorted(bases)[:2])
            if len(bases) > 2 or len(origins) > 1:
                continue
            one_base, other = (state(kernel, each) for each in bases)
            base, ambiguous = virtual_base(one_base, other, state(kernel, origins.pop()))
        expected = bring(base, state(kernel, source), state(kernel, target), ambiguous=ambiguous)
        assert expected.conflicts == set()
        assert state(kernel, one) == expected.held
        checked += 1
    return checked


def _together(calls: Sequence[Callable[[], None]]) -> None:
    """Run calls in threads that start at once; the first failure is raised."""
    barrier = Barrier(len(calls))
    failures: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        barrier.wait()
        try:
            call()
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_merges_racing_with_commits_and_other_merges_are_right(seed: int, processes: int) -> None:
    kernel = new_kernel()
    wander(kernel, "main", Random(seed), 8)
    kernels = [kernel, *(reopened(kernel) for _ in range(processes - 1))]
    names = [branch(kernel, f"dev{number}") for number in range(4)]

    def develop(number: int) -> None:
        mine, random = kernels[number % processes], Random(100 * seed + number)
        for _ in range(8):
            wander(mine, names[number], random, 1)
            for source, into in ((names[number], "main"), ("main", names[number])):
                try:
                    mine.merge(head(mine, source), into, META)
                except MergeConflict:
                    continue

    def write(number: int) -> None:
        wander(kernels[number % processes], "main", Random(900 + 100 * seed + number), 8)

    _together(
        [*(partial(develop, number) for number in range(4)), *(partial(write, number) for number in range(2))]
    )
    cold = reopened(kernel)
    assert _check_merges(cold) > 3
    assert fsck(cold).damages == ()


def _queued(kernel: Kernel, store: FaultyStore, calls: list[Callable[[], object]]) -> None:
    """Have calls wait in this order behind a commit that is held up, so that one batch takes all of them."""
    gate = store.pause(Point.BEFORE_OBJECTS, name="main")
    threads = [Thread(target=commit, args=(kernel, "main", puts(first=1)))]
    threads[0].start()
    gate.wait_until_reached()
    queue = kernel._find_queue("main")
    for count, call in enumerate(calls, 1):
        threads.append(Thread(target=call))
        threads[-1].start()
        while len(queue._waiting) < 1 + count:
            threads[-1].join(0.001)
            assert threads[-1].is_alive()
    gate.open()
    for thread in threads:
        thread.join()


def _lake_with_branches() -> tuple[Kernel, FaultyStore, dict[str, ObjectId]]:
    clock = Ticking()
    store = FaultyStore(MemoryStore(clock))
    kernel = new_kernel(store, clock=clock)
    commit(kernel, "main", puts(t=1, u=1))
    heads = {}
    for name in ("one", "two"):
        branch(kernel, name)
        heads[name] = commit(kernel, name, puts(t=name, **{name: 1}))
    return kernel, store, heads


def test_a_merge_sees_what_the_commit_before_it_in_the_same_batch_did() -> None:
    kernel, store, heads = _lake_with_branches()
    refused: list[MergeConflict] = []

    def merge() -> None:
        try:
            kernel.merge(heads["one"], "main", META)
        except MergeConflict as conflict:
            refused.append(conflict)

    _queued(kernel, store, [lambda: commit(kernel, "main", puts(t=9)), merge])
    assert [str(one.key) for one in refused[0].conflicts] == ["t"]
    assert places(kernel) == {"first": "1", "t": "9", "u": "1"}


def test_two_merges_of_the_same_source_in_one_batch_are_one() -> None:
    kernel, store, heads = _lake_with_branches()
    results: list[tuple[str, ...]] = []

    def merge() -> None:
        results.append(kernel.merge(heads["one"], "main", META).commits)

    _queued(kernel, store, [merge, merge, lambda: commit(kernel, "main", puts(u=2))])
    assert sorted(map(len, results)) == [0, 1]
    assert places(kernel) == {"first": "1", "one": "1", "t": "one", "u": "2"}
    assert _check_merges(reopened(kernel)) == 1


def test_a_second_merge_in_a_batch_starts_from_what_the_first_one_brought() -> None:
    """What comes with ``two`` was merged into it from ``one``: after the first merge it is not new."""
    kernel, store, heads = _lake_with_branches()
    commit(kernel, "two", puts(t=1))
    kernel.merge(heads["one"], "two", META)
    source = commit(kernel, "two", puts(two=2))
    _queued(
        kernel,
        store,
        [lambda: kernel.merge(heads["one"], "main", META), lambda: kernel.merge(source, "main", META)],
    )
    assert places(kernel) == {"first": "1", "one": "1", "t": "one", "two": "2", "u": "1"}
    assert _check_merges(reopened(kernel)) == 3
    line = _graph_of(kernel).line(head(kernel))
    assert line[-1] == NO_COMMIT
    assert len(line) == 5
