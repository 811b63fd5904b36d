"""A lake whose tables have rows. Each test meets a message, does what it advises, and looks for all rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Lake
from penstock.kernel.settings import Settings


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", settings=Settings(write_timeout_s=1.0)) as lake:
        yield lake
