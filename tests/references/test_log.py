"""The ref log: one entry for each swap, which can neither lag nor lie, and outlives the reference."""

from itertools import pairwise

import pytest

from penstock.errors import InvalidName, ReferenceNotFound
from penstock.kernel import skip_pointers
from penstock.kernel.kernel import Kernel
from penstock.lake.answers import LogLine
from penstock.lake.calls import GetReferenceLog
from penstock.lake.lake import Lake
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.objects import LogEntry
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from tests.queue.hooks import HookedStore, SetClock, gather, head, new_kernel, put, ref_log, table


def _eventful(lake: Lake) -> None:
    """A branch that sees all that a branch can see."""
    lake.branch().put("a", table())
    lake.author = "anna"
    lake.branch("dev").create()
    lake.branch("dev").put("b", table(), author="bert")
    lake.branch("other").create()
    lake.branch("other").put("c", table())
    lake.merge("other", "dev", author="cora")
    lake.branch("other").put("d", table())
    lake.transplant("other", "dev")
    lake.author = "doro"
    lake.branch("dev").assign("main")
    lake.branch("dev").delete()


def _lines(lake: Lake, name: str) -> list[LogLine]:
    return lake.reflog(name)[::-1]


def test_every_kind_of_event_is_in_the_log_with_who_when_from_and_to(lake: Lake, clock: SetClock) -> None:
    began = clock()
    _eventful(lake)
    lines = _lines(lake, "dev")
    assert [(line.event, line.who) for line in lines] == [
        ("create", "anna"),
        ("commit", "bert"),
        ("merge", "cora"),
        ("transplant", "anna"),
        ("assign", "doro"),
        ("delete", "doro"),
    ]
    assert [line.position for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line.name for line in lines] == ["dev"] * 6
    times = [line.time.timestamp() * 1_000_000 for line in lines]
    assert times == sorted(set(times))
    assert began <= times[0] + 1
    assert times[-1] <= clock() + 1
    main = lake.resolve("main")
    assert (lines[0].before, lines[0].after) == (NO_COMMIT.hex(), main)
    assert (lines[4].after, lines[5].before, lines[5].after) == (main, main, main)
    assert [line.requests for line in lines] == [0, 1, 1, 1, 0, 0]


def test_each_entry_starts_where_the_one_before_it_ended(lake: Lake) -> None:
    _eventful(lake)
    for before, after in pairwise(_lines(lake, "dev")):
        assert after.before == before.after


