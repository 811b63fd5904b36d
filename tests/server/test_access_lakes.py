"""A lake as a program holds it, behind a check of rights: one thing still leads to the next."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.errors import Denied, TimedOut
from penstock.lake import calls
from penstock.lake.lake import Lake
from penstock.server.access import CheckedCatalogue
from tests.server.access import caller, new_lake, table


@pytest.fixture
def bound() -> Lake:
    """A lake whose holder may only read branches under ``dev/``."""
    return Lake(CheckedCatalogue(new_lake().catalogue, caller("read:dev/*")), author="ada")


def test_a_snapshot_and_its_tables_can_be_read_by_who_came_by_a_reference(bound: Lake) -> None:
    snapshot = bound.branch("dev/etl").snapshot()
    wanted = table("dev/etl-1")
    assert str(snapshot.table("sales.orders").content).count("dev/etl-1")
    assert [one.key for one in snapshot.tables("sales")] == [
        one.key for one in bound.tables("sales", "dev/etl")
    ]
    assert all(one.exists for one in snapshot.tables())
    assert getattr(snapshot.get("sales.orders"), "metadata_location", "") == wanted.metadata_location
    assert len(snapshot.table("sales.orders").log()) == 2
    assert len(snapshot.log()) == 4


def test_a_commits_id_alone_leads_nowhere_for_who_may_read_some_references(bound: Lake) -> None:
    head = bound.branch("dev/etl").head
    with pytest.raises(Denied):
        bound.at(head)
    assert bound.at(f"dev/etl@{head}").get("sales.orders") is not None


def test_a_request_that_nobody_waits_for_any_longer_asks_nothing_more() -> None:
    lake = new_lake()
    late = CheckedCatalogue(lake.catalogue, caller("admin"), deadline_s=time.monotonic() - 1)
    head = lake.branch().head
    some: list[calls.Call[Any]] = [
        calls.GetAbout(),
        calls.Resolve(revision="main"),
        calls.CreateReference(name="new"),
    ]
    for call in some:
        with pytest.raises(TimedOut):
            late.do(call)
    assert lake.branch().head == head
    assert not lake.branch("new").exists
    in_time = CheckedCatalogue(lake.catalogue, caller("admin"), deadline_s=time.monotonic() + 60)
    assert in_time.do(calls.Resolve(revision="main")).commit == head
