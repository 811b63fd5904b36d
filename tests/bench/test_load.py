"""The load: who commits where."""

from __future__ import annotations

import pytest

from penstock.bench.load import BRANCHES, TABLES, LoadShape, WriterLoad

NAMES = [f"bench/run/{number:02}" for number in range(BRANCHES)]


@pytest.mark.parametrize("writers", [1, 3, 16, 64])
def test_writers_on_many_branches_never_meet_and_leave_none_out(writers: int) -> None:
    load = WriterLoad(LoadShape.MANY_BRANCHES, writers, NAMES)
    where = [
        {load.branch(writer, number) for number in range(load.round_commits(writer))}
        for writer in range(writers)
    ]
    assert sum(map(len, where)) == BRANCHES
    assert set().union(*where) == set(NAMES)


def test_more_writers_than_branches_still_have_one_each() -> None:
    load = WriterLoad(LoadShape.MANY_BRANCHES, 100, NAMES)
    assert {load.branch(writer, 0) for writer in range(100)} == set(NAMES)


@pytest.mark.parametrize("writers", [1, 3, 64, TABLES])
def test_writers_on_one_branch_have_a_table_each(writers: int) -> None:
    load = WriterLoad(LoadShape.ONE_BRANCH, writers, NAMES[:1])
    keys = [{load.next_operation(writer).key for _ in range(5)} for writer in range(writers)]
    assert all(len(own) == 1 for own in keys)
    assert len(set().union(*keys)) == writers
    assert {load.branch(writer, writer) for writer in range(writers)} == set(NAMES[:1])


def test_writers_on_one_table_change_it_every_time() -> None:
    load = WriterLoad(LoadShape.ONE_TABLE, 16, NAMES[:1])
    operations = [load.next_operation(writer) for writer in range(16) for _ in range(5)]
    assert len({operation.key for operation in operations}) == 1
    assert len({operation.content for operation in operations}) == 80


def test_every_shape_says_what_it_means() -> None:
    assert len({shape.description for shape in LoadShape}) == len(LoadShape)
