"""The worked example of the specification, built for real: versions 0 to 9 are ratified, 7 is published, and
three writers staged a version that was never ratified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable as ForeignTable

import penstock
from penstock.errors import TableConflict
from penstock.formats.delta.protocol.actions import write_commit
from penstock.lake.table import Table
from tests.formats.delta.conftest import duckdb as delta_scanner
from tests.formats.delta.lakes import data_file
from tests.formats.delta.logs import SCHEMA
from tests.owner.crashes import Died, Process

RATIFIED = {
    6: UUID("3a0d65cd-4056-49b8-937b-95f9e3ee90e5"),
    7: UUID("016ae953-37a9-438e-8683-9a9a4a79a395"),
    8: UUID("7d17ac10-5cc3-401b-bd1a-9c82dd2ea032"),
    9: UUID("41bf693a-f5b9-4478-9434-af7475d5a9f0"),
}
LOST = [
    (8, UUID("b91807ba-fe18-488c-a15e-c4807dbd2174")),
    (10, UUID("0f707846-cd18-4e01-b40e-84ee0ae987b0")),
    (10, UUID("7a980438-cb67-4b89-82d2-86f73239b6d6")),
]
LISTING = sorted(
    [
        *(f"{version:020}.json" for version in range(8)),
        f"{2:020}.checkpoint.parquet",
        f"{3:020}.{5:020}.compacted.json",
        *(f"_commits/{version:020}.{attempt}.json" for version, attempt in [*RATIFIED.items(), *LOST]),
    ]
)
TO_STAGE = 2
"""Steps of a process: a file is there, and it knows."""
NEVER = 1000
"""Each version adds one row, its number. Those of versions that were never ratified lie above this."""

duckdb = delta_scanner
"""DuckDB with its own reader of Delta tables."""


class Example:
    """The table, and the process that owns it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.process = Process(home)
        self.root = home / "warehouse" / "orders"
        lake = self.process.lake
        self.table = lake.create_table("orders", schema=SCHEMA, location=str(self.root))
        for version in (1, 2):
            self.table.append_actions(self._lines(version))
        self.table.backfill_to_version()
        lake.delta.checkpoint("orders")
        for version in (3, 4, 5):
            self.table.append_actions(self._lines(version))
        self.table.backfill_to_version()
        lake.delta.compact_log("orders", 3, 5)
        for version, attempt in RATIFIED.items():
            for _, loser in (one for one in LOST if one[0] == version):
                self.stage(version, loser)
            assert self.table.commit(version, self._lines(version), attempt=attempt).version == version
        for version, loser in LOST[1:]:
            self.stage(version, loser)
        assert self.table.backfill_to_version(7) == 7

    def _lines(self, row: int) -> bytes:
        return write_commit([data_file(self.root, row)])

    def stage(self, version: int, attempt: UUID) -> None:
        """A process stages a version, and dies before it is ratified."""
        process = Process(self._home)
        lines = self._lines(NEVER + version)
        process.die_after(TO_STAGE)
        with pytest.raises(Died):
            process.lake.table("orders").commit(version, lines, attempt=attempt)
        process.end()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """For those who only look."""
    example = Example(tmp_path_factory.mktemp("example") / "lake")
    yield example
    example.process.end()


@pytest.fixture
def own_example(tmp_path: Path) -> Iterator[Example]:
    """For those who go on with it."""
    example = Example(tmp_path / "lake")
    yield example
    example.process.end()


def rows(table: Any) -> list[int]:
    found: list[int] = sorted(table.column("id").to_pylist())
    return found


def test_the_log_holds_what_the_specification_shows(example: Example) -> None:
    log = example.root / "_delta_log"
    found = [str(path.relative_to(log)) for path in log.rglob("*") if path.is_file()]
    shown = (".json", ".parquet")  # a checkpoint may have a file with a checksum beside it
    assert sorted(one for one in found if one.endswith(shown)) == LISTING


def test_the_owner_tracks_the_versions_that_were_ratified(example: Example) -> None:
    got = example.table.get_commits()
    assert (got.latest_version, got.published) == (9, 5)
    assert [one.version for one in got.commits] == [6, 7, 8, 9]
    for one in got.commits:
        staged = example.root / "_delta_log" / "_commits" / f"{one.version:020}.{RATIFIED[one.version]}.json"
        assert (example.root / one.name).read_bytes() == staged.read_bytes()


@pytest.mark.parametrize(("start", "end"), [(8, None), (7, 8), (None, 6), (9, 9), (10, None)])
def test_a_reader_who_has_the_log_asks_for_the_rest(
    example: Example, start: int | None, end: int | None
) -> None:
    got = example.table.get_commits(start, end)
    wanted = [
        version
        for version in RATIFIED
        if (start is None or version >= start) and (end is None or version <= end)
    ]
    assert [one.version for one in got.commits] == wanted
    assert got.latest_version == 9


def test_a_reader_who_asks_the_owner_sees_version_9(example: Example) -> None:
    opened = penstock.open_table(example.root, lake=example.process.lake)
    for table in (example.table, opened):
        snapshot = table.snapshot()
        assert snapshot.version == 9
        assert rows(snapshot.to_arrow()) == list(range(1, 10))
    for version in range(10):
        assert rows(example.table.snapshot(version).to_arrow()) == list(range(1, version + 1))


def test_deltalake_sees_version_7(example: Example) -> None:
    table = ForeignTable(str(example.root))
    assert table.version() == 7
    assert rows(table.to_pyarrow_table()) == list(range(1, 8))


def test_duckdb_sees_version_7(example: Example, duckdb: Any) -> None:
    found = duckdb.sql(f"SELECT id FROM delta_scan('{example.root}')").to_arrow_table()
    assert rows(found) == list(range(1, 8))


def test_who_comes_late_is_told_who_won(example: Example) -> None:
    version, loser = LOST[0]
    staged = example.root / "_delta_log" / "_commits" / f"{version:020}.{loser}.json"
    before = staged.read_bytes()
    with pytest.raises(TableConflict) as told:
        example.table.commit(version, example._lines(NEVER), attempt=loser)
    winners = told.value.details["winners"]["orders"]
    assert winners["latest_version"] == 9
    assert [one["version"] for one in winners["commits"]] == [8, 9]
    assert staged.read_bytes() == before


def test_of_the_two_who_staged_version_10_one_gets_it(own_example: Example) -> None:
    _, (version, first), (_, second) = LOST
    table = own_example.table
    lines = [_staged(table, version, one) for one in (first, second)]
    assert table.commit(version, lines[0], attempt=first).version == 10
    with pytest.raises(TableConflict):
        table.commit(version, lines[1], attempt=second)
    assert table.commit(version, lines[0], attempt=first).tables[0].repeated
    assert table.backfill_to_version() == 10
    assert ForeignTable(str(own_example.root)).version() == 10
    assert rows(table.to_arrow()) == [*range(1, 10), NEVER + 10]


def _staged(table: Table, version: int, attempt: UUID) -> bytes:
    """What a writer staged, who still has it."""
    root = Path(table.get_commits().location)
    return (root / "_delta_log" / "_commits" / f"{version:020}.{attempt}.json").read_bytes()
