"""K7: the same idempotency key has the same outcome, from anywhere, for as long as it is promised."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import penstock
from penstock.errors import CommitConflict, IdempotencyKeyReused, InvalidRequest, JobOver
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.kernel import Kernel
from penstock.kernel.reflog import RECEIPT_WINDOW_US
from penstock.kernel.request_outcome import OutcomeLookup, SubmittedRequest
from penstock.kernel.settings import WRITE_MAX_S, Settings
from penstock.kernel.sweep import sweep_objects
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.operations import Delete, Operation, Put, Unchanged
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult
from penstock.stores.sqlite import SqliteStore
from tests.queue.hooks import (
    DAY_S,
    Go,
    HookedStore,
    Once,
    SetClock,
    everything,
    gather,
    head,
    history,
    messages,
    new_kernel,
    put,
    table,
)


def test_the_same_request_under_the_same_key_is_done_once(store: HookedStore) -> None:
    kernel = new_kernel(store)
    first = put(kernel, "a", key="k")
    put(kernel, "b")
    second = put(kernel, "a", key="k")
    assert second.commits == first.commits
    assert (first.repeated, second.repeated) == (False, True)
    assert messages(kernel) == ["a", "b"]


def test_a_repetition_leaves_no_trace(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "a", key="k")
    rows, _ = everything(store)
    put(kernel, "a", key="k")
    assert everything(store)[0] == rows


def _operations(kind: str) -> list[Operation]:
    if kind == "delete":
        return [Delete(Key("there"))]
    if kind == "unchanged":
        return [Unchanged(Key("there")), Put(Key("new"), table())]
    return [Put(Key("there"), table("changed"))]


@pytest.mark.parametrize("kind", ["put", "delete", "unchanged"])
@pytest.mark.parametrize("is_expecting_head", [False, True])
def test_a_repetition_is_answered_even_if_it_could_not_be_applied_again(
    store: HookedStore, kind: str, is_expecting_head: bool
) -> None:
    """Its base and its expected head lie behind its own commit now, and what it deleted is gone."""
    kernel = new_kernel(store)
    put(kernel, "there")
    base = head(kernel)
    expected = base if is_expecting_head else None
    commit = partial(kernel.commit, "main", _operations(kind), base=base, if_head=expected, key="k")
    first = commit()
    put(kernel, "there", message="somebody else")
    assert commit().commits == first.commits
    assert len(history(kernel)) == 3


@pytest.mark.parametrize("what", ["merge", "transplant", "revert"])
def test_a_repeated_merge_transplant_or_revert_gives_the_same_commits(store: HookedStore, what: str) -> None:
    kernel = new_kernel(store)
    put(kernel, "a")
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    sources = [
        kernel.commit("dev", [Put(Key(name), table())], CommitMeta(message=name)).head for name in "bc"
    ]
    meta = CommitMeta(message="once") if what != "transplant" else CommitMeta()
    if what == "merge":
        do = partial(kernel.merge, sources[-1], "main", meta, MergeOptions(), key="k")
    elif what == "transplant":
        do = partial(kernel.transplant, sources, "main", meta, MergeOptions(), key="k")
    else:
        do = partial(kernel.revert, head(kernel), "main", meta, MergeOptions(), key="k")
    first = do()
    put(kernel, "later")
    second = do()
    assert second.commits == first.commits
    assert second.head == first.head
    assert len(second.commits) == (2 if what == "transplant" else 1)
    assert messages(kernel)[-1] == "later"


def test_another_request_under_the_same_key_is_refused_by_name(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "a", key="k")
    before = everything(store)[0]
    for do in (
        partial(put, kernel, "b", key="k"),
        partial(put, kernel, "a", key="k", message="another message"),
        partial(put, kernel, "a", key="k", base=head(kernel)),
        partial(put, kernel, "a", key="k", create_namespaces=True),
        partial(kernel.commit, "main", [Delete(Key("a"))], key="k"),
    ):
        with pytest.raises(IdempotencyKeyReused, match="'k'") as caught:
            do()
        assert caught.value.details == {"key": "k"}
    assert everything(store)[0] == before


def test_another_request_under_the_same_key_is_refused_even_if_it_conflicts_too(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "a", key="k")
    with pytest.raises(IdempotencyKeyReused):
        kernel.commit("main", [Delete(Key("absent"))], key="k")


def test_a_refused_request_does_not_use_up_its_key(store: HookedStore) -> None:
    kernel = new_kernel(store)
    late: list[Operation] = [Delete(Key("late"))]
    with pytest.raises(CommitConflict):
        kernel.commit("main", late, key="k")
    put(kernel, "late")
    assert not kernel.commit("main", late, key="k").repeated
    assert len(history(kernel)) == 2


def test_a_key_belongs_to_one_branch(store: HookedStore) -> None:
    kernel = new_kernel(store)
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    put(kernel, "a", key="k")
    kernel.commit("dev", [Put(Key("other"), table())], CommitMeta(message="other"), key="k")
    assert messages(kernel) == ["a"]
    assert messages(kernel, "dev") == ["other"]


def test_a_key_belongs_to_one_life_of_a_branch(store: HookedStore) -> None:
    kernel = new_kernel(store)
    for _ in range(2):
        kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
        kernel.commit("dev", [Put(Key("a"), table())], CommitMeta(message="a"), key="k")
        assert messages(kernel, "dev") == ["a"]
        kernel.references.delete_reference("dev")


@pytest.mark.parametrize("key", ["", "x" * 201, "line\nbreak", "\ud800", 7, b"bytes"])
def test_a_key_that_cannot_be_is_refused(store: HookedStore, key: object) -> None:
    kernel = new_kernel(store)
    before = everything(store)
    with pytest.raises(InvalidRequest, match="idempotency key"):
        put(kernel, "a", key=key)
    assert everything(store) == before


def test_another_kernel_on_the_same_file_gives_the_same_commit(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "penstock.db"), SqliteStore(tmp_path / "penstock.db")
    first = put(new_kernel(one), "a", key="k")
    assert put(new_kernel(other), "a", key="k").commits == first.commits
    assert put(new_kernel(one), "a", key="k").commits == first.commits
    one.close()
    other.close()
    again = SqliteStore(tmp_path / "penstock.db")
    assert put(new_kernel(again), "a", key="k").commits == first.commits
    assert len(history(new_kernel(again))) == 1
    again.close()


_SCRIPT = """
import json, sys
import penstock
with penstock.open(sys.argv[1], create=False, author="tester") as lake:
    commit = lake.branch().put(sys.argv[2], penstock.IcebergTable(metadata_location="there"),
                               message="m", idempotency_key="k")
    print(json.dumps([commit.id, len(lake.log())]))
