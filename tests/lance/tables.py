"""Small Lance tables, written and read by Lance itself through a namespace of a lake."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
from lance_namespace import LanceNamespace


def rows(ids: Iterable[int]) -> pa.Table:
    numbers = list(ids)
    return pa.table({"id": pa.array(numbers, pa.int64()), "x": pa.array([n * 1.0 for n in numbers])})


def opened(namespace: LanceNamespace, *table: str, **options: Any) -> Any:
    return lance.dataset(namespace_client=namespace, table_id=list(table), **options)


def written(namespace: LanceNamespace, *table: str, ids: Iterable[int], mode: str = "append") -> Any:
    return lance.write_dataset(rows(ids), namespace_client=namespace, table_id=list(table), mode=mode)


def ids_of(dataset: Any) -> list[int]:
    found: list[int] = sorted(dataset.to_table(columns=["id"])["id"].to_pylist())
    return found


def ids_at(namespace: LanceNamespace, *table: str, **options: Any) -> list[int]:
    return ids_of(opened(namespace, *table, **options))
