"""Journals pass the contract of formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from penstock.testing import FormatContract


@pytest.mark.usefixtures("with_journals")
class TestJournals(FormatContract):
    name = "journal"
    row_format = "journal"
    column = "line"
    can_erase = False

    def read_published(self, lake: Lake, path: Path) -> list[str] | None:
        newest = sorted((path / "warehouse" / "journals").rglob("*2.txt"))
        return newest[-1].read_text().split() if newest else []
