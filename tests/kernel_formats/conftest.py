"""Kernels that know journals, over both stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Lake, Settings
from penstock.testing.journal import JournalFormat


@pytest.fixture
def journals() -> JournalFormat:
    return JournalFormat()


@pytest.fixture(params=["memory", "sqlite"])
def lake(request: pytest.FixtureRequest, journals: JournalFormat, tmp_path: Path) -> Iterator[Lake]:
    place = "memory:" if request.param == "memory" else str(tmp_path / "lake")
    patient = Settings(write_timeout_s=30)
    with penstock.open(place, create=True, formats=[journals], settings=patient) as opened:
        yield opened
        assert opened.fsck().damages == ()
