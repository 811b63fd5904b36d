"""What must not depend on how long a line is: depth of calls, and work where nothing was merged."""

import pytest

import penstock
from penstock.errors import CommitNotFound
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from penstock.stores.memory import MemoryStore
from penstock.testing import CountingStore
from tests.kernel.lakes import table

LONG = 1200
"""More commits than Python allows calls within calls."""


def test_very_many_commits_are_rebased_and_transplanted() -> None:
    lake = penstock.open("memory:")
    dev = lake.branch("dev").create()
    lake.branch().put("m", table(0))
    for number in range(LONG):
        dev.put(f"t{number % 7}", table(number))
    assert len(lake.transplant(f"dev~{LONG}..dev", "main").commits) == LONG
    lake.branch("other").create(at=f"main~{LONG}")
    assert len(lake.rebase("dev", "other").commits) == LONG
    assert lake.at("dev").get("t3") == lake.at("main").get("t3")


@pytest.mark.parametrize("has_merge", [False, True])
def test_a_base_that_is_not_on_the_branch_is_refused_outside_of_the_queue(has_merge: bool) -> None:
    lake = penstock.open("memory:")
    lake.branch("dev").create().put("d", table(0))
    strange = lake.branch("dev").head
    for number in range(20):
        lake.branch().put("t", table(number))
    if has_merge:
        lake.branch("side").create().put("s", table(0))
        lake.merge("side", "main")
        merged = lake.branch("side").head
        assert lake.branch().put("u", table(1), base=merged).message == "put u"
    with pytest.raises(CommitNotFound, match="not in the history of branch 'main'"):
        lake.branch().put("t", table(99), base=strange)


def test_a_merge_costs_what_the_source_changed_however_far_the_target_went_on() -> None:
    reads = []
    for length in (50, 800):
        store = CountingStore(MemoryStore())
        lake = penstock.open(store)
        lake.branch("dev").create().put("d", table(0))
        for number in range(length):
            lake.branch().put(f"t{number % 7}", table(number))
        store.reset()
        penstock.open(store).merge("dev", "main", dry_run=True)
        reads.append(store.counts.objects_read)
    assert reads[1] < 3 * reads[0]


def test_very_many_renames_and_dropped_namespaces_in_one_commit() -> None:
    """Quadratic work would take minutes here."""
    lake, count = penstock.open("memory:"), 4000
    main = lake.branch()
    tables = [Put(Key("n", f"s{number}", "t"), table(number)) for number in range(count)]
    main.commit(tables, create_namespaces=True)
    held = dict(lake.at("main").entries("n"))
    moves = [
        move
        for key, content in held.items()
        if len(key) == 3
        for move in (Delete(key), Put(Key("n", key[1] + "x"), content))
    ]
    drops = [Delete(key) for key in held if len(key) == 2]
    main.commit([*moves, *drops])
    assert len(list(lake.at("main").entries("n"))) == 1 + count
