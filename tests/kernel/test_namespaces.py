"""Namespaces (K6): a table needs its own, and one that goes is empty, whoever else writes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread

import pytest

from penstock.errors import CommitConflict
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.operations import Delete, Operation, Put
from penstock.stores.memory import MemoryStore
from penstock.testing import FaultyStore, Point
from tests.kernel.brute_force import told
from tests.kernel.lakes import (
    Ticking,
    commit,
    head,
    new_kernel,
    places,
    puts,
    reopened,
    state,
    stored,
    table,
)

T = Key("t")
NS = Key("ns")
INSIDE = Key("ns", "t")


def _refused(kernel: Kernel, operations: list[Operation], create: bool = False) -> tuple[Conflict, ...]:
    """The conflicts that a commit meets; nothing may be stored."""
    before = stored(kernel.store)
    with pytest.raises(CommitConflict) as refused:
        kernel.commit("main", operations, CommitMeta(), create_namespaces=create)
    assert stored(kernel.store) == before
    return refused.value.conflicts


def test_a_put_needs_its_namespaces_k6() -> None:
    kernel = new_kernel()
    deep = Key("a", "b", "t")
    assert told(_refused(kernel, [Put(deep, table(1))])) == {
        (ConflictKind.NAMESPACE_ABSENT, Key("a")),
        (ConflictKind.NAMESPACE_ABSENT, Key("a", "b")),
    }
    commit(kernel, "main", [Put(deep, table(1)), Put(Key("a", "b"), Namespace()), Put(Key("a"), Namespace())])
    assert list(places(kernel)) == ["a", "a.b", "a.b.t"]


def test_a_table_is_no_namespace_k6() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    for create in (False, True):
        conflicts = _refused(kernel, [Put(Key("t", "u"), table(1))], create=create)
        assert told(conflicts) == {(ConflictKind.NOT_A_NAMESPACE, T)}


def test_a_namespace_that_is_deleted_must_be_empty_k6() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [Put(NS, Namespace()), Put(Key("ns2"), Namespace()), Put(INSIDE, table(1))])
    assert told(_refused(kernel, [Delete(NS)])) == {(ConflictKind.NAMESPACE_NOT_EMPTY, NS)}
    assert told(_refused(kernel, [Delete(NS), Put(NS, table(1))])) == {(ConflictKind.NAMESPACE_NOT_EMPTY, NS)}
    commit(kernel, "main", [Delete(NS), Delete(INSIDE)])
    assert places(kernel) == {"ns2": "NAMESPACE"}


def test_a_namespace_can_be_renamed_with_what_is_in_it_k6() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [Put(NS, Namespace()), Put(INSIDE, table(1))])
    held = state(kernel)
    commit(
        kernel,
        "main",
        [Delete(NS), Delete(INSIDE), Put(Key("new"), held[NS]), Put(Key("new", "t"), held[INSIDE])],
    )
    assert state(kernel) == {Key("new"): held[NS], Key("new", "t"): held[INSIDE]}


def test_namespaces_are_created_where_asked_and_only_where_missing_k6() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [Put(Key("a"), Namespace(properties={"kept": "1"}))])
    before = state(kernel)[Key("a")]
    kernel.commit(
        "main",
        [Put(Key("a", "b", "t"), table(1)), Put(Key("a", "b", "u"), table(1)), Put(Key("c", "t"), table(1))],
        CommitMeta(),
        create_namespaces=True,
    )
    held = state(kernel)
    assert held[Key("a")] == before
    assert [str(key) for key, content in held.items() if isinstance(content, Namespace)] == ["a", "a.b", "c"]
    assert len({content.id for content in held.values()}) == len(held)


def _interfered(meanwhile: Callable[[Kernel], object], start: list[Operation]) -> Kernel:
    """A kernel whose next commit finds that another process was faster, and did what it is told."""
    clock = Ticking()
    inner = MemoryStore(clock)
    other = new_kernel(inner, clock=clock)
    if start:
        commit(other, "main", start)
    faulty = FaultyStore(inner)
    kernel = new_kernel(faulty, clock=clock)
    faulty.at(Point.BEFORE_OBJECTS, lambda: meanwhile(other) and None)
    return kernel


def test_a_namespace_that_another_process_creates_first_is_used_k6() -> None:
    def create(other: Kernel) -> None:
        other.commit("main", [Put(Key("ns", "a"), table(1))], CommitMeta(), create_namespaces=True)

    kernel = _interfered(create, [])
    kernel.commit("main", [Put(Key("ns", "b"), table(1))], CommitMeta(), create_namespaces=True)
    assert places(kernel) == {"ns": "NAMESPACE", "ns.a": "1", "ns.b": "1"}
    first, second = (kernel.resolve_revision(name)[0] for name in ("main~1", "main"))
    assert state(kernel, first)[NS] == state(kernel, second)[NS]


def test_a_namespace_that_another_process_deletes_meanwhile_is_missed_k6() -> None:
    kernel = _interfered(lambda other: commit(other, "main", [Delete(NS)]), [Put(NS, Namespace())])
    with pytest.raises(CommitConflict) as refused:
        commit(kernel, "main", [Put(INSIDE, table(1))])
    assert told(refused.value.conflicts) == {(ConflictKind.NAMESPACE_ABSENT, NS)}
    assert places(kernel) == {}


def test_a_namespace_that_another_process_fills_meanwhile_is_not_deleted_k6() -> None:
    kernel = _interfered(lambda other: commit(other, "main", [Put(INSIDE, table(1))]), [Put(NS, Namespace())])
    with pytest.raises(CommitConflict) as refused:
        commit(kernel, "main", [Delete(NS)], base=head(kernel))
    assert told(refused.value.conflicts) == {(ConflictKind.NAMESPACE_NOT_EMPTY, NS)}
    assert places(kernel) == {"ns": "NAMESPACE", "ns.t": "1"}


def test_a_key_that_another_process_changes_meanwhile_is_a_conflict_for_who_read_it() -> None:
    kernel = _interfered(lambda other: commit(other, "main", puts(t=2)), puts(t=1))
    with pytest.raises(CommitConflict) as refused:
        commit(kernel, "main", puts(t=3), base=head(kernel))
    assert told(refused.value.conflicts) == {(ConflictKind.VALUE_DIFFERS, T)}
    assert places(kernel) == {"t": "2"}


def test_many_threads_that_create_the_same_namespaces_at_once_all_succeed() -> None:
    kernel = new_kernel()
    kernels = [kernel, reopened(kernel)]
    barrier = Barrier(8)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        barrier.wait()
        try:
            for turn in range(5):
                put = Put(Key("a", f"b{turn}", f"t{number}"), table(number))
                kernels[number % 2].commit("main", [put], CommitMeta(), create_namespaces=True)
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    held = places(reopened(kernel))
    assert len(held) == 1 + 5 + 40
    line = [one for one, _ in kernel.walk_commits(head(kernel))]
    assert len(line) == 40
    assert {state(kernel, one)[Key("a")].id for one in line} == {state(kernel)[Key("a")].id}
