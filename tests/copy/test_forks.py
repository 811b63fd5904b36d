"""A fork is a lake of its own, and the source does not notice it."""

from __future__ import annotations

import pytest

from penstock.errors import LakeExists
from penstock.kernel.description import read_description
from penstock.kernel.settings import Settings
from penstock.lake.copy import copy_lake, move_lake
from penstock.lake.opener import open_lake
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import FaultyStore, Point
from tests.copy.lakes import like, move, new_store, objects, reopened, rows, table


@pytest.mark.parametrize("seed", range(3))
def test_a_fork_leaves_the_source_alone(seed: int) -> None:
    source, target = new_store(seed), MemoryStore()
    before = like(source)
    forked = copy_lake(source, target)
    assert (source._rows, source._objects) == (before._rows, before._objects)
    assert rows(target) == rows(source)
    assert objects(target) == objects(source)
    here, there = reopened(source), reopened(target)
    assert there.id == forked.id != here.id
    assert (here.forked_from, there.forked_from) == ("", here.id)
    assert there.history_rules == here.history_rules
    here.branch().put("t", table("here"))
    there.branch().put("t", table("there"))
    assert here.branch().head != there.branch().head
    assert there.fsck().damages == ()


def test_a_fork_knows_where_it_is_from_wherever_it_moves() -> None:
    source, fork, target, second = new_store(1), MemoryStore(), MemoryStore(), MemoryStore()
    first = read_description(source).id
    identity = move(source, fork, fork=True)
    assert move(fork, target) == identity
    assert reopened(target).forked_from == first
    move(target, second, fork=True)
    assert reopened(second).forked_from == identity


def test_a_lake_that_has_moved_can_be_forked_from_its_old_place() -> None:
    source, target, fork = new_store(2), MemoryStore(), MemoryStore()
    move(source, target)
    move(source, fork, fork=True)
    there = reopened(fork)
    assert there.id != reopened(target).id
    there.branch().put("t", table("fork"))
    there.branch("new").create()
    assert there.moving_to == ""


def test_forking_again_to_the_same_place_says_that_it_is_complete() -> None:
    source, target = new_store(1), MemoryStore()
    identity = move(source, target, fork=True)
    reopened(source).branch().put("t", table("later"))
    again = copy_lake(source, target)
    assert (again.repeated, again.id) == (True, identity)
    with pytest.raises(LakeExists):
        move_lake(source, target)


@pytest.mark.parametrize("skip", range(12))
def test_a_fork_of_a_lake_in_use_is_the_lake_at_one_moment(skip: int) -> None:
    """A job lands and its branch goes while the references are read: the fork has all of that, or nothing."""
    store, target = MemoryStore(), MemoryStore()
    lake = open_lake(store)
    lake.branch().put("t", table(0))
    lake.branch("job").create().put("u", table(1))
    source = FaultyStore(store)

    def land() -> None:
        lake.merge("job", "main")
        lake.branch("job").delete()

    source.at(Point.REFERENCES, land, skip=skip)
    move(source, target, fork=True)
    there = reopened(target)
    has_landed = "u" in {str(one.key) for one in there.tables()}
    assert [branch.name for branch in there.branches()] == (["main"] if has_landed else ["job", "main"])
    assert there.deleted() == (["job"] if has_landed else [])
    assert there.fsck().damages == ()


def test_a_fork_keeps_its_horizon_when_the_source_sweeps_on() -> None:
    source, target = MemoryStore(), FaultyStore(MemoryStore())
    lake = open_lake(source, settings=Settings(grace_s=0, nobody_writes=True))
    lake.keep_history("main", max_commits=3)

    def go_on() -> None:
        for number in range(9):
            lake.branch().put("t", table(number))
        lake.sweep()

    go_on()
    target.at(Point.AFTER_SWAP, go_on, name="@lake", skip=3)  # the objects are copied, and not checked yet
    move(source, target, fork=True)
    there = reopened(target)
    assert len(there.log()) == 3
    assert not {one.id for one in there.log()} & {one.id for one in reopened(source).log()}
    assert there.fsck().damages == ()


def test_a_fork_of_a_lake_that_never_rests_is_sound() -> None:
    store, target = MemoryStore(), MemoryStore()
    lake = open_lake(store)
    source = FaultyStore(store)
    source.at(Point.REFERENCES, lambda: lake.branch().put("t", table(source.passed.total())), times=None)
    move(source, target, fork=True)
    there = reopened(target)
    assert there.fsck().damages == ()
    assert there.branch().head in {one.id for one in lake.log(limit=None)}
    assert not lake.moving_to
