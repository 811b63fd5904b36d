"""Commits whose process dies, or whose answer is lost: nothing is there twice, and nothing by half."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.formats.delta.branch_log.intents import CommitIntent
from penstock.formats.delta.protocol.actions import Action
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import FaultyStore, Point
from tests.formats.delta.managed import Owner, add


class Died(BaseException):
    """The process ends right here."""


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
def owner(store: FaultyStore, tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(store, tmp_path)
    yield owner
    owner.close()


def small() -> list[Action]:
    return [add("new")]


def large() -> list[Action]:
    return [add("new"), *(add(f"{number}-{'x' * 100}") for number in range(1000))]


def die() -> None:
    raise Died


@pytest.mark.parametrize("actions", [small, large], ids=["held", "body"])
@pytest.mark.parametrize("version", [None, 2], ids=["assigned", "given"])
@pytest.mark.parametrize("point", [Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP])
def test_r3_a_commit_that_died_is_there_or_not_and_its_repetition_makes_sure(
    owner: Owner,
    store: FaultyStore,
    tmp_path: Path,
    point: Point,
    version: int | None,
    actions: Callable[[], list[Action]],
) -> None:
    owner.create()
    owner.commit([add("old")])
    uuid = uuid4()
    store.at(point, die, name="main")
    with pytest.raises(Died):
        owner.commit(actions(), uuid=uuid, version=version)
    again = Owner(store, tmp_path)
    landed = point is Point.AFTER_SWAP
    assert again.line().latest == (2 if landed else 1)
    # Whoever opens the lake next publishes what the dead process ratified.
    assert ("new" in {one.path for one in again.published().read_files()}) is landed
    if version is not None or not landed:
        again.commit(actions(), uuid=uuid, version=version)
        assert again.line().latest == 2
    published = [one.path for one in again.published().read_files()]
    assert published.count("new") == 1
    assert set(published) == again.paths()
    again.close()


@pytest.mark.parametrize("version", [None, 1], ids=["assigned", "given"])
def test_r8_a_lost_answer_is_found_out_and_the_version_is_there_once(
    owner: Owner, store: FaultyStore, version: int | None
) -> None:
    owner.create()
    store.lose_answer(name="main")
    assert owner.commit([add("a")], version=version) == 1
    assert owner.line().latest == 1
    assert [one.path for one in owner.published().read_files()] == ["a"]


@pytest.mark.parametrize("version", [None, 1], ids=["assigned", "given"])
def test_the_same_request_under_its_key_is_answered_once(
    owner: Owner, store: FaultyStore, tmp_path: Path, version: int | None
) -> None:
    owner.create()
    intent = CommitIntent(actions=b'{"txn":{"appId":"a","version":1}}\n', uuid=uuid4(), version=version)
    store.at(Point.AFTER_SWAP, die, name="main")
    with pytest.raises(Died):
        owner.ask(intent, once="my key")
    again = Owner(store, tmp_path)
    assert again.ask(intent, once="my key").repeated
    assert again.line().latest == 1
    again.close()


def test_a_swap_that_is_lost_again_and_again_leaves_no_trace_in_the_table(
    owner: Owner, store: FaultyStore
) -> None:
    owner.create()
    store.lose_swap(times=3, name="main")
    assert owner.commit([add("a")]) == 1
    info = owner.info(1)
    assert info.in_commit_timestamp == owner.line().timestamp_ms
    assert [one.path for one in owner.published().read_files()] == ["a"]
