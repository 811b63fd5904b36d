"""What is left when all is over: a sound lake, the same for everybody, and nothing of what did not land."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.lake.lake import Lake
from penstock.model.nessie import DeltaTable
from tests.reliability.transactions.history import History, Outcome, Value, elements_of
from tests.reliability.transactions.tables import (
    LISTS,
    NAMESPACE,
    direct_value,
    elements_on_disk,
    key_of,
    value_of,
)
from tests.sweep.tables import LateClock

LATE_DAYS = 30.0
"""By then all leases are over, and all that was left is old."""


def check_remains(place: Path, history: History, told: str) -> None:
    """Check a lake that nobody works on any more."""
    with penstock.open(place):
        pass  # which publishes what those have not who died
    with penstock.open(place) as lake:
        values = {name: value_of(lake.table(key_of(name))) for name in LISTS}
        dropped = _dropped(lake)
        direct = {name: direct_value(lake, name) for name in LISTS}
        assert direct == values, f"{told}\nwho reads past the lake does not see the same"
    clock = LateClock()
    clock.days = LATE_DAYS
    with penstock.open(place, clock=clock) as lake:
        _sweep(lake, told)
        damages = lake.fsck().damages
        assert not damages, "\n".join([told, *map(str, damages[:10])])
        assert not lake.transactions(), f"{told}\nsomebody is still at it"
        assert {name: value_of(lake.table(key_of(name))) for name in LISTS} == values, told
    _check_nothing_is_left(place, history, values, dropped, told)


def _dropped(lake: Lake) -> tuple[str, ...]:
    """The places of Delta tables that landed and were dropped: the sweep leaves them, as they are, so that
    they can be brought back."""
    tables = [
        table.content
        for commit in lake.log("main", limit=None)
        for table in lake.at(commit).tables(NAMESPACE)
    ]
    now = [table.content for table in lake.tables(NAMESPACE)]
    there = {one.location for one in now if isinstance(one, DeltaTable)}
    return tuple({one.location for one in tables if isinstance(one, DeltaTable)} - there)


def _sweep(lake: Lake, told: str) -> None:
    lake.sweep()
    problems = [one.problem for one in lake.sweep_tables(remove_data=True) if one.problem]
    problems += [one for one in [lake.sweep_files(remove_data=True).problem] if one]
    assert not problems, f"{told}\n{problems}"


def _check_nothing_is_left(
    place: Path, history: History, values: dict[str, Value], dropped: tuple[str, ...], told: str
) -> None:
    """No file holds an element that did not land; those that everybody sees are found in this way."""
    landed = elements_of(
        tuple(one.elements) for one in history.transactions if one.outcome is Outcome.COMMITTED
    )
    found = set[str]()
    for element, file in elements_on_disk(place):
        found.add(element)
        is_swept = element in landed or str(file).startswith(dropped)
        assert is_swept, f"{told}\nthe sweep has left {element} in {file.relative_to(place)}"
    assert elements_of(values.values()) <= found, f"{told}\nelements are not found in files"
