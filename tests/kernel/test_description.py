"""The lake's description is changed as every other row is: a store that fails once is asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import IcebergTable, Lake
from penstock.errors import Damaged, InvalidRequest, OutcomeUnknown, Unavailable
from penstock.kernel.copy import copy_store
from penstock.kernel.description import ROW_NAME, change_description, read_description
from penstock.kernel.settings import Settings
from penstock.lake.calls import GetSetting, PutSetting
from penstock.model.clock import TIME_MAX_US, TIME_MIN_US
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import FaultyStore, Point
from tests.queue.hooks import new_kernel

QUICK = Settings(backoff_max_ms=2, tries_max=5)

CHANGES: dict[str, Callable[[Lake], Any]] = {
    "commit": lambda lake: lake.branch().put("u", IcebergTable(metadata_location="s3://b/1")),
    "create a branch": lambda lake: lake.branch("dev").create(),
    "create a token": lambda lake: lake.create_token("x", "read"),
    "begin a transaction": lambda lake: lake.transaction().abort(),
    "keep history": lambda lake: lake.keep_history("*", max_commits=5),
    "say a grace": lambda lake: lake.do(penstock.lake.calls.SetGrace(grace_s=7200.0)),
    "add a root": lambda lake: lake.add_root("/tmp/some-root"),
    "put a setting": lambda lake: lake.do(PutSetting(name="a", value="b")),
}


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
def lake(store: FaultyStore) -> Lake:
    lake = penstock.open(store, settings=QUICK)
    lake.branch().put("t", IcebergTable(metadata_location="s3://b/0"))
    return lake


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_survives_a_store_that_is_away_for_a_moment(
    lake: Lake, store: FaultyStore, change: str
) -> None:
    store.fail(Point.TURN, Unavailable("away for a moment"))
    CHANGES[change](lake)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_survives_an_answer_that_is_lost(lake: Lake, store: FaultyStore, change: str) -> None:
    store.lose_answer()
    CHANGES[change](lake)


def test_a_setting_whose_answer_was_lost_is_answered_with_what_was_there_before(
    lake: Lake, store: FaultyStore
) -> None:
    lake.do(PutSetting(name="a", value="first"))
    store.lose_answer(name=ROW_NAME)
    assert lake.do(PutSetting(name="a", value="second")) == "first"
    assert lake.do(GetSetting(name="a")) == "second"


def test_a_root_whose_removal_was_not_answered_is_not_missed(lake: Lake, store: FaultyStore) -> None:
    lake.add_root("/tmp/some-root")
    store.lose_answer(name=ROW_NAME)
    lake.remove_root("/tmp/some-root")
    assert lake.roots == ()


def test_a_change_is_made_once_though_others_change_the_description_too(
    lake: Lake, store: FaultyStore
) -> None:
    def meddle() -> None:
        other = penstock.open(store, settings=QUICK)
        other.do(PutSetting(name="theirs", value="b"))

    store.at(Point.AFTER_SWAP, meddle, name=ROW_NAME)
    store.lose_answer(name=ROW_NAME, skip=1)
    lake.do(PutSetting(name="mine", value="a"))
    assert dict(read_description(store).settings) == {"mine": "a", "theirs": "b"}


def test_a_store_that_stays_away_says_so(lake: Lake, store: FaultyStore) -> None:
    store.be_unavailable()
    with pytest.raises(Unavailable, match="does not answer"):
        lake.keep_history("*", max_commits=5)


def test_a_change_of_which_nothing_is_known_can_be_repeated(lake: Lake, store: FaultyStore) -> None:
    store.lose_answer(name=ROW_NAME)
    store.fail(Point.TURN, Unavailable("away"), times=4, skip=1)
    with pytest.raises(OutcomeUnknown, match="repeating the request is safe"):
        lake.add_root("/tmp/some-root")
    lake.add_root("/tmp/some-root")
    assert lake.roots == ("/tmp/some-root",)


def test_what_a_change_refuses_is_not_tried_again(lake: Lake, store: FaultyStore) -> None:
    asked = []

    def refuse(_: object) -> Any:
        asked.append(1)
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        change_description(store, QUICK, refuse)
    assert len(asked) == 1


def test_a_lake_is_moved_though_answers_are_lost_on_the_way() -> None:
    source, target = FaultyStore(MemoryStore()), FaultyStore(MemoryStore())
    kernel = new_kernel(source, settings=QUICK)
    source.lose_answer(name=ROW_NAME)
    target.lose_answer(name=ROW_NAME, skip=1)
    target.lose_answer(name="main")
    target.fail(Point.TURN, Unavailable("away"), name="main")
    copy_store(kernel, target, source_place="here", target_place="there")
    assert [one.name for one in penstock.open(target).branches()] == ["main"]


@pytest.mark.parametrize("created_us", [TIME_MIN_US - 1, TIME_MAX_US + 1])
def test_a_lake_of_a_time_that_never_was_is_damaged(created_us: int) -> None:
    """A bit that fell over in the row, which no hash covers."""
    with pytest.raises(Damaged, match=r"the lake's description at .* cannot be read"):
        read_description(new_kernel(MemoryStore(), clock=lambda: created_us).store)
