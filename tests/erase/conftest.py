from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.lake.lake import Lake


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lake is, with its warehouse."""
    return tmp_path / "lake"


@pytest.fixture
def lake(path: Path) -> Iterator[Lake]:
    with penstock.open(path, create=True, author="ada") as lake:
        yield lake


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    """DuckDB with its Delta extension as it comes from PyPI; nothing is downloaded when tests run."""
    module = pytest.importorskip("duckdb")
    extension = pytest.importorskip("duckdb_extension_delta", reason="DuckDB's Delta extension is not here")
    found = [*Path(extension.__file__).parent.rglob("delta.duckdb_extension")]
    connection = module.connect(config={"autoinstall_known_extensions": False})
    try:
        connection.execute(f"LOAD '{found[0]}'")
    except (module.Error, IndexError) as problem:
        pytest.skip(f"DuckDB {module.__version__} has no Delta extension that fits: {problem}")
    with connection:
        yield connection
