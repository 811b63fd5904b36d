"""A lake with a Lance table. It must be whole when a test is done with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Lake
from tests.formats.lance.tables import write

pytest.importorskip("lance")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True) as opened:
        yield opened
        assert opened.fsck().damages == ()


@pytest.fixture
def forked(lake: Lake) -> Lake:
    """A lake with a table of two fragments, and a branch."""
    write(lake, "main", 1, 2, 3, mode="create")
    write(lake, "main", 4, 5)
    lake.branch("dev").create()
    return lake
