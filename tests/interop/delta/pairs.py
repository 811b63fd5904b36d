"""Two operations on one table at once, done by a lake and by Delta Spark in the same order of steps.

The first has read all that it reads, and written its files. Then the second runs from beginning to end. Then
the first commits.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from docs.delta_pairs import Outcome
from penstock.errors import ConflictError
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.table import Table
from penstock.model.clock import now_us
from penstock.stores import open_store
from penstock.testing.faults import FaultyStore, Point
from tests.interop.delta.session import DeltaSpark

KEY: Final = "t"
FIRST, SECOND = 1, 2
VECTORS: Final = "delta.enableDeletionVectors"
FILES: Final = ({1: "a", 2: "a", 3: "a"}, {4: "a", 5: "a", 6: "a"}, {11: "b", 12: "b", 13: "b"})
"""The rows of the files of the table, by their ids, with their partitions."""
RESTORED: Final = 2
"""The version that is restored: without the last file."""

AGAIN: Final = DeltaJob.reopen_table
Rows = list[list[Any]]


def rows(ids: Iterable[tuple[int, str]], value: int = 0) -> pa.Table:
    numbers, parts = zip(*ids, strict=True)
    values = pa.array([value] * len(numbers), pa.int64())
    return pa.table({"id": pa.array(numbers, pa.int64()), "v": values, "p": pa.array(parts, pa.string())})


class Operation(NamedTuple):
    """What is done, with a number that tells the first from the second."""

    sql: str
    run: Callable[[Lake, Table, int], object]


def _merge(table: Table, number: int) -> None:
    merge = table.merge(rows([(3, "a"), (300 + number, "a")], number), "source.id = target.id")
    merge = merge.when_matched_update({"v": f"target.v + {number}"})
    merge.when_not_matched_insert({name: f"source.{name}" for name in ("id", "v", "p")}).commit()


OPERATIONS: Final = {
    "append": Operation(
        "INSERT INTO {t} VALUES (10{n}, {n}, 'a')", lambda _, t, n: t.append(rows([(100 + n, "a")], n))
    ),
    "overwrite": Operation(
        "INSERT OVERWRITE {t} VALUES (10{n}, {n}, 'a')",
        lambda _, t, n: t.overwrite(rows([(100 + n, "a")], n)),
    ),
    "replace a": Operation(
        "INSERT INTO {t} REPLACE WHERE p = 'a' SELECT 10{n}L, {n}L, 'a'",
        lambda _, t, n: t.overwrite(rows([(100 + n, "a")], n), where="p = 'a'"),
    ),
    "delete part b": Operation("DELETE FROM {t} WHERE p = 'b'", lambda _, t, __: t.delete("p = 'b'")),
    "delete": Operation(
        "DELETE FROM {t} WHERE p = 'a' AND id = 1", lambda _, t, __: t.delete("p = 'a' AND id = 1")
    ),
    "update": Operation(
        "UPDATE {t} SET v = v + {n} WHERE p = 'a' AND id = 2",
        lambda _, t, n: t.update({"v": f"v + {n}"}, "p = 'a' AND id = 2"),
    ),
    "update in b": Operation(
        "UPDATE {t} SET v = v + {n} WHERE p = 'b' AND id = 11",
        lambda _, t, n: t.update({"v": f"v + {n}"}, "p = 'b' AND id = 11"),
    ),
    "merge": Operation(
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (3L, {n}L, 'a'), (30{n}L, {n}L, 'a') AS s(id, v, p)) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = t.v + {n} WHEN NOT MATCHED THEN INSERT (id, v, p)"
        " VALUES (s.id, s.v, s.p)",
        lambda _, t, n: _merge(t, n),
    ),
    "optimize": Operation("OPTIMIZE {t}", lambda _, t, __: t.optimize()),
    "add column": Operation(
        "ALTER TABLE {t} ADD COLUMN c{n} BIGINT",
        lambda lake, _, n: lake.delta.add_columns(KEY, pa.schema([(f"c{n}", pa.int64())])),
    ),
    "property": Operation(
        "ALTER TABLE {t} SET TBLPROPERTIES ('note{n}' = 'x')",
        lambda lake, _, n: lake.delta.set_properties(KEY, {f"note{n}": "x"}),
    ),
    "restore": Operation(
        f"RESTORE TABLE {{t}} TO VERSION AS OF {RESTORED}", lambda _, t, __: t.restore(version=RESTORED)
    ),
}


class Race(NamedTuple):
    """How a pair of operations came out."""

    why: str
    """Why the first one was refused, or nothing."""
    is_done_again: bool
    """Whether it began anew, on what the second had left."""
    rows: Rows
    """What the table has in the end."""


class LakePairs:
    """Pairs on tables of lakes of their own."""

    def __init__(self, directory: Path, has_vectors: bool, isolation: str = "WriteSerializable") -> None:
        self._directory, self._count = directory, 0
        self._properties = {VECTORS: str(has_vectors).lower(), "delta.isolationLevel": isolation}

    def race(self, first: str, second: str) -> Race:
        place = self._create_table()
        store = FaultyStore(open_store(str(place), False, now_us))
        happened, done_again, why = list[str](), list[str](), ""

        def happen() -> None:
            with penstock.open(place) as other:
                OPERATIONS[second].run(other, other.table(KEY), SECOND)
            happened.append(second)

        def count(job: DeltaJob) -> DeltaJob:
            done_again.extend(happened)
            return AGAIN(job)

        with open_lake(store, create=False) as lake, pytest.MonkeyPatch.context() as patched:
            patched.setattr(DeltaJob, "reopen_table", count)
            table = lake.table(KEY)
            store.at(Point.TURN, happen, name="main")
            try:
                OPERATIONS[first].run(lake, table, FIRST)
            except ConflictError as problem:
                why = problem.message
            assert happened, f"'{first}' did not commit"
            return Race(why, bool(done_again), _read(table))

    def in_order(self, *operations: tuple[str, int]) -> Rows:
        """What a table has after operations one after the other, each with its number."""
        with penstock.open(self._create_table()) as lake:
            for name, number in operations:
                OPERATIONS[name].run(lake, lake.table(KEY), number)
            return _read(lake.table(KEY))

    def _create_table(self) -> Path:
        self._count += 1
        place = self._directory / f"lake{self._count}"
        with penstock.open(place, create=True) as lake:
            schema = rows([(1, "a")]).schema
            table = lake.delta.create(KEY, schema=schema, partition_by="p", properties=self._properties)
            for file in FILES:
                table.append(rows(file.items()))
        return place


def _read(table: Table) -> Rows:
    read = table.to_arrow(columns=["id", "v"])
    return sorted(map(list, zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True)))


def find_order(lakes: LakePairs, first: str, second: str, race: Race) -> Outcome:
    """In which order the operations seem to have been done."""
    if race.why:
        return Outcome.REFUSED
    orders = [(first, FIRST), (second, SECOND)], [(second, SECOND), (first, FIRST)]
    is_before, is_after = (lakes.in_order(*order) == race.rows for order in orders)
    if is_after:
        return Outcome.AFTER
    return Outcome.BEFORE if is_before else Outcome.MIXED


class SparkPairs:
    """Pairs on copies of a table of Delta Spark."""

    def __init__(self, spark: DeltaSpark, directory: Path, has_vectors: bool) -> None:
        self._spark, self._directory, self._count = spark, directory, 0
        name = self._name_of(0)
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, v BIGINT, p STRING) USING delta PARTITIONED BY (p)"
            f" TBLPROPERTIES ('{VECTORS}' = '{str(has_vectors).lower()}')"
        )
        for file in FILES:
            values = ", ".join(f"({number}, 0, '{part}')" for number, part in file.items())
            spark.sql(f"INSERT INTO {name} VALUES {values}")

    def _name_of(self, number: int) -> str:
        return f"delta.`{self._directory}/t{number}`"

    def race(self, first: str, second: str) -> Race:
        self._count += 1
        shutil.copytree(self._directory / "t0", self._directory / f"t{self._count}")
        name = self._name_of(self._count)
        why, problem = self._spark.race(
            OPERATIONS[first].sql.format(t=name, n=FIRST), OPERATIONS[second].sql.format(t=name, n=SECOND)
        )
        assert not problem, problem
        found = self._spark.sql(f"SELECT id, v FROM {name}")
        return Race(why, False, sorted(found))
