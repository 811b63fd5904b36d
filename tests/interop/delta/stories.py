"""Lives of Delta tables, made up from a seed, with the rows that every version must have in the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.lake.lake import Lake

KEY: Final = "sales.orders"
STEPS_BETWEEN: Final = 3
KINDS: Final = ("plain", "a b", "ü/%=:?#&", "100%", "%20", None)
"""Values of the column that some tables are partitioned by, with what gives trouble in names of files."""
SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("kind", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("score", pa.float64()),
        ("is_paid", pa.bool_()),
        ("tags", pa.list_(pa.string())),
    ]
)
BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)

Rows: TypeAlias = Counter[str]
"""Rows, each as text, with how often they are there."""


def rows_of(records: Iterable[Mapping[str, Any]]) -> Rows:
    """Rows in one spelling, whoever read them."""
    return Counter(json.dumps([row[name] for name in SCHEMA.names], default=_text) for row in records)


def _text(value: object) -> str:
    # Times are in UTC, and some readers do not say so.
    return str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)


class Story:
    """A table of a lake, to which something happens step by step."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.random = Random(seed)
        self.next_id = 0
        self.now: list[dict[str, Any]] = []
        self.versions: list[Rows] = []
        """The rows of every version, by its number."""
        self.is_partitioned = bool(seed % 2)
        lake.create_table(
            KEY,
            schema=SCHEMA,
            partition_by=["kind"] if self.is_partitioned else (),
            properties={"delta.checkpointInterval": "100"},
        )
        self.table = lake.table(KEY)
        self._landed(0, [])

    def tell(self) -> Story:
        """Let it happen. At the end, everything is published."""
        ways: list[Callable[[], None]] = [self.append, self.overwrite, self.merge, self.revert]
        ways += [self.overwrite_some] if self.is_partitioned else [self.append]
        self.append()
        for upkeep in (self.checkpoint, self.compact, self.checkpoint):
            for _ in range(STEPS_BETWEEN):
                self.random.choice(ways)()
            upkeep()
        self.append()
        assert self.table.backfill_to_version() == len(self.versions) - 1
        return self

    def append(self) -> None:
        made = self.new_rows()
        self._landed(self.table.append(self.data(made)).version, [*self.now, *made])

    def overwrite(self) -> None:
        made = self.new_rows()
        self._landed(self.table.overwrite(self.data(made)).version, made)

    def overwrite_some(self) -> None:
        kind = self.random.choice(KINDS)
        made = [{**row, "kind": kind} for row in self.new_rows()]
        version = self.table.overwrite(self.data(made), partitions={"kind": kind}).version
        self._landed(version, [*(row for row in self.now if row["kind"] != kind), *made])

    def merge(self) -> None:
        """Two branches append, and both land."""
        name = f"side-{len(self.versions)}"
        self.lake.branch(name).create()
        there = self.new_rows()
        for row in there:
            self.lake.table(KEY, name).append(self.data([row]))
        self.append()
        self.lake.merge(name)
        self._landed(self.table.get_commits().latest_version, [*self.now, *there])

    def revert(self) -> None:
        """Take an append back: the log goes on, and the rows are gone."""
        before = self.now
        self.append()
        self.lake.revert(self.lake.resolve())
        self._landed(self.table.get_commits().latest_version, before)

    def checkpoint(self) -> None:
        self.table.backfill_to_version()
        assert self.lake.delta.checkpoint(KEY).name

    def compact(self) -> None:
        self.table.backfill_to_version()
        assert self.lake.delta.compact_log(KEY).name

    def _landed(self, version: int, rows: list[dict[str, Any]]) -> None:
        assert version == len(self.versions)
        self.now = rows
        self.versions.append(rows_of(rows))

    def new_rows(self) -> list[dict[str, Any]]:
        return [self._row() for _ in range(self.random.randint(1, 4))]

    def _row(self) -> dict[str, Any]:
        self.next_id += 1
        pick = self.random
        return {
            "id": self.next_id,
            "kind": pick.choice(KINDS),
            "amount": Decimal(pick.randint(-(10**6), 10**6)).scaleb(-2),
            "day": pick.choice([None, date(1969, 12, 31), date(2026, 2, 28)]),
            "at": BEGINNING + timedelta(microseconds=pick.randint(-(10**15), 10**15)),
            "score": pick.choice([None, 0.5, -1.25, 1e100]),
            "is_paid": pick.choice([None, True, False]),
            "tags": pick.choice([None, [], ["a", None], ["ü"]]),
        }

    def data(self, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=SCHEMA)
