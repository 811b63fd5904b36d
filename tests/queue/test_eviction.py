"""Queues that are forgotten because there are too many: never a commit lost or doubled by it."""

from functools import partial
from threading import Barrier

import pytest

from penstock.kernel.commit import CommitRequest
from penstock.kernel.kernel import Kernel
from penstock.kernel.request import RequestTerms
from penstock.kernel.settings import Settings
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.stores.port import AdvanceResult
from tests.queue.hooks import Caller, Gate, Go, HookedStore, Once, head, history, messages, new_kernel, table

BRANCHES = ["b0", "b1", "b2", "b3", "b4"]


def _write(kernel: Kernel, start: Barrier, number: int, commits: int) -> list[tuple[str, bytes]]:
    start.wait()
    done = []
    for turn in range(commits):
        branch = BRANCHES[(number + turn) % len(BRANCHES)]
        meta = CommitMeta(message=f"{number}.{turn}")
        outcome = kernel.commit(branch, [Put(Key(f"t{number}-{turn}"), table())], meta)
        done.append((branch, outcome.head))
    return done


@pytest.mark.parametrize("queues_max", [0, 1, 2])
def test_queues_evicted_under_load_lose_nothing(store: HookedStore, queues_max: int) -> None:
    kernel = new_kernel(store, settings=Settings(queues_max=queues_max))
    for branch in BRANCHES:
        kernel.references.create_reference(branch, Kind.BRANCH, head(kernel))
    start = Barrier(6)
    writers = [Caller(partial(_write, kernel, start, number, 15)) for number in range(6)]
    landed = [each for writer in writers for each in writer.result()]
    assert len(landed) == 90
    for branch in BRANCHES:
        commits = [one for one, _ in history(kernel, branch)]
        assert sorted(commits) == sorted(commit for name, commit in landed if name == branch)
    assert len(kernel._queues) <= max(queues_max, 6)


def test_a_queue_evicted_while_a_request_is_on_its_way_into_it_lands_it(store: HookedStore) -> None:
    """Two queues of one branch then: the swap keeps them apart."""
    kernel = new_kernel(store, settings=Settings(queues_max=1))
    kernel.references.create_reference("b0", Kind.BRANCH, head(kernel))
    old = kernel._find_queue("main")
    assert kernel._find_queue("b0") is not old
    assert kernel._find_queue("main") is not old
    gate, first = Gate(), Once()

    def hold_first(name: str) -> None:
        if first():
            gate.pass_through()

    def request(name: str) -> CommitRequest:
        meta = CommitMeta(message=name)
        return CommitRequest(
            kernel.history, kernel.formats, [Put(Key(name), table())], meta, RequestTerms(key=name)
        )

    store.before_turn = hold_first
    late = Caller(lambda: old.submit_request(request("by the old one")))
    gate.wait_until_reached()
    kernel.submit_request("main", request("by the new one"))
    gate.open()
    late.result()
    kernel.submit_request("main", request("by the new one again"))
    assert messages(kernel) == ["by the new one", "by the old one", "by the new one again"]


def test_a_busy_queue_is_not_evicted(store: HookedStore) -> None:
    kernel = new_kernel(store, settings=Settings(queues_max=1))
    kernel.references.create_reference("b0", Kind.BRANCH, head(kernel))
    gate, first = Gate(), Once()

    def hold_first(go: Go) -> AdvanceResult:
        if first():
            gate.pass_through()
        return go()

    store.around_advance = hold_first
    slow = Caller(lambda: kernel.commit("main", [Put(Key("a"), table())]))
    gate.wait_until_reached()
    busy = kernel._queues["main"]
    kernel._find_queue("b0")
    assert kernel._queues["main"] is busy
    gate.open()
    slow.result()
