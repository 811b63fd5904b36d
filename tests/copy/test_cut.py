"""References that are read while others move them are what they were at one moment."""

from __future__ import annotations

import random

import pytest

from penstock.kernel.lake_seal import KINDS
from penstock.kernel.reference_rows import encode_reference_row
from penstock.kernel.reference_snapshot import read_consistent_rows
from penstock.lake.opener import open_lake
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row
from penstock.testing.faults import FaultyStore, Point
from tests.copy.lakes import rows, table

STATES_MAX = 50
"""Far fewer than a cut looks: of branches that never rest, it promises no moment that all of them share."""


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_a_state_that_there_was(seed: int) -> None:
    """Writes come between the reads, at random, and rest after a while; all states are remembered."""
    chosen = random.Random(seed)
    store = MemoryStore()
    lake = open_lake(store)
    for name in ("a", "b", "c"):
        lake.branch(name).create()
    states: list[dict[str, Row]] = [rows(store)]
    quiet = chosen.choice([0.3, 0.6, 0.9])
    reading = FaultyStore(store)

    def write() -> None:
        if len(states) > STATES_MAX or chosen.random() < quiet:
            return
        name = chosen.choice(["main", "main", "main", "a"])
        lake.branch(name).put("t", table(len(states)))
        states.append(rows(store))
        if chosen.random() < 0.1:
            lake.branch(f"new{len(states)}").create()
            states.append(rows(store))

    reading.at(Point.REFERENCES, write, times=None)
    reading.at(Point.REFERENCE, write, times=None)
    assert read_consistent_rows(reading, KINDS) in states


def test_one_branch_that_never_rests_does_not_keep_the_others_from_being_a_cut() -> None:
    store = MemoryStore()
    lake = open_lake(store)
    lake.branch("job").create()
    states = [rows(store)]
    reading = FaultyStore(store)

    def write() -> None:
        lake.branch().put("t", table(len(states)))
        states.append(rows(store))

    reading.at(Point.REFERENCES, write, times=None)
    reading.at(Point.REFERENCE, write, times=None)
    assert read_consistent_rows(reading, KINDS) in states


def test_a_branch_that_goes_while_it_is_read_is_in_the_cut_or_not() -> None:
    store = MemoryStore()
    lake = open_lake(store)
    lake.branch("job").create()
    reading = FaultyStore(store)
    reading.at(Point.REFERENCES, lambda: lake.branch("job").delete(), skip=2)
    found = read_consistent_rows(reading, KINDS)
    assert found == rows(store)
    assert found["job"].kind == "deleted"
    assert found["main"] == encode_reference_row(lake.kernel.references.get_reference("main"))
