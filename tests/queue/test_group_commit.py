"""Group commit: while one batch is being stored the next one gathers, first come, first served."""

from functools import partial

from penstock.errors import CommitConflict, IdempotencyKeyReused, ReferenceChanged
from penstock.kernel.kernel import Kernel
from penstock.kernel.queue import ENTRY_MAX_CHARS
from penstock.kernel.settings import Settings
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import AUTHOR_MAX_CHARS, KEY_MAX_CHARS, CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import MergeResult
from penstock.model.objects import OBJECT_MAX_BYTES
from penstock.model.operations import Delete, Operation, Put, Unchanged
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult
from tests.queue.hooks import (
    Arrivals,
    Caller,
    Gate,
    Go,
    HookedStore,
    Once,
    gather,
    head,
    history,
    messages,
    new_kernel,
    put,
    ref_log,
    table,
)


def test_what_arrives_while_a_swap_is_under_way_lands_by_one_further_swap(store: HookedStore) -> None:
    kernel = new_kernel(store)
    gate, first = Gate(), Once()

    def hold_first(go: Go) -> AdvanceResult:
        if first():
            gate.pass_through()
        return go()

    store.around_advance = hold_first
    store.swaps = 0
    leader = Caller(lambda: put(kernel, "first"))
    gate.wait_until_reached()
    arrivals = Arrivals(kernel)
    for number in range(10):
        arrivals.add(partial(put, kernel, f"t{number}"))
    gate.open()
    landed = [caller.result() for caller in [leader, *arrivals.callers]]

    assert store.swaps == 2
    assert messages(kernel) == ["first", *(f"t{number}" for number in range(10))]
    assert [commit for commit, _ in history(kernel)] == [outcome.head for outcome in landed]
    newest = ref_log(kernel)[-1]
    assert [one.commit for one in newest.landed] == [outcome.head for outcome in landed[1:]]


def test_an_idle_branch_commits_at_once_with_one_swap_each(store: HookedStore) -> None:
    kernel = new_kernel(store)
    store.advances = store.swaps = 0
    for number in range(5):
        put(kernel, f"t{number}")
        assert (store.advances, store.swaps) == (number + 1, number + 1)
    assert [len(entry.landed) for entry in ref_log(kernel)] == [0, 1, 1, 1, 1, 1]


def test_a_commit_of_ten_keys_keeps_its_place_among_commits_of_one(store: HookedStore) -> None:
    kernel = new_kernel(store)
    ten = [f"ten{number}" for number in range(10)]
    calls = [partial(put, kernel, f"one{number}") for number in range(6)]
    calls.insert(3, partial(put, kernel, *ten, message="ten"))
    for caller in gather(kernel, store, *calls):
        caller.result()
    assert messages(kernel) == ["one0", "one1", "one2", "ten", "one3", "one4", "one5"]


def test_a_batch_takes_no_more_than_batch_max_and_the_rest_in_order(store: HookedStore) -> None:
    kernel = new_kernel(store, settings=Settings(batch_max=4))
    calls = [partial(put, kernel, f"t{number}") for number in range(10)]
    for caller in gather(kernel, store, *calls):
        caller.result()
    assert messages(kernel) == [f"t{number}" for number in range(10)]
    assert [len(entry.landed) for entry in ref_log(kernel)][1:] == [4, 4, 2]


def test_long_keys_and_authors_never_make_a_log_entry_too_large(store: HookedStore) -> None:
    kernel = new_kernel(store, settings=Settings(batch_max=10_000))
    author = "\U0001f9ea" * AUTHOR_MAX_CHARS
    count = 2 * ENTRY_MAX_CHARS // (AUTHOR_MAX_CHARS + KEY_MAX_CHARS)

    def commit(number: int) -> None:
        key = f"{number:0{KEY_MAX_CHARS}}"
        meta = CommitMeta(authors=(author,))
        kernel.commit("main", [Put(Key(f"t{number}"), table())], meta, key=key)

    for caller in gather(kernel, store, *(partial(commit, number) for number in range(count))):
        caller.result()
    entries = [one for one, _ in kernel.references.walk_log("main")]
    assert max(len(data) for data in store.fetch(entries).values()) <= OBJECT_MAX_BYTES
    assert sum(len(entry.landed) for entry in ref_log(kernel)) == count


def test_a_refused_request_costs_the_others_nothing(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "taken")
    store.swaps = 0
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "a"),
        lambda: kernel.commit("main", [Delete(Key("absent"))]),
        lambda: put(kernel, "b"),
        lambda: kernel.commit("main", [Put(Key("no", "namespace"), table())]),
        lambda: put(kernel, "c"),
    )
    assert [type(caller.error) for caller in callers] == [
        type(None),
        CommitConflict,
        type(None),
        CommitConflict,
        type(None),
    ]
    refusals = [str(caller.error) for caller in callers if caller.error]
    assert "'absent' does not exist" in refusals[0]
    assert "'no' does not exist" in refusals[1]
    assert messages(kernel) == ["taken", "a", "b", "c"]
    assert store.swaps == 1