def test_the_newest_entry_ends_where_the_reference_is(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    for number in range(5):
        dev.put(f"t{number}", table())
        newest = dev.reflog(limit=1)[0]
        assert (newest.after, newest.position) == (dev.head, dev.reference.position)
    dev.assign("main")
    assert dev.reflog(limit=1)[0].after == dev.head


def test_a_rebase_is_a_transplant_of_the_branch_itself(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    dev.put("mine", table())
    lake.branch().put("theirs", table())
    was = dev.head
    lake.rebase("dev", "main")
    newest = dev.reflog(limit=1)[0]
    assert (newest.event, newest.before, newest.after) == ("transplant", was, dev.head)


def test_the_log_can_be_read_after_deletion_and_goes_on_after_a_new_creation(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    dev.put("a", table())
    last = dev.head
    dev.delete()
    assert lake.deleted() == ["dev"]
    assert [line.event for line in _lines(lake, "dev")] == ["create", "commit", "delete"]
    lake.tag("dev").create()
    assert lake.deleted() == []
    lines = _lines(lake, "dev")
    assert [line.event for line in lines] == ["create", "commit", "delete", "create"]
    assert [line.position for line in lines] == [1, 2, 3, 4]
    assert lines[3].before == last
    entries = ref_log(lake.kernel, "dev")
    assert entries[2].incarnation == entries[0].incarnation != entries[3].incarnation


def test_a_reference_deleted_without_a_log_leaves_nothing(lake: Lake) -> None:
    lake.branch("job").create()
    lake.kernel.references.delete_reference("job", leave_log=False)
    assert lake.deleted() == []
    with pytest.raises(ReferenceNotFound, match="'job'"):
        lake.reflog("job")
    lake.branch("job").create()
    assert [line.position for line in lake.reflog("job")] == [1]


def test_one_swap_is_one_entry_that_names_every_request_it_landed(store: HookedStore) -> None:
    kernel = new_kernel(store)
    put(kernel, "base")
    kernel.references.create_reference("dev", Kind.BRANCH, head(kernel))
    kernel.commit("dev", [Put(Key("from-dev"), table())])
    source = head(kernel, "dev")

    def commit(name: str) -> None:
        meta = CommitMeta(message=name, authors=(name,))
        kernel.commit("main", [Put(Key(name), table())], meta, key=f"key-{name}")

    for caller in gather(
        kernel,
        store,
        lambda: commit("anna"),
        lambda: kernel.merge(source, "main", CommitMeta(committer="bert"), key="key-bert"),
        lambda: commit("cora"),
    ):
        caller.result()
    entry = ref_log(kernel)[-1]
    assert [(one.kind, one.key, one.author) for one in entry.landed] == [
        ("commit", "key-anna", "anna"),
        ("merge", "key-bert", "bert"),
        ("commit", "key-cora", "cora"),
    ]
    assert entry.after == entry.landed[-1].commit == head(kernel)


def test_reading_a_log_takes_no_more_than_it_needs(lake: Lake, store: HookedStore) -> None:
    for number in range(50):
        lake.branch().put(f"t{number % 3}", table(str(number)))
    fresh = new_kernel(store)
    store.fetched = 0
    newest = [entry.position for _, entry in zip(range(3), _entries(fresh), strict=False)]
    assert newest == [51, 50, 49]
    assert store.fetched <= 4


def _entries(kernel: Kernel) -> list[LogEntry]:
    found = []
    for _, entry in kernel.references.walk_log("main"):
        found.append(entry)
        if len(found) == 3:
            break
    return found


def test_the_log_has_pointers_that_skip_along_it(clock: SetClock) -> None:
    store = MemoryStore(clock)
    kernel = new_kernel(store, clock)
    for number in range(500):
        put(kernel, f"t{number % 3}", message=str(number))
    entries = dict(kernel.references.walk_log("main"))
    assert len(entries) == 501
    assert all(entries[one.jump].position < one.position for one in entries.values() if one.jump in entries)
    assert sum(one.jump != one.previous for one in entries.values()) > 100
    newest = kernel.references.get_reference("main").log
    counting = HookedStore(store)
    for position in (1, 2, 100, 255, 256, 257, 499, 501):
        fresh = new_kernel(counting)
        counting.fetched = 0
        one, found = skip_pointers.walk_back_to_depth(_reader(fresh), newest, position)
        assert found == entries[one]
        assert found.position == position
        assert counting.fetched <= 3 * 9, f"to {position} in {counting.fetched} reads"


def _reader(kernel: Kernel) -> skip_pointers.Reader[LogEntry]:
    def read(one: ObjectId) -> LogEntry | None:
        found: LogEntry | None = kernel.objects.find((one,)).get(one)
        return found

    return read


def test_times_in_a_log_only_grow_even_if_the_clock_does_not(clock: SetClock) -> None:
    kernel = new_kernel(MemoryStore(clock), clock)
    for number in range(4):
        put(kernel, f"t{number}")
        clock.go_on(-100)
    times = [entry.time_us for entry in ref_log(kernel)]
    assert times == sorted(set(times))


def test_a_log_that_does_not_exist_is_not_found(lake: Lake) -> None:
    with pytest.raises(ReferenceNotFound, match="'nosuch'"):
        lake.reflog("nosuch")
    with pytest.raises(InvalidName):
        lake.reflog("@lake")


def test_a_log_goes_on_before_any_position(lake: Lake) -> None:
    for number in range(40):
        lake.branch().put("a", table(str(number)))
    positions = [line.position for line in lake.reflog(limit=100)]
    for before in (-1, 0, 1, 2, 3, 17, 40, 41, 42, 1000):
        page = lake.do(GetReferenceLog(name="main", before=before, limit=None))
        assert [line.position for line in page] == [one for one in positions if one < before]
