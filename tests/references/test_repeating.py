"""Requests about references, repeated under an idempotency key."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock.errors import IdempotencyKeyReused, InvalidRequest
from penstock.kernel.fsck import fsck
from penstock.lake.lake import Lake
from penstock.stores.memory import MemoryStore
from tests.queue.hooks import HookedStore, everything, new_kernel, new_lake, table


def _lake_with_commits(lake: Lake) -> Lake:
    for name in "abc":
        lake.branch().put(name, table())
    return lake


def _busy(lake: Lake, name: str) -> None:
    """Other things happen to a branch, more than a quick look at its log would show."""
    for number in range(40):
        lake.branch(name).put(f"busy{number}", table())


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_repeated_creation_is_done_once(lake: Lake, is_busy: bool) -> None:
    _lake_with_commits(lake)
    lake.branch("dev").create(at="main~1", idempotency_key="k")
    if is_busy:
        _busy(lake, "dev")
    before = lake.branch("dev").reference
    lake.branch("dev").create(at="main~1", idempotency_key="k")
    assert lake.branch("dev").reference == before


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_repeated_assignment_is_done_once(lake: Lake, is_busy: bool) -> None:
    _lake_with_commits(lake)
    dev = lake.branch("dev").create(at="main~2")
    was = dev.head
    dev.assign("main~1", expected=was, idempotency_key="k")
    if is_busy:
        _busy(lake, "dev")
    before = dev.reference
    dev.assign("main~1", expected=was, idempotency_key="k")
    assert dev.reference == before


def test_a_repeated_assignment_without_an_expectation_does_not_undo_later_work(lake: Lake) -> None:
    _lake_with_commits(lake)
    dev = lake.branch("dev").create()
    dev.assign("main~1", idempotency_key="k")
    _busy(lake, "dev")
    before = dev.reference
    dev.assign("main~1", idempotency_key="k")
    assert dev.reference == before


def test_a_repeated_deletion_is_done_once(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    dev.delete(idempotency_key="k")
    log = len(lake.reflog("dev"))
    dev.delete(idempotency_key="k")
    assert len(lake.reflog("dev")) == log


def test_a_repeated_deletion_does_not_delete_what_was_created_since(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    dev.delete(idempotency_key="k")
    dev.create()
    dev.delete(idempotency_key="k")
    assert dev.exists


def _others(lake: Lake) -> dict[str, Callable[[], Any]]:
    dev = lake.branch("dev")
    return {
        "assign elsewhere": partial(dev.assign, "main~2", idempotency_key="k"),
        "delete": partial(dev.delete, idempotency_key="k"),
        "create elsewhere": partial(dev.create, at="main~2", idempotency_key="k"),
    }


@pytest.mark.parametrize("other", ["assign elsewhere", "delete", "create elsewhere"])
@pytest.mark.parametrize("first", ["create", "assign"])
def test_another_request_under_the_same_key_is_refused(
    lake: Lake, store: HookedStore, first: str, other: str
) -> None:
    _lake_with_commits(lake)
    if first == "create":
        lake.branch("dev").create(at="main~1", idempotency_key="k")
    else:
        lake.branch("dev").create()
        lake.branch("dev").assign("main~1", idempotency_key="k")
    before = everything(store)
    with pytest.raises(IdempotencyKeyReused, match="'k'"):
        _others(lake)[other]()
    assert everything(store) == before


@pytest.mark.parametrize("key", ["x" * 201, "line\nbreak", "\ud800", 7, b"bytes", "x" * 1_000_000])
@pytest.mark.parametrize("what", ["create", "assign", "delete"])
def test_a_key_that_cannot_be_is_refused_and_nothing_is_written(key: Any, what: str) -> None:
    store = MemoryStore()
    lake = new_lake(store)
    if what != "create":
        lake.branch("dev").create()
    do = {
        "create": partial(lake.branch("dev").create, idempotency_key=key),
        "assign": partial(lake.branch("dev").assign, "main", idempotency_key=key),
        "delete": partial(lake.branch("dev").delete, idempotency_key=key),
    }[what]
    before = everything(store)
    with pytest.raises(InvalidRequest, match="idempotency key"):
        do()
    assert everything(store) == before
    assert fsck(new_kernel(store)).damages == ()
