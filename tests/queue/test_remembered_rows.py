"""A queue on a store without locks tries with the row that it remembers; nobody is refused because of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.errors import CommitConflict, ReferenceChanged, ReferenceNotFound
from penstock.kernel.kernel import Kernel
from penstock.metrics import table as metrics
from penstock.metrics.memory import Metrics
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.operations import Put, Unchanged
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Turn
from penstock.stores.wrapped import WrappedStore
from penstock.testing.journal import JournalFormat, append, lines_of
from tests.queue.hooks import HookedStore, head, messages, new_kernel, put, table


class _Rows(WrappedStore):
    """Counts turns that did not read their row."""

    uncertain = 0

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        with super().turn(name, remembered) as turn:
            self.uncertain += not turn.is_certain
            yield turn


@pytest.fixture
def mine(shared: MemoryStore) -> _Rows:
    return _Rows(shared)


@pytest.fixture
def kernel(mine: _Rows) -> Kernel:
    made = new_kernel(mine)
    put(made, "first")
    return made


@pytest.fixture
def theirs(shared: MemoryStore, kernel: Kernel) -> Kernel:
    """Another process on the same store."""
    return new_kernel(shared)


def test_a_queue_that_moved_the_branch_does_not_read_the_row_again(kernel: Kernel, mine: _Rows) -> None:
    for number in range(5):
        put(kernel, f"t{number}")
    assert mine.uncertain == 5


def test_what_another_process_landed_is_found_by_the_lost_swap(kernel: Kernel, theirs: Kernel) -> None:
    put(theirs, "theirs")
    put(kernel, "mine")
    assert messages(kernel) == ["first", "theirs", "mine"]


def test_an_if_head_that_another_process_made_is_not_refused(kernel: Kernel, theirs: Kernel) -> None:
    seen = put(theirs, "theirs").head
    put(kernel, "mine", if_head=seen)
    assert messages(kernel) == ["first", "theirs", "mine"]


def test_an_if_head_that_is_only_remembered_is_refused(kernel: Kernel, theirs: Kernel) -> None:
    seen = head(kernel)
    put(theirs, "theirs")
    with pytest.raises(ReferenceChanged):
        put(kernel, "mine", if_head=seen)
    assert messages(kernel) == ["first", "theirs"]


def test_a_key_that_another_process_made_is_there_for_a_check(kernel: Kernel, theirs: Kernel) -> None:
    """A conflict at the remembered head, none at the real one."""
    put(theirs, "theirs")
    kernel.commit(
        "main", [Unchanged(Key("theirs")), Put(Key("mine"), table())], CommitMeta(), base=head(theirs)
    )
    with pytest.raises(CommitConflict):
        kernel.commit("main", [Put(Key("mine"), table("other"))], CommitMeta(), base=head_before(kernel))


def head_before(kernel: Kernel) -> bytes:
    return kernel.history.read_commit(head(kernel)).parent


def test_a_branch_that_another_process_deleted_is_not_found(kernel: Kernel, theirs: Kernel) -> None:
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    kernel.commit("dev", [Put(Key("t"), table())], CommitMeta())
    theirs.references.delete_reference("dev")
    with pytest.raises(ReferenceNotFound):
        kernel.commit("dev", [Put(Key("u"), table())], CommitMeta())


def test_a_branch_that_another_process_made_anew_takes_commits(kernel: Kernel, theirs: Kernel) -> None:
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    kernel.commit("dev", [Put(Key("t"), table())], CommitMeta(message="old"))
    theirs.references.delete_reference("dev")
    theirs.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    kernel.commit("dev", [Put(Key("u"), table())], CommitMeta(message="new"))
    assert messages(theirs, "dev") == ["new"]


def test_a_change_that_must_be_prepared_again_sees_the_row_as_it_is(shared: MemoryStore) -> None:
    """It was prepared against the real head: at the remembered one it would have to go round for ever."""
    ours, other = JournalFormat(), JournalFormat()
    kernel, theirs = Kernel(shared, [ours]), Kernel(shared, [other])
    new_kernel(shared)
    kernel.commit("main", [append("diary", "one")], CommitMeta())
    theirs.commit("main", [append("diary", "two")], CommitMeta())
    ours.again = 1
    kernel.commit("main", [append("diary", "three")], CommitMeta())
    assert lines_of(kernel, "diary") == ["one", "two", "three"]


def test_the_kernel_tells_a_meter_what_it_does(shared: MemoryStore) -> None:
    new_kernel(shared)
    meter = Metrics()
    kernel, theirs = Kernel(HookedStore(shared), meter=meter), Kernel(shared)
    put(kernel, "a")
    put(theirs, "b")
    put(kernel, "c")
    with pytest.raises(ReferenceChanged):
        put(kernel, "d", if_head=NO_COMMIT)
    kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    seen = meter.snapshot()
    assert seen.count(metrics.REQUESTS, branch="main", kind="commit", outcome="ok") == 2
    assert seen.count(metrics.REQUESTS, branch="main", outcome=ReferenceChanged.code) == 1
    assert seen.count(metrics.REQUESTS, branch="dev", kind="reference", outcome="ok") == 1
    assert seen.count(metrics.SWAPS_LOST, branch="main") == 1
    # The first; one that lost and its repetition; the refusal by the remembered row and by the real one.
    assert seen.count(metrics.TRIES, branch="main") == 5
    assert seen.gauge(metrics.QUEUE_DEPTH, branch="main") == 0
    batches = seen.distribution(metrics.BATCH_REQUESTS)
    assert batches is not None
    assert (batches.count, batches.sum) == (3, 3)
    waits = seen.distribution(metrics.QUEUE_WAIT_SECONDS)
    assert waits is not None
    assert waits.count == 3
    requests = seen.distribution(metrics.REQUEST_SECONDS, kind="commit")
    assert requests is not None
    assert requests.count == 3