"""


def test_another_process_gives_the_same_commit(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    with penstock.open(place, author="tester") as lake:
        content = penstock.IcebergTable(metadata_location="there")
        first = lake.branch().put("a.b", content, message="m", idempotency_key="k")
        command = [sys.executable, "-c", _SCRIPT, str(place)]
        ran = subprocess.run([*command, "a.b"], capture_output=True, check=True, text=True)
        assert json.loads(ran.stdout) == [first.id, 1]
        refused = subprocess.run([*command, "a.c"], capture_output=True, check=False, text=True)
        assert "IdempotencyKeyReused" in refused.stderr


# --- receipts that lost swaps leave behind ------------------------------------------------------------------


class Died(BaseException):
    """A process that was killed."""


def _dies_after_losing(store: HookedStore, winner: Kernel, win: Callable[[], object] | None = None) -> None:
    """The next try stores its objects, loses its swap, and its process is killed."""
    first = Once()

    def lose_and_die(go: Go) -> AdvanceResult:
        if not first():
            return go()
        put(winner, "winner", message="won") if win is None else win()
        assert not go().swapped
        raise Died

    store.around_advance = lose_and_die


def test_a_receipt_left_behind_by_a_lost_swap_neither_blocks_nor_doubles(shared: MemoryStore) -> None:
    winner = new_kernel(shared)
    for number in range(4):
        mine = HookedStore(shared)
        _dies_after_losing(mine, winner)
        with pytest.raises(Died):
            put(new_kernel(mine), "a", key="k")
        assert winner.find_outcome("main", "k") is None, f"after {number + 1} lost swaps"
    landed = put(new_kernel(shared), "a", key="k")
    assert not landed.repeated
    for _ in range(3):
        assert put(new_kernel(shared), "a", key="k").commits == landed.commits
    outcome = winner.find_outcome("main", "k")
    assert outcome is not None
    assert outcome.commits == landed.commits
    assert messages(winner) == ["won"] * 4 + ["a"]


def test_a_receipt_left_behind_still_names_its_request(shared: MemoryStore) -> None:
    winner, mine = new_kernel(shared), HookedStore(shared)
    _dies_after_losing(mine, winner)
    with pytest.raises(Died):
        put(new_kernel(mine), "a", key="k")
    with pytest.raises(IdempotencyKeyReused):
        put(winner, "b", key="k")


def test_one_request_sent_through_two_processes_at_once_lands_once(shared: MemoryStore) -> None:
    """The one whose receipt came first loses its swap to the other, which found that receipt."""
    theirs, mine = new_kernel(shared), HookedStore(shared)
    landed = []
    first = Once()

    def overtake(go: Go) -> AdvanceResult:
        if not first():
            return go()
        put(theirs, "x", message="won")
        lost = go()
        landed.append(put(theirs, "a", key="k"))
        return lost

    mine.around_advance = overtake
    assert put(new_kernel(mine), "a", key="k").commits == landed[0].commits
    assert messages(theirs) == ["won", "a"]


def test_a_repetition_that_lost_to_its_first_sending_finds_it(shared: MemoryStore) -> None:
    """The repetition finds the first one's receipt but no commit, goes on, and the first lands just then."""
    slow, quick = HookedStore(shared), HookedStore(shared)
    first_kernel, second_kernel = new_kernel(slow), new_kernel(quick)
    repeated: list[RequestOutcome] = []
    first = Once()

    def first_way(go: Go) -> AdvanceResult:
        if not first():
            return go()
        put(new_kernel(shared), "x", message="won")
        lost = go()
        repeated.append(put(second_kernel, "a", key="k"))
        return lost

    tries = iter(range(10))

    def second_way(go: Go) -> AdvanceResult:
        if next(tries) == 1:
            put(new_kernel(shared), "y", message="won again")
        return go()

    slow.around_advance, quick.around_advance = first_way, second_way
    outcome = put(first_kernel, "a", key="k")
    assert [one.commits for one in repeated] == [outcome.commits]
    assert messages(first_kernel) == ["won", "won again", "a"]


