"""Kept history is told whole, also to who was interrupted before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.errors import Unavailable
from penstock.kernel.kernel import Kernel
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.retained_history import RetainedHistory
from penstock.model.encoding import ObjectId
from penstock.model.nessie import IcebergTable
from penstock.model.objects import CommitObject
from penstock.stores.memory import MemoryStore


@pytest.fixture
def lake() -> Iterator[Lake]:
    with penstock.open(MemoryStore()) as lake:
        yield lake


def put(lake: Lake, number: int) -> None:
    lake.branch().put(f"t{number}", IcebergTable(metadata_location=f"s3://lake/{number}"))


def kernel_of(lake: Lake) -> Kernel:
    assert isinstance(lake.catalogue, Embedded)
    return lake.catalogue.kernel


def test_who_was_interrupted_is_told_all_of_it_again(lake: Lake) -> None:
    unanswered: list[int] = []

    def tell(_: ObjectId, commit: CommitObject, __: bool) -> Iterator[int]:
        if commit.generation in unanswered:
            raise Unavailable("the store does not answer")
        yield commit.generation

    history = RetainedHistory(kernel_of(lake), tell)
    for number in range(3):
        put(lake, number)
    assert next(history.list_unseen()) == 3
    assert sorted(history.list_unseen()) == [1, 2, 3]
    assert [*history.list_unseen()] == []
    for number in range(3, 6):
        put(lake, number)
    unanswered.append(5)
    with pytest.raises(Unavailable):
        [*history.list_unseen()]
    unanswered.clear()
    assert {4, 5, 6} <= {*history.list_unseen()}
    assert [*history.list_unseen()] == []
