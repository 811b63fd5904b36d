"""Files of a table stay if it was deregistered, and only then: not because somebody meant to do it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pytest
from lance_namespace import DeregisterTableRequest, PermissionDeniedError

import penstock
from penstock.formats.lance.lake.calls import GetLanceTable
from penstock.formats.lance.lake.folder_notes import STAYS
from penstock.formats.lance.names import OWNER
from penstock.formats.lance.plugin import LancePlugin
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from tests.lance.tables import ids_of, written
from tests.lance.test_sweep import orphan
from tests.plugins import plugin_of
from tests.sweep.tables import LateClock

FORGET = DeregisterTableRequest(id=["items"])


@pytest.fixture
def clock() -> LateClock:
    return LateClock()


@pytest.fixture
def lake(tmp_path: Path, clock: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester", clock=clock) as lake:
        written(lake.lance(), "other", ids=[1], mode="create")
        yield lake


def create(lake: Lake, ref: str | None = None) -> Path:
    """Make a table, and return its folder, in which nothing moves by itself any more."""
    written(lake.lance(ref), "items", ids=[1], mode="create")
    lake.finish_background()
    return Path(lake.do(GetLanceTable(key=Key("items"), at=ref)).location)


def sweep_all(lake: Lake, clock: LateClock) -> None:
    """Let all be swept that any sweep would ever take: nothing is told by history any more."""
    lake.keep_history(max_commits=1)
    clock.days += 100
    lake.branch().create_namespace("later")
    lake.sweep()
    clock.days += 100
    lake.sweep()
    assert [one.problem for one in lake.sweep_tables(remove_data=True) if one.problem] == []


def test_a_table_that_never_came_to_a_branch_goes_though_its_transaction_deregistered_it(
    lake: Lake, clock: LateClock
) -> None:
    transaction = lake.transaction()
    place = create(lake, transaction.branch)
    transaction.lance.deregister_table(FORGET)
    transaction.abort()
    sweep_all(lake, clock)
    assert not place.exists()


def test_a_table_that_is_dropped_goes_though_a_transaction_was_to_deregister_it(
    lake: Lake, clock: LateClock
) -> None:
    place = create(lake)
    transaction = lake.transaction()
    transaction.lance.deregister_table(FORGET)
    transaction.abort()
    lake.branch().drop("items")
    assert (place / OWNER).exists()
    assert not (place / STAYS).exists()
    sweep_all(lake, clock)
    assert not place.exists()


def test_a_deregistration_that_is_refused_leaves_no_note(lake: Lake) -> None:
    place = create(lake)
    lake.add_check("never", lambda _: False)
    with pytest.raises(PermissionDeniedError):
        lake.lance().deregister_table(FORGET)
    assert not (place / STAYS).exists()


def test_who_dies_after_a_deregistration_has_landed_leaves_the_files(lake: Lake, clock: LateClock) -> None:
    place = create(lake)
    assert isinstance(lake.catalogue, Embedded)
    plugin_of(lake.catalogue, LancePlugin).parts.format._gone = lambda *_: (
        None
    )  # as if the process had ended by then
    lake.lance().deregister_table(FORGET)
    assert (place / OWNER).exists()
    sweep_all(lake, clock)
    assert ids_of(lance.dataset(str(place))) == [1]


def test_who_dies_so_leaves_files_that_nothing_names_too_while_commits_still_have_the_table(
    lake: Lake, clock: LateClock
) -> None:
    place = create(lake)
    left = orphan(place)
    assert isinstance(lake.catalogue, Embedded)
    plugin_of(lake.catalogue, LancePlugin).parts.format._gone = lambda *_: None
    lake.lance().deregister_table(FORGET)
    assert (place / OWNER).exists()
    clock.days = 100
    assert [one.problem for one in lake.sweep_tables(remove_data=True) if one.problem] == []
    assert (place / left).exists()


def test_files_that_nothing_names_go_while_a_transaction_is_about_to_deregister_their_table(
    lake: Lake, clock: LateClock
) -> None:
    place = create(lake)
    left = orphan(place)
    transaction = lake.transaction()
    transaction.lance.deregister_table(FORGET)
    assert (place / STAYS).exists()
    clock.days = 100
    lake.sweep_tables(remove_data=True)
    assert not (place / left).exists()
    assert ids_of(lance.dataset(str(place))) == [1]
    transaction.abort()


@pytest.mark.parametrize("first", ["main", "dev"])
def test_what_one_branch_deregisters_stays_though_another_one_drops_it(
    lake: Lake, clock: LateClock, first: str
) -> None:
    place = create(lake)
    lake.branch("dev").create()
    for branch in (first, "dev" if first == "main" else "main"):
        if branch == "main":
            lake.lance(branch).deregister_table(FORGET)
        else:
            lake.branch(branch).drop("items")
    sweep_all(lake, clock)
    assert ids_of(lance.dataset(str(place))) == [1]
    assert not (place / OWNER).exists()


def test_what_a_transaction_deregisters_under_another_name_stays_when_it_lands(
    lake: Lake, clock: LateClock
) -> None:
    place = create(lake)
    with lake.transaction() as transaction:
        transaction.lance.rename_table({"id": ["items"], "new_table_name": "things"})
        transaction.lance.deregister_table(DeregisterTableRequest(id=["things"]))
    assert not (place / OWNER).exists()
    sweep_all(lake, clock)
    assert ids_of(lance.dataset(str(place))) == [1]