def test_others_in_a_batch_with_a_used_key_land_once(shared: MemoryStore) -> None:
    """On a store without transactions the refused try leaves the receipts of the others behind, too."""
    store = HookedStore(shared)
    kernel = new_kernel(store)
    known = put(kernel, "a", key="used")
    callers = gather(
        kernel,
        store,
        lambda: put(kernel, "b", key="new-b"),
        lambda: put(kernel, "a", key="used"),
        lambda: put(kernel, "c", key="new-c"),
    )
    outcomes = [caller.result() for caller in callers]
    assert [outcome.repeated for outcome in outcomes] == [False, True, False]
    assert outcomes[1].commits == known.commits
    assert messages(kernel) == ["a", "b", "c"]
    for name in "bc":
        assert put(kernel, name, key=f"new-{name}").repeated


# --- for how long -------------------------------------------------------------------------------------------


def _aged(days: float = 7.0) -> tuple[SetClock, MemoryStore, Kernel]:
    clock = SetClock()
    store = MemoryStore(clock)
    return (
        clock,
        store,
        new_kernel(store, clock, Settings(idempotency_days=days, grace_s=3600, nobody_writes=True)),
    )


def test_a_key_is_remembered_through_sweeps_for_as_long_as_promised() -> None:
    clock, _, kernel = _aged(days=7)
    first = put(kernel, "a", key="k")
    for _ in range(6):
        clock.go_on(DAY_S)
        sweep_objects(kernel)
        assert put(kernel, "a", key="k").commits == first.commits


def test_a_key_is_forgotten_by_a_sweep_after_idempotency_days() -> None:
    clock, _, kernel = _aged(days=7)
    first = put(kernel, "a", key="k")
    clock.go_on(7 * DAY_S + 1)
    assert put(kernel, "a", key="k").commits == first.commits, "no sweep came by yet"
    clock.go_on(7 * DAY_S + 1)
    assert sweep_objects(kernel).receipts == 1
    assert kernel.find_outcome("main", "k") is None
    assert not put(kernel, "a", key="k").repeated
    assert len(history(kernel)) == 2


