"""Chains are read ahead: the same objects, by far fewer requests."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import check_object
from penstock.kernel.read_ahead import LINKS_MAX, ReadAhead
from penstock.lake.opener import open_lake
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import CommitObject
from penstock.stores.memory import MemoryStore
from penstock.stores.wrapped import WrappedStore
from tests.copy.lakes import QUICK, table

COMMITS = 700


class _Counting(WrappedStore):
    requests = 0

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        self.requests += 1
        return super().fetch(ids)


@pytest.fixture(scope="module")
def filled() -> tuple[MemoryStore, ObjectId]:
    store = MemoryStore()
    lake = open_lake(store, settings=QUICK)
    for number in range(COMMITS):
        lake.branch().put("t", table(number))
    return store, bytes.fromhex(lake.branch().head)


def test_a_chain_is_read_by_few_requests(filled: tuple[MemoryStore, ObjectId]) -> None:
    store, one = filled
    counting = _Counting(store)
    reader = ReadAhead(counting)
    depths = []
    while one != NO_COMMIT:
        (data,) = reader.fetch([one]).values()
        commit = check_object(one, data)
        assert isinstance(commit, CommitObject)
        depths.append(commit.depth)
        one = commit.parent
    assert depths == [*range(COMMITS, 0, -1)]
    assert counting.requests <= 2 * 24
    assert len(reader._ahead) <= 2 * LINKS_MAX


def test_what_is_missing_is_left_out_and_what_is_read_ahead_is_handed_out_once(
    filled: tuple[MemoryStore, ObjectId],
) -> None:
    store, head = filled
    reader = ReadAhead(store)
    commit = check_object(head, store.fetch([head])[head])
    assert isinstance(commit, CommitObject)
    gone = bytes(32)
    assert reader.fetch([gone]) == {}
    assert reader.fetch([head, gone]).keys() == {head}
    assert commit.parent in reader._ahead
    for _ in range(2):
        assert reader.fetch([commit.parent]) == store.fetch([commit.parent])


def test_a_check_of_long_history_makes_few_requests(filled: tuple[MemoryStore, ObjectId]) -> None:
    counting = _Counting(filled[0])
    checked = fsck(Kernel(counting))
    assert (checked.commits, checked.damages) == (COMMITS, ())
    assert counting.requests < COMMITS / 3
