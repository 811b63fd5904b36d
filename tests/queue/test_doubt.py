"""Doubt: a store that cannot say whether it swapped. The truth is found, or its absence is admitted."""

from collections.abc import Callable
from functools import partial

import pytest

from penstock.errors import Damaged, Denied, OutcomeUnknown, PenstockError, ReferenceNotFound, Unavailable
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.stores.port import AdvanceResult, Store
from tests.queue.hooks import (
    Go,
    HookedStore,
    Once,
    gather,
    head,
    history,
    messages,
    new_kernel,
    new_lake,
    put,
    ref_log,
    table,
)

QUICK = Settings(tries_max=4, backoff_min_ms=0, write_timeout_s=5)


def _loses_answer(store: HookedStore, was_applied: bool, times: int = 1) -> None:
    first = Once(times)

    def lose(go: Go) -> AdvanceResult:
        if not first():
            return go()
        if was_applied:
            go()
        raise OutcomeUnknown("the connection broke")

    store.around_advance = lose


class Down:
    """Switches a store off: it answers nothing any more."""

    def __init__(self, store: HookedStore) -> None:
        self._store = store

    def __call__(self, *_: object) -> None:
        raise Unavailable("the store is down")

    def now(self) -> None:
        self._store.before_turn = self
        self._store.before_read = self

    def up_again(self) -> None:
        self._store.before_turn = lambda _: None
        self._store.before_read = lambda: None
        self._store.around_advance = lambda go: go()


@pytest.mark.parametrize("was_applied", [False, True])
def test_an_answer_lost_on_the_way_is_found_out(store: HookedStore, was_applied: bool) -> None:
    kernel = new_kernel(store)
    put(kernel, "before")
    _loses_answer(store, was_applied)
    outcome = put(kernel, "a")
    assert messages(kernel) == ["before", "a"]
    assert outcome.commits == (head(kernel),)
    put(kernel, "after")
    assert messages(kernel) == ["before", "a", "after"]


@pytest.mark.parametrize("was_applied", [False, True])
def test_an_answer_lost_for_a_batch_is_found_out_for_each_request(
    store: HookedStore, was_applied: bool
) -> None:
    kernel = new_kernel(store)
    put(kernel, "taken")
    base = head(kernel)
    kernel.commit("main", [Put(Key("taken"), table("theirs"))], CommitMeta(message="taken again"))
    _loses_answer(store, was_applied)
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "a", key="a"),
        lambda: kernel.commit("main", [Put(Key("taken"), table("mine"))], base=base),
        lambda: put(kernel, "b", key="b"),
    )
    outcomes = [callers[0].result(), callers[2].result()]
    assert isinstance(callers[1].error, PenstockError)
    assert messages(kernel) == ["taken", "taken again", "a", "b"]
    assert [outcome.head for outcome in outcomes] == [one for one, _ in history(kernel)][2:]


@pytest.mark.parametrize("was_applied", [False, True])
def test_an_answer_lost_while_others_moved_the_branch_is_found_out(
    inner: Store, store: HookedStore, was_applied: bool
) -> None:
    kernel, theirs = new_kernel(store), new_kernel(inner)
    _loses_answer(store, was_applied)
    moved = Once()

    def move_before_second_turn(_: str) -> None:
        if store.advances and moved():
            for number in range(40):
                put(theirs, f"t{number}")

    store.advances = 0
    store.before_turn = move_before_second_turn
    outcome = put(kernel, "mine", message="mine")
    assert messages(kernel).count("mine") == 1
    assert messages(kernel).index("mine") == (0 if was_applied else 40)
    assert history(kernel)[messages(kernel).index("mine")][0] == outcome.head


@pytest.mark.parametrize("was_applied", [False, True])
def test_several_lost_answers_in_a_row_land_it_once(store: HookedStore, was_applied: bool) -> None:
    kernel = new_kernel(store)
    _loses_answer(store, was_applied, times=3)
    put(kernel, "a")
    assert messages(kernel) == ["a"]


@pytest.mark.parametrize("was_applied", [False, True])
def test_a_store_that_goes_down_with_the_answer_leaves_a_key_to_ask_with(
    store: HookedStore, was_applied: bool
) -> None:
    lake = new_lake(store, settings=QUICK)
    kernel, down = lake.kernel, Down(store)

    def break_down(go: Go) -> AdvanceResult:
        if was_applied:
            go()
        down.now()
        raise OutcomeUnknown("the connection broke")

    store.around_advance = break_down
    with pytest.raises(OutcomeUnknown) as caught:
        put(kernel, "a", key="the-key")
    error = caught.value
    assert error.details == {"key": "the-key", "name": "main"}
    assert "idempotency key the-key" in str(error)
    assert store.url in str(error)
    assert "Nothing was changed" not in str(error)
    with pytest.raises(Unavailable):
        lake.outcome("the-key")

    down.up_again()
    found = lake.outcome("the-key")
    assert (found is not None) == was_applied
    if found is not None:
        assert found.object_id == head(kernel)
    assert put(kernel, "a", key="the-key").repeated == was_applied
    assert messages(kernel) == ["a"]