def test_a_key_is_remembered_from_its_landing_not_from_a_try_that_came_to_nothing() -> None:
    clock, store, kernel = _aged(days=7)
    mine = HookedStore(store)
    _dies_after_losing(mine, kernel)
    with pytest.raises(Died):
        put(new_kernel(mine, clock), "a", key="k")
    clock.go_on(6 * DAY_S)
    landed = put(kernel, "a", key="k")
    clock.go_on(2 * DAY_S)
    sweep_objects(kernel)
    assert put(kernel, "a", key="k").commits == landed.commits


def test_a_key_of_a_moved_reference_is_remembered_from_its_move() -> None:
    clock, store, kernel = _aged(days=7)
    first, second, third = (put(kernel, name).head for name in "abc")
    kernel.references.create_reference("dev", Kind.BRANCH, first)
    mine = HookedStore(store)
    _dies_after_losing(mine, kernel, lambda: kernel.references.assign_reference("dev", third))
    with pytest.raises(Died):
        new_kernel(mine, clock).references.assign_reference("dev", second, key="k")
    clock.go_on(6 * DAY_S)
    assert kernel.references.assign_reference("dev", second, key="k").head == second
    clock.go_on(2 * DAY_S)
    sweep_objects(kernel)
    kernel.references.assign_reference("dev", third)
    kernel.references.assign_reference("dev", second, key="k")
    assert kernel.references.get_reference("dev").head == third, "what was done before was done again"


def test_a_request_that_was_called_off_stays_so_though_an_earlier_try_is_forgotten() -> None:
    clock, store, kernel = _aged(days=7)
    put(kernel, "first")
    mine = HookedStore(store)
    _dies_after_losing(mine, kernel)
    with pytest.raises(Died):
        put(new_kernel(mine, clock), "a", key="k")
    clock.go_on(6 * DAY_S)
    main = kernel.references.get_reference("main")
    sent = SubmittedRequest("k", "main", main.incarnation, main.position, clock() + 1)
    assert OutcomeLookup(kernel).call_off(sent) is None
    clock.go_on(2 * DAY_S)
    sweep_objects(kernel)
    with pytest.raises(JobOver):
        put(kernel, "a", key="k")


def test_no_write_may_take_longer_than_its_receipt_is_looked_for() -> None:
    assert WRITE_MAX_S * 1_000_000 < RECEIPT_WINDOW_US


@pytest.mark.parametrize("at", [0, 1, 1500, 2900])
def test_a_key_repeated_hours_later_does_not_walk_the_whole_log(at: int) -> None:
    clock = SetClock()
    store = MemoryStore(clock)
    kernel = new_kernel(store, clock)
    for number in range(3000):
        clock.go_on(10)
        kernel.commit(
            "main", [Put(Key(f"t{number % 7}"), table(str(number)))], key="k" if number == at else None
        )
    counting = HookedStore(store)
    fresh = new_kernel(counting, clock)
    counting.fetched = counting.fetches = 0
    again = fresh.commit("main", [Put(Key(f"t{at % 7}"), table(str(at)))], key="k")
    assert again.repeated
    assert fresh.history.read_commit(again.head).depth == at + 1
    assert counting.fetched < 150, f"{counting.fetched} objects read"


def test_a_key_whose_try_came_to_nothing_does_not_walk_the_whole_log() -> None:
    clock = SetClock()
    store = MemoryStore(clock)
    kernel, mine = new_kernel(store, clock), HookedStore(store)
    _dies_after_losing(mine, kernel)
    with pytest.raises(Died):
        put(new_kernel(mine, clock), "a", key="k")
    for number in range(3000):
        clock.go_on(60)
        put(kernel, f"t{number % 7}")
    counting = HookedStore(store)
    fresh = new_kernel(counting, clock)
    counting.fetched = 0
    assert not put(fresh, "a", key="k").repeated
    assert counting.fetched < 300, f"{counting.fetched} objects read"
