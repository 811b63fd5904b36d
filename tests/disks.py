"""Lakes that do not wait for the disk: for tests of what a lake does, and not of what survives a power cut.

A module that imports the fixture has it; `tests/stores` and `tests/storage` have not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock.stores.sqlite import SqliteStore


@pytest.fixture(autouse=True, scope="module")
def disks_are_not_waited_for() -> Iterator[None]:
    """SQLite and files are written as ever, and nobody waits until the disk says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SqliteStore.__init__.__kwdefaults__ or {}, "synchronous", "OFF")
        patch.setattr(os, "fsync", lambda _: None)
        yield
