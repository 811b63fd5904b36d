"""Swaps lost to another process: the batch is applied again to what landed, and nobody was told too early."""

from collections.abc import Callable

import pytest

from penstock.errors import CommitConflict, Denied, ReferenceChanged, ReferenceNotFound
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.operations import Operation, Put, Unchanged
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult
from tests.queue.hooks import (
    Go,
    HookedStore,
    Once,
    everything,
    gather,
    head,
    history,
    messages,
    new_kernel,
    put,
    ref_log,
    table,
)


def _loses_to(store: HookedStore, other: Callable[[], object], times: int = 1) -> None:
    """Have something else happen between what a batch read and its swap."""
    first = Once(times)

    def overtake(go: Go) -> AdvanceResult:
        if first():
            other()
        return go()

    store.around_advance = overtake


@pytest.fixture
def mine(shared: MemoryStore) -> HookedStore:
    return HookedStore(shared)


@pytest.fixture
def theirs(shared: MemoryStore, mine: HookedStore) -> Kernel:
    """Another process on the same store."""
    new_kernel(mine)
    return new_kernel(shared)


def test_a_batch_that_lost_its_swap_lands_on_top_of_what_won(mine: HookedStore, theirs: Kernel) -> None:
    kernel = new_kernel(mine)
    _loses_to(mine, lambda: put(theirs, "theirs"))
    mine.swaps = mine.advances = 0
    callers = gather(kernel, mine, lambda: put(kernel, "a"), lambda: put(kernel, "b"))
    outcomes = [caller.result() for caller in callers]
    assert messages(kernel) == ["theirs", "a", "b"]
    assert [one for one, _ in history(kernel)][1:] == [outcome.head for outcome in outcomes]
    assert (mine.advances, mine.swaps) == (2, 1)
    assert [len(entry.landed) for entry in ref_log(kernel)] == [0, 1, 2]


def test_a_refusal_that_rested_on_an_unlanded_request_is_decided_anew(
    mine: HookedStore, theirs: Kernel
) -> None:
    put(theirs, "read")
    base = head(theirs)
    kernel = new_kernel(mine)
    _loses_to(mine, lambda: theirs.commit("main", [Put(Key("read"), table("changed"))]))
    first: list[Operation] = [Unchanged(Key("read")), Put(Key("x"), table("first"))]
    second: list[Operation] = [Put(Key("x"), table("second"))]
    callers = gather(
        kernel,
        mine,
        lambda: kernel.commit("main", first, CommitMeta(message="first"), base=base),
        lambda: kernel.commit("main", second, CommitMeta(message="second"), base=base),
    )
    # Before the swap was lost, the second stood behind the first one's 'x'. Now the first is refused.
    assert isinstance(callers[0].error, CommitConflict)
    callers[1].result()
    assert messages(kernel)[-1] == "second"
    assert len(history(kernel)) == 3


def test_an_acceptance_that_rested_on_an_unlanded_request_is_decided_anew(
    mine: HookedStore, theirs: Kernel
) -> None:
    put(theirs, "read")
    base = head(theirs)
    kernel = new_kernel(mine)
    _loses_to(mine, lambda: theirs.commit("main", [Put(Key("read"), table("changed"))]))
    first: list[Operation] = [Unchanged(Key("read")), Put(Key("space"), Namespace())]
    callers = gather(
        kernel,
        mine,
        lambda: kernel.commit("main", first, base=base),
        lambda: kernel.commit("main", [Put(Key("space", "table"), table())]),
    )
    assert isinstance(callers[0].error, CommitConflict)
    error = callers[1].error
    assert isinstance(error, CommitConflict)
    assert [conflict.kind for conflict in error.conflicts] == ["NAMESPACE_ABSENT"]
    assert len(history(kernel)) == 2


def test_an_if_head_does_not_survive_a_lost_swap(mine: HookedStore, theirs: Kernel) -> None:
    kernel = new_kernel(mine)
    _loses_to(mine, lambda: put(theirs, "theirs"))
    with pytest.raises(ReferenceChanged):
        put(kernel, "mine", if_head=head(kernel))
    assert messages(kernel) == ["theirs"]


def test_the_two_handles_of_a_store_lose_no_update(mine: HookedStore, theirs: Kernel) -> None:
    kernel = new_kernel(mine)
    wins = iter(range(100))
    _loses_to(mine, lambda: put(theirs, f"theirs{next(wins)}"), times=5)
    put(kernel, "mine")
    assert messages(kernel) == [*(f"theirs{number}" for number in range(5)), "mine"]
    state = kernel.read_state(head(kernel))
    assert [Key.decode(key) for key, _ in state.scan_entries()] == [
        Key("mine"),
        *(Key(f"theirs{number}") for number in range(5)),
    ]


def test_a_branch_deleted_before_the_swap_is_not_brought_back(mine: HookedStore, theirs: Kernel) -> None:
    kernel = new_kernel(mine)
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    _loses_to(mine, lambda: theirs.references.delete_reference("dev"))
    with pytest.raises(ReferenceNotFound) as caught:
        kernel.commit("dev", [Put(Key("a"), table())])
    assert caught.value.details["name"] == "dev"
    assert theirs.store.reference("dev").kind == Kind.DELETED  # type: ignore[union-attr]


def test_a_branch_deleted_and_created_anew_before_the_swap_keeps_its_new_life(
    mine: HookedStore, theirs: Kernel
) -> None:
    kernel = new_kernel(mine)
    old = kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))

    def recreate() -> None:
        theirs.references.delete_reference("dev")
        theirs.references.create_reference("dev", Kind.BRANCH, head(theirs))

    _loses_to(mine, recreate)
    with pytest.raises(ReferenceChanged):
        kernel.commit("dev", [Put(Key("a"), table())], incarnation=old.incarnation)
    assert messages(kernel, "dev") == []


@pytest.mark.parametrize("applied_first", [False, True])
def test_a_request_that_failed_does_not_land_with_the_next_one(
    store: HookedStore, applied_first: bool
) -> None:
    """A store that refuses, not one that is away: the request is over, and so is what it left in memory."""
    kernel = new_kernel(store)
    if applied_first:
        put(kernel, "before")
    first = Once()

    def refuse(go: Go) -> AdvanceResult:
        if first():
            raise Denied("the disk is read-only")
        return go()

    store.around_advance = refuse
    rows, _ = everything(store)
    with pytest.raises(Denied):
        put(kernel, "refused")
    assert everything(store)[0] == rows
    put(kernel, "next")
    assert messages(kernel) == (["before"] if applied_first else []) + ["next"]
    assert kernel.read_state(head(kernel)).get(Key("refused").encode()) is None
