"""A lake for tables of files. It must be whole when a test is done with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock import Lake
from tests.formats.files.lakes import new_store, write


@pytest.fixture
def lake() -> Iterator[Lake]:
    with penstock.open(new_store()) as opened:
        yield opened
        assert opened.fsck().damages == ()


@pytest.fixture
def forked(lake: Lake) -> Lake:
    """A lake with a table of two days, and a branch."""
    write(lake, "day=1/a", "day=2/a")
    lake.branch("dev").create()
    return lake
