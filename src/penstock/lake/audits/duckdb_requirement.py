"""Whether queries can be asked here: DuckDB is an extra of Penstock."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from penstock.errors import InvalidRequest

PACKAGES: Final = ("duckdb", "pyarrow")
INSTALL: Final = "pip install 'penstock[sql]'"


def require_sql(subject: str = "the check of expectations") -> None:
    """``InvalidRequest`` if DuckDB, or Arrow, is not installed where this runs."""
    if not all(find_spec(name) is not None for name in PACKAGES):
        raise InvalidRequest(f"{subject} needs DuckDB, which is not installed: {INSTALL}", extra="sql")