def test_a_key_of_the_stores_own_choice_can_be_asked_for_too(store: HookedStore) -> None:
    lake = new_lake(store, settings=QUICK)
    down = Down(store)

    def break_down(go: Go) -> AdvanceResult:
        go()
        down.now()
        raise OutcomeUnknown("the connection broke")

    store.around_advance = break_down
    with pytest.raises(OutcomeUnknown) as caught:
        put(lake.kernel, "a")
    down.up_again()
    found = lake.outcome(caught.value.details["key"])
    assert found is not None
    assert found.object_id == head(lake.kernel)


@pytest.mark.parametrize("problem", [Denied("no more rights"), Damaged("a page is damaged")])
def test_doubt_is_not_forgotten_when_the_store_then_fails_otherwise(
    store: HookedStore, problem: PenstockError
) -> None:
    kernel = new_kernel(store, settings=QUICK)

    def then_refuse(_: str) -> None:
        raise problem

    def lose(go: Go) -> AdvanceResult:
        go()
        store.before_turn = then_refuse
        raise OutcomeUnknown("the connection broke")

    store.around_advance = lose
    with pytest.raises(OutcomeUnknown, match="the-key"):
        put(kernel, "a", key="the-key")


def test_a_branch_deleted_while_its_commit_is_in_doubt_is_still_doubt(
    inner: Store, store: HookedStore
) -> None:
    kernel, theirs = new_kernel(store, settings=QUICK), new_kernel(inner)
    theirs.references.create_reference("dev", Kind.BRANCH, head(theirs))

    def then_delete(_: str) -> None:
        store.before_turn = lambda _: None
        theirs.references.delete_reference("dev")

    def lose(go: Go) -> AdvanceResult:
        go()
        store.before_turn = then_delete
        raise OutcomeUnknown("the connection broke")

    store.around_advance = lose
    with pytest.raises(OutcomeUnknown, match="the-key"):
        kernel.commit("dev", [Put(Key("a"), table())], key="the-key")


def test_refusals_of_a_batch_in_doubt_are_decided_against_what_landed(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "x")
    base = head(kernel)
    _loses_answer(store, was_applied=True)
    callers = gather(
        kernel,
        store,
        lambda: kernel.commit("main", [Put(Key("x"), table("1"))], CommitMeta(message="1"), base=base),
        lambda: kernel.commit("main", [Put(Key("x"), table("2"))], CommitMeta(message="2"), base=base),
    )
    callers[0].result()
    assert isinstance(callers[1].error, PenstockError)
    assert not isinstance(callers[1].error, OutcomeUnknown)
    assert messages(kernel) == ["x", "1"]


# --- references -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("was_applied", [False, True])
@pytest.mark.parametrize("what", ["create", "assign", "delete", "delete-without-log"])
def test_a_reference_whose_answer_was_lost_moved_once(
    store: HookedStore, what: str, was_applied: bool
) -> None:
    kernel = new_kernel(store)
    first, second = put(kernel, "a").head, put(kernel, "b").head
    references = kernel.references
    if what != "create":
        references.create_reference("dev", Kind.BRANCH, first)
    _loses_answer(store, was_applied)
    if what == "create":
        assert references.create_reference("dev", Kind.BRANCH, second).head == second
    elif what == "assign":
        assert references.assign_reference("dev", second, expected=first).head == second
    else:
        assert references.delete_reference("dev", expected=first, leave_log=what == "delete").head == first
    if what == "delete-without-log":
        assert store.reference("dev") is None
    elif what == "delete":
        with pytest.raises(ReferenceNotFound):
            references.get_reference("dev")
    else:
        assert references.get_reference("dev").head == (first if what == "annotate" else second)
    if what != "delete-without-log":
        assert len(ref_log(kernel, "dev")) == (1 if what == "create" else 2)


@pytest.mark.parametrize("was_applied", [False, True])
def test_a_reference_in_doubt_names_a_key_to_repeat_with(store: HookedStore, was_applied: bool) -> None:
    kernel = new_kernel(store, settings=QUICK)
    first, second = put(kernel, "a").head, put(kernel, "b").head
    references, down = kernel.references, Down(store)
    references.create_reference("dev", Kind.BRANCH, first)

    def break_down(go: Go) -> AdvanceResult:
        if was_applied:
            go()
        down.now()
        raise OutcomeUnknown("the connection broke")

    store.around_advance = break_down
    with pytest.raises(OutcomeUnknown) as caught:
        references.assign_reference("dev", second, expected=first, key="the-key")
    assert caught.value.details == {"key": "the-key", "name": "dev"}
    assert "'dev'" in str(caught.value)
    down.up_again()
    assert (references.get_reference("dev").head == second) == was_applied
    assert references.assign_reference("dev", second, expected=first, key="the-key").head == second
    assert len(ref_log(kernel, "dev")) == 2


def _ways_to_read(kernel: Kernel) -> list[Callable[[], object]]:
    return [
        partial(kernel.references.get_reference, "main"),
        partial(kernel.find_outcome, "main", "k"),
        partial(list, kernel.references.list_all_references(Kind.BRANCH)),
    ]


def test_a_store_that_is_down_says_so_to_readers_at_once(store: HookedStore) -> None:
    kernel = new_kernel(store)
    Down(store).now()
    for read in _ways_to_read(kernel):
        with pytest.raises(Unavailable, match="the store is down"):
            read()
