"""What tests of writing share: what is there afterwards, as Penstock and as other readers see it."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.lake.lake import Lake
from tests.formats.delta.rows import as_rows


def seen(lake: Lake, key: str, ref: str | None = None) -> list[dict[str, Any]]:
    """The rows of a table as Penstock reads them without Spark, in the order of their first column."""
    found: list[dict[str, Any]] = lake.table(key, ref).to_arrow().to_pylist()
    return sorted(found, key=_first)


def seen_by_others(lake: Lake, key: str, where: str = "true") -> list[dict[str, Any]]:
    """The rows as deltalake and DuckDB read them from the published table: both agree."""
    lake.delta.publish(key)
    location = lake.table(key).location
    theirs = delta_table(location).to_pyarrow_table()
    rows: list[dict[str, Any]] = theirs.to_pylist(maps_as_pydicts="lossy")
    if (connection := _duckdb()) is not None:
        found = connection.sql(f"SELECT * FROM delta_scan('{location}') WHERE {where}").to_arrow_table()
        if where == "true":
            assert as_rows(found) == as_rows(theirs)
        else:
            rows = found.to_pylist(maps_as_pydicts="lossy")
    return sorted(rows, key=_first)


def delta_table(location: str) -> Any:
    """A published table, as deltalake opens it."""
    from deltalake import DeltaTable

    return DeltaTable(location)


def files_below(lake: Lake, key: str) -> set[str]:
    """The data files that lie below a table, whether it has them or not."""
    place = lake.places.open_place(lake.table(key).location)
    names = (one.key for one in place.entries())
    return {one for one in names if one.endswith(".parquet") and not one.startswith("_delta_log/")}


@cache
def _duckdb() -> Any:
    """DuckDB with its Delta extension, if it is here."""
    if find_spec("duckdb_extension_delta") is None:
        return None
    import duckdb
    import duckdb_extension_delta  # type: ignore[import-untyped]

    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _first(row: dict[str, Any]) -> tuple[str, str]:
    value = next(iter(row.values()))
    return (f"{value:020}", "") if isinstance(value, int) else ("", repr(value))
