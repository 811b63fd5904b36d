"""Rows that are written to a Lance table while the branch moves on that the transaction will land on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import CommitConflict
from penstock.formats.lance.lake.jobs import JobNamespace
from penstock.lake.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake") as lake:
        lake.table("s.l").write(rows(1), format="lance")
        yield lake


@pytest.fixture
def overtaken(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> str:
    """Main gets two versions more when the first table is opened in a transaction."""
    describe, done = JobNamespace.describe_table, list[str]()

    def describing(self: JobNamespace, request: Any) -> Any:
        found = describe(self, request)
        if self._job.branch.startswith("tx/") and not done:
            done.append(self._job.branch)
            for number in (2, 3):
                lake.table("s.l").append(rows(number))
        return found

    monkeypatch.setattr(JobNamespace, "describe_table", describing)
    return "main"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids})


def ids(lake: Lake) -> list[int]:
    return sorted(lake.table("s.l").to_arrow()["id"].to_pylist())


def test_rows_are_written_again_and_land_beside_the_others(lake: Lake, overtaken: str) -> None:
    with lake.transaction(overtaken) as tx:
        tx.write(rows(4), "s.l")
        tx.write(rows(5), "s.l")
        assert sorted(tx.table("s.l").outside_read_set.to_arrow()["id"].to_pylist()) == [1, 4, 5]
    assert ids(lake) == [1, 2, 3, 4, 5]


def test_a_stream_cannot_be_written_again(lake: Lake, overtaken: str) -> None:
    tx = lake.transaction(overtaken)
    with pytest.raises(CommitConflict):
        tx.write(rows(4).to_reader(), "s.l")
    tx.write(rows(5), "s.l")
    tx.land()
    assert ids(lake) == [1, 2, 3, 5]
