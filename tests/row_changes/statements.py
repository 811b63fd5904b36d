"""Statements at random, each with what a plain list of rows makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.lake.table import Table

Row = dict[str, Any]
SCHEMA = pa.schema([
    ("id", pa.int64()), ("day", pa.string()), ("amount", pa.float64()), ("name", pa.string()),
])  # fmt: skip


class Condition(NamedTuple):
    """A condition as SQL, and as Python: rows for which it is true."""

    sql: str
    holds: Callable[[Row], bool]


class Assignment(NamedTuple):
    """New values as SQL, and as Python."""

    set: dict[str, Any]
    change: Callable[[Row], Row]


def conditions(random: Random) -> Condition:
    at, day = random.randrange(40), random.choice("abc")
    return random.choice([
        Condition(f"id = {at}", lambda row: row["id"] == at),
        Condition(f"id < {at} and day = '{day}'", lambda row: row["id"] < at and row["day"] == day),
        Condition(f"day = '{day}'", lambda row: row["day"] == day),
        Condition("name is null", lambda row: row["name"] is None),
        Condition(f"name = 'n{at % 5}'", lambda row: row["name"] == f"n{at % 5}"),
        Condition(f"amount * 2 > {at}", lambda row: row["amount"] is not None and row["amount"] * 2 > at),
        Condition(f"id % 3 = {at % 3}", lambda row: row["id"] % 3 == at % 3),
        Condition(f"coalesce(name, 'n0') = 'n{at % 3}'", lambda row: (row["name"] or "n0") == f"n{at % 3}"),
        Condition(
            f"not (id >= {at} or name like 'n1%')",
            lambda row: row["id"] < at and row["name"] is not None and not row["name"].startswith("n1"),
        ),
        Condition("id between 5 and 9", lambda row: 5 <= row["id"] <= 9),
    ])  # fmt: skip


def assignments(random: Random) -> Assignment:
    day = random.choice("abc")
    return random.choice([
        Assignment({"amount": "amount + 1"}, lambda row: {**row, "amount": _plus(row["amount"], 1)}),
        Assignment({"name": "'renamed'"}, lambda row: {**row, "name": "renamed"}),
        Assignment({"name": None}, lambda row: {**row, "name": None}),
        Assignment({"day": f"'{day}'"}, lambda row: {**row, "day": day}),
        Assignment(
            {"name": "case when amount > 10 then 'much' else name end", "amount": 3.5},
            lambda row: {
                **row,
                "name": "much" if row["amount"] is not None and row["amount"] > 10 else row["name"],
                "amount": 3.5,
            },
        ),
        Assignment({"amount": "id / 2"}, lambda row: {**row, "amount": row["id"] / 2}),
    ])  # fmt: skip


def new_rows(random: Random, first: int, count: int) -> list[Row]:
    return [
        {
            "id": first + number,
            "day": random.choice("abc"),
            "amount": random.choice([None, float(random.randrange(30))]),
            "name": random.choice([None, f"n{random.randrange(5)}"]),
        }
        for number in range(count)
    ]


def as_table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def counted(rows: Any) -> Counter[str]:
    return Counter(repr([row[name] for name in SCHEMA.names]) for row in rows)


class Program:
    """Statements on a table, and the rows that it has by now."""

    def __init__(self, random: Random, next_id: int = 0) -> None:
        self.random, self.next_id = random, next_id
        self.rows: list[Row] = []
        self.done: list[str] = []

    def step(self, table: Table) -> None:
        statement = self.random.choice(
            [self.append, self.delete, self.update, self.merge, self.replace, self.upsert]
        )
        self.done.append(statement.__name__)
        statement(table)

    def append(self, table: Table) -> None:
        rows = new_rows(self.random, self.next_id, self.random.randrange(1, 9))
        self.next_id += len(rows)
        table.append(as_table(rows))
        self.rows += rows

    def delete(self, table: Table) -> None:
        where = conditions(self.random)
        gone = [row for row in self.rows if where.holds(row)]
        changed = table.delete(where.sql)
        assert changed.deleted == len(gone), where.sql
        assert (changed.commit is None) == (not gone)
        self.rows = [row for row in self.rows if not where.holds(row)]

    def update(self, table: Table) -> None:
        where, values = conditions(self.random), assignments(self.random)
        meant = [row for row in self.rows if where.holds(row)]
        assert table.update(values.set, where.sql).updated == len(meant), where.sql
        self.rows = [values.change(row) if where.holds(row) else row for row in self.rows]

    def replace(self, table: Table) -> None:
        at = self.random.randrange(0, 30)
        rows = new_rows(self.random, at, self.random.randrange(1, 4))
        where = f"id >= {at} and id < {at + 4}"
        table.overwrite(as_table(rows), where=where)
        self.rows = [row for row in self.rows if not at <= row["id"] < at + 4] + rows

    def upsert(self, table: Table) -> None:
        ids = {row["id"] for row in self.rows}
        source = {row["id"]: row for row in self._source()}
        merge = table.merge(as_table(list(source.values())), on=["id"])
        changed = merge.when_matched_update_all().when_not_matched_insert_all().commit()
        assert changed.inserted == len(source.keys() - ids)
        self.rows = [source.get(row["id"], row) for row in self.rows]
        self.rows += [row for row in source.values() if row["id"] not in ids]

    def merge(self, table: Table) -> None:
        """All kinds of clauses: what is matched, what is not, and what the source does not have."""
        source = {row["id"]: row for row in self._source()}
        (
            table.merge(as_table(list(source.values())), on="target.id = source.id and target.day <> 'c'")
            .when_matched_delete("source.amount is null")
            .when_matched_update({"amount": "target.amount + source.amount", "name": "source.name"})
            .when_not_matched_insert({"id": "source.id", "day": "'a'"}, "source.name is not null")
            .when_not_matched_by_source_delete("name = 'n4'")
            .when_not_matched_by_source_update({"name": "'left'"}, "amount = 7")
            .commit()
        )
        after, matched = [], set()
        for row in self.rows:
            other = source.get(row["id"]) if row["day"] != "c" else None
            if other is None:
                if row["name"] == "n4":
                    continue
                after.append({**row, "name": "left"} if row["amount"] == 7 else row)
                continue
            matched.add(row["id"])
            if other["amount"] is not None:
                amount = _plus(row["amount"], other["amount"])
                after.append({**row, "amount": amount, "name": other["name"]})
        new = [
            {"id": row["id"], "day": "a", "amount": None, "name": None}
            for row in source.values()
            if row["id"] not in matched and row["name"] is not None
        ]
        self.rows = after + new

    def _source(self) -> list[Row]:
        return new_rows(self.random, self.random.randrange(0, max(1, self.next_id)), 5)


def _plus(value: float | None, more: float) -> float | None:
    return None if value is None else value + more
