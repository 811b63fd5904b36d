"""A table to write logs into, in a directory of its own, and DuckDB to read it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.places import Places
from tests.formats.delta.logs import Table, opening


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with opening() as places:
        yield places


@pytest.fixture
def table(tmp_path: Path, places: Places) -> Table:
    return Table(tmp_path / "table", places)


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    """DuckDB with its Delta extension as it comes from PyPI; nothing is downloaded when tests run."""
    module = pytest.importorskip("duckdb")
    extension = pytest.importorskip("duckdb_extension_delta", reason="DuckDB's Delta extension is not here")
    found = [*Path(extension.__file__).parent.rglob("delta.duckdb_extension")]
    connection = module.connect(config={"autoinstall_known_extensions": False})
    try:
        connection.execute(f"LOAD '{found[0]}'")
        connection.execute("SET TimeZone = 'UTC'")  # else it is called as the environment calls it
    except (module.Error, IndexError) as problem:
        pytest.skip(f"DuckDB {module.__version__} has no Delta extension that fits: {problem}")
    with connection:
        yield connection
