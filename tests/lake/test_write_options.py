"""Options that every write takes are refused if there is none of that name, before anything is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Lake
from penstock.stores.memory import MemoryStore

ASKED: dict[str, Callable[[Any], Any]] = {
    "commit": lambda lake: lake.commit([], mesage="typo"),
    "restore": lambda lake: lake.restore("a", to="main", mesage="typo"),
    "log": lambda lake: lake.log(autor="typo"),
    "create_table": lambda lake: lake.create_table("a", schema="{}", partitionby="typo"),
    "create_filled": lambda lake: lake.delta.create_filled("a", {"id": [1]}, partitionby="typo"),
    "backup": lambda lake: penstock.backup(lake, lake, autor="typo"),  # type: ignore[call-arg]
    "restore_backup": lambda lake: penstock.restore_backup(lake, lake, autor="typo"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", ASKED)
def test_an_option_that_there_is_not_is_refused(name: str) -> None:
    lake: Lake = penstock.open(MemoryStore())
    head = lake.branch().head
    with pytest.raises(TypeError, match=r"mesage|autor|partitionby"):
        ASKED[name](lake)
    assert lake.branch().head == head
