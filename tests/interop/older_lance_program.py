"""An older Lance at work on the table ``ws.items`` of a lake, in an environment of its own.

    python older_lance_program.py < STEPS

A step is a list of a name and its arguments; all of them come as JSON. Prints one line of JSON: the version
of Lance, and what each step found.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
from lance.namespace import RestNamespace


def at(url: str) -> dict[str, Any]:
    namespace = RestNamespace(uri=url)  # type: ignore[no-untyped-call]
    return {"namespace_client": namespace, "table_id": ["ws", "items"]}


def rows(ids: list[int]) -> Any:
    vectors = pa.array([[float(one), 1.0] for one in ids], pa.list_(pa.float32(), 2))
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"row {n}" for n in ids], "vector": vectors})


def create(url: str, ids: list[int]) -> None:
    lance.write_dataset(rows(ids), **at(url))


def append(url: str, ids: list[int]) -> None:
    lance.write_dataset(rows(ids), **at(url), mode="append")


def delete(url: str, where: str) -> None:
    lance.dataset(**at(url)).delete(where)


def index(url: str) -> None:
    lance.dataset(**at(url)).create_scalar_index("id", "BTREE")
    lance.dataset(**at(url)).create_index("vector", "IVF_FLAT", num_partitions=1)


def clean_up(url: str) -> None:
    table = lance.dataset(**at(url))
    table.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)


def look(url: str) -> list[Any]:
    return seen(lance.dataset(**at(url)))


def look_directly(folder: str) -> list[Any]:
    return seen(lance.dataset(folder))


def seen(table: Any) -> list[Any]:
    """All ids, and the last one as each index finds it."""
    ids = sorted(table.to_table(columns=["id"])["id"].to_pylist())
    filtered = table.to_table(filter=f"id = {ids[-1]}")["id"].to_pylist()
    nearest = table.to_table(nearest={"column": "vector", "q": [float(ids[-1]), 1.0], "k": 1})
    return [ids, filtered, nearest["id"].to_pylist()]


STEPS = {one.__name__: one for one in (create, append, delete, index, clean_up, look, look_directly)}

if __name__ == "__main__":
    found = [STEPS[name](*arguments) for name, *arguments in json.load(sys.stdin)]
    print(json.dumps([lance.__version__, found]))
