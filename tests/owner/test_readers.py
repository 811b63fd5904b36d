"""deltalake and DuckDB read each version a lake publishes; deltalake writes to no table that it owns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from penstock.lake.table import Table
from tests.interop.delta.homes import Home, home_on
from tests.interop.delta.stories import SCHEMA, Rows, Story, rows_of

SEEDS = range(3)
QUICK = {("disk", 0)}
"""What is told of a table does not depend on where it lies: `make test` has one story of each."""


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Home:
    return home_on(request.param, request)


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    """DuckDB with its Delta extension as it comes from PyPI; nothing is downloaded when tests run."""
    module = pytest.importorskip("duckdb")
    extension = pytest.importorskip("duckdb_extension_delta", reason="DuckDB's Delta extension is not here")
    (found,) = Path(extension.__file__).parent.rglob("delta.duckdb_extension")
    with module.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"LOAD '{found}'")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.mark.parametrize(
    ("home", "seed"),
    [
        pytest.param(*one, marks=() if one in QUICK else pytest.mark.verify)
        for one in product(("disk", "bucket"), SEEDS)
    ],
    indirect=["home"],
)
def test_every_version_is_the_same_to_deltalake_to_duckdb_and_to_us(
    home: Home, duckdb: Any, seed: int
) -> None:
    with home.lake() as lake:
        story = Story(lake, seed).tell()
        location = story.table.snapshot().location
        copy = str(home.copied(location))
        assert DeltaTable(location, storage_options=home.options).version() == len(story.versions) - 1
        for version, expected in enumerate(story.versions):
            assert rows_of(story.table.snapshot(version).to_arrow().to_pylist()) == expected
            assert deltalake_rows(location, home.options, version) == expected
            scanned = duckdb.execute("FROM delta_scan(?, version => ?)", [copy, version]).to_arrow_table()
            assert rows_of(scanned.to_pylist()) == expected
        latest = duckdb.execute("FROM delta_scan(?)", [copy]).to_arrow_table()
        assert rows_of(latest.to_pylist()) == story.versions[-1]


def deltalake_rows(location: str, options: dict[str, str] | None, version: int | None = None) -> Rows:
    table = DeltaTable(location, version=version, storage_options=options)
    return rows_of(pa.table(table.scan()).to_pylist())


def more(location: str, options: dict[str, str] | None, mode: str) -> None:
    data = pa.Table.from_pylist([{"id": -1}], schema=SCHEMA)
    write_deltalake(location, data, mode=mode, storage_options=options)  # type: ignore[call-overload]


WRITES: dict[str, Callable[[str, dict[str, str] | None], object]] = {
    "append": lambda place, options: more(place, options, "append"),
    "overwrite": lambda place, options: more(place, options, "overwrite"),
    "delete": lambda place, options: DeltaTable(place, storage_options=options).delete("id > 0"),
    "update": lambda place, options: DeltaTable(place, storage_options=options).update({"score": "1.0"}),
    "optimize": lambda place, options: DeltaTable(place, storage_options=options).optimize.compact(),
    "restore": lambda place, options: DeltaTable(place, storage_options=options).restore(1),
    "properties": lambda place, options: DeltaTable(
        place, storage_options=options
    ).alter.set_table_properties({"delta.appendOnly": "true"}),
}


@pytest.mark.parametrize("write", WRITES)
def test_deltalake_cannot_write_to_a_table_that_a_lake_owns(tmp_path: Path, write: str) -> None:
    home = Home(tmp_path, str(tmp_path / "tables"))
    with home.lake() as lake:
        story = Story(lake, 0)
        for _ in range(3):
            story.append()
        location = story.table.snapshot().location
        before = logged(location)
        with pytest.raises(DeltaError, match="managedCommits"):
            WRITES[write](location, home.options)
        assert logged(location) == before
        story.append()
        assert deltalake_rows(location, None) == rows_now(story.table) == story.versions[-1]


def logged(location: str) -> dict[str, bytes]:
    log = Path(location, "_delta_log")
    return {path.name: path.read_bytes() for path in log.iterdir() if path.is_file()}


def rows_now(table: Table) -> Rows:
    return rows_of(table.to_arrow().to_pylist())
