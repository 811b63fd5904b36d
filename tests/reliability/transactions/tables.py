"""Lists as tables: what a list is in each of three formats, and how it is read at any reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from penstock.errors import KeyNotFound
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.reliability.transactions.history import Value

NAMESPACE: Final = "lists"
FORMATS: Final = {"delta": "delta", "lance": "lance", "files": "parquet"}
"""What tables of a list's kind are written as."""
LISTS: Final = tuple(f"{kind}{number}" for number in range(2) for kind in FORMATS)
COLUMN: Final = "element"
_ELEMENT: Final = re.compile(rb"<(?:first|w\d+)-[\w-]+>")
SCHEMA: Final = pa.schema([(COLUMN, pa.string())])


def key_of(name: str) -> str:
    return f"{NAMESPACE}.{name}"


def kind_of(name: str) -> str:
    return name.rstrip("0123456789")


def format_of(name: str) -> str:
    return FORMATS[kind_of(name)]


def rows(elements: Iterable[str], between: Callable[[], None] = lambda: None) -> pa.RecordBatchReader:
    """Elements as a stream; ``between`` is called when some of it was read, and some was not."""

    def batches() -> Iterator[pa.RecordBatch]:
        given = list(elements)
        yield _batch(given[:-1])
        between()
        yield _batch(given[-1:])

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def _batch(elements: list[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(elements, pa.string())], schema=SCHEMA)


def value_of(table: Table) -> Value:
    """What a list holds, by the lake."""
    try:
        return tuple(sorted(table.to_arrow()[COLUMN].to_pylist()))
    except KeyNotFound:
        return None


def direct_value(lake: Lake, name: str) -> Value:
    """The same for who reads the table by its path, with a library that knows nothing of the lake."""
    table = lake.table(key_of(name))
    if not table.exists:
        return None
    found: Any
    if kind_of(name) == "delta":
        from deltalake import DeltaTable

        found = pa.table(DeltaTable(table.location).to_pyarrow_dataset().to_table())
    elif kind_of(name) == "lance":
        import lance

        found = lance.dataset(table.location).to_table()
    else:
        found = pa.concat_tables([pq.read_table(one) for one in table.files.urls()])
    return tuple(sorted(found[COLUMN].to_pylist()))


def elements_on_disk(place: Path) -> Iterator[tuple[str, Path]]:
    """Elements that are in any file below a lake's directory but its database, and in which: data that is
    named by something or by nothing, logs, manifests, and what is beside them."""
    for file in sorted(place.rglob("*")):
        if not file.is_file() or file.name.startswith("penstock.db"):
            continue
        if file.suffix == ".parquet":
            found = pq.read_table(file)
            given = found[COLUMN].to_pylist() if COLUMN in found.column_names else []
        else:
            given = [one.decode() for one in _ELEMENT.findall(file.read_bytes())]
        for element in given:
            yield element, file