def test_a_batch_of_refusals_only_makes_no_swap(store: HookedStore) -> None:
    kernel = new_kernel(store)
    store.advances = 0
    absent = [Delete(Key("absent"))]
    callers = gather(kernel, store, *[lambda: kernel.commit("main", absent)] * 3)
    assert [type(caller.error) for caller in callers] == [CommitConflict] * 3
    assert store.advances == 0


def test_an_if_head_is_met_by_the_first_of_a_batch_only(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "base")
    expected = head(kernel)
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "a", if_head=expected),
        lambda: put(kernel, "b", if_head=expected),
        lambda: put(kernel, "c"),
    )
    callers[0].result()
    assert isinstance(callers[1].error, ReferenceChanged)
    assert callers[1].error.details["expected"] == expected.hex()
    callers[2].result()
    assert messages(kernel) == ["base", "a", "c"]


def test_a_refusal_for_an_if_head_does_not_hide_behind_a_refused_request(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "base")
    expected = head(kernel)
    callers = gather(
        kernel,
        store,
        lambda: kernel.commit("main", [Delete(Key("absent"))]),
        lambda: put(kernel, "b", if_head=expected),
    )
    assert isinstance(callers[0].error, CommitConflict)
    callers[1].result()
    assert messages(kernel) == ["base", "b"]


def test_the_same_key_twice_in_one_batch_lands_once(store: HookedStore) -> None:
    kernel = new_kernel(store)
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "a", key="same"),
        lambda: put(kernel, "b"),
        lambda: put(kernel, "a", key="same"),
    )
    first, _, second = [caller.result() for caller in callers]
    assert second.commits == first.commits
    assert messages(kernel) == ["a", "b"]


def test_the_same_delete_twice_in_one_batch_lands_once_and_both_are_told_so(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "a")
    gone = [Delete(Key("a"))]
    callers = gather(kernel, store, *[lambda: kernel.commit("main", gone, key="same")] * 2)
    first, second = [caller.result() for caller in callers]
    assert second.commits == first.commits
    assert len(history(kernel)) == 2


def test_another_request_under_the_same_key_in_one_batch_is_refused(store: HookedStore) -> None:
    kernel = new_kernel(store)
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "a", key="same"),
        lambda: put(kernel, "b", key="same"),
        lambda: put(kernel, "c"),
    )
    callers[0].result()
    assert isinstance(callers[1].error, IdempotencyKeyReused)
    assert callers[1].error.details == {"key": "same"}
    callers[2].result()
    assert messages(kernel) == ["a", "c"]


def _with_source(store: HookedStore) -> tuple[Kernel, ObjectId]:
    kernel = new_kernel(store)
    put(kernel, "base")
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    kernel.commit("dev", [Put(Key("from-dev"), table())], CommitMeta(message="dev"))
    return kernel, head(kernel, "dev")


def test_the_same_source_merged_twice_in_one_batch_is_merged_once(store: HookedStore) -> None:
    kernel, source = _with_source(store)

    def merge() -> MergeResult:
        return kernel.merge(source, "main", CommitMeta(message="merge"), MergeOptions())

    results = [caller.result() for caller in gather(kernel, store, merge, merge)]
    assert sorted(len(result.commits) for result in results) == [0, 1]
    assert {result.head for result in results} == {head(kernel).hex()}
    assert [bool(commit.further_parents) for _, commit in history(kernel)] == [False, True]


def test_a_merge_among_commits_sees_what_came_before_it(store: HookedStore) -> None:
    kernel, source = _with_source(store)
    base = head(kernel)

    def merge() -> MergeResult:
        return kernel.merge(source, "main", CommitMeta(message="merge"), MergeOptions())

    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "from-dev", base=base, message="same key"),
        merge,
        lambda: put(kernel, "other"),
    )
    callers[0].result()
    assert isinstance(callers[1].error, CommitConflict)
    callers[2].result()
    assert messages(kernel) == ["base", "same key", "other"]


def test_a_read_that_an_earlier_request_of_the_batch_broke_is_refused(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "read")
    base = head(kernel)
    reading: list[Operation] = [Unchanged(Key("read")), Put(Key("derived"), table())]
    callers = gather(
        kernel,
        store,
        lambda: kernel.commit("main", [Put(Key("read"), table("new"))], CommitMeta(message="wrote")),
        lambda: kernel.commit("main", reading, base=base),
    )
    callers[0].result()
    error = callers[1].error
    assert isinstance(error, CommitConflict)
    assert [conflict.key for conflict in error.conflicts] == [Key("read")]
    assert messages(kernel) == ["read", "wrote"]


def test_branches_do_not_wait_for_each_other(shared: MemoryStore) -> None:
    store = HookedStore(shared)
    kernel = new_kernel(store)
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    gate, first = Gate(), Once()

    def hold_main(go: Go) -> AdvanceResult:
        if first():
            gate.pass_through()
        return go()

    store.around_advance = hold_main
    slow = Caller(lambda: put(kernel, "slow"))
    gate.wait_until_reached()
    kernel.commit("dev", [Put(Key("fast"), table())], CommitMeta(message="fast"))
    assert messages(kernel, "dev") == ["fast"]
    gate.open()
    slow.result()
