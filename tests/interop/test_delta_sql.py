"""SQL on a table of a lake and on one of Delta Spark: after each statement both have the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock.spark
from penstock.lake.lake import Lake
from tests.interop.delta.session import DeltaSpark, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

COLUMNS: Final = "id BIGINT, part STRING, x DOUBLE, day DATE, s STRUCT<a: INT, b: STRING>"
SOURCE: Final = "id BIGINT, part STRING, x DOUBLE, kind INT"
STATEMENTS: Final = 8
OTHERS: Final = """
INSERT INTO {t} (id, x) VALUES (1, 1), (2, NULL), (NULL, 3);
INSERT INTO {t} BY NAME SELECT 'b' AS part, 3L AS id;
INSERT INTO {t} VALUES (4, 'c', 4.5, DATE '2026-01-01', named_struct('a', 1, 'b', 'x'));
INSERT INTO {t} VALUES (5, 'c');
INSERT INTO {t} VALUES ('five', 'c', 4.5, NULL, NULL);
UPDATE {t} SET s.a = 7, x = NULL WHERE part = 'c';
UPDATE {t} SET s = named_struct('a', 2, 'b', upper('y')), part = 'd' WHERE id = 2;
UPDATE {t} SET nothing = 1;
UPDATE {t} SET x = id / 0 WHERE id = 1;
DELETE FROM {t} WHERE x > 1 OR id IS NULL;
DELETE FROM {t} WHERE NOT (part = 'b');
INSERT OVERWRITE {t} SELECT id, part, x, day, s FROM {t} WHERE id IS NOT NULL;
INSERT INTO {t} REPLACE WHERE part = 'b' SELECT 30, 'b', 1, NULL, NULL;
INSERT INTO {t} REPLACE WHERE part = 'b' SELECT 31, 'z', 1, NULL, NULL;
MERGE INTO {t} t USING (SELECT * FROM VALUES (30, 1), (30, 2) AS v(id, y)) s ON t.id = s.id WHEN
    MATCHED THEN UPDATE SET x = s.y;
MERGE INTO {t} t USING (SELECT * FROM VALUES (30, 1), (30, 2) AS v(id, y)) s ON t.id = s.id WHEN
    MATCHED THEN DELETE;
MERGE INTO {t} t USING (SELECT 40L AS id, 'e' AS part) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT
    (part, id) VALUES (s.part, s.id);
MERGE INTO {t} t USING (SELECT 40L AS id, 'e' AS part) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT
    * WHEN MATCHED THEN UPDATE SET *;
MERGE INTO {t} t USING (SELECT 40L AS id, 'f' AS part, NULL AS x, NULL AS day, NULL AS s) s ON t.id
    = s.id WHEN MATCHED AND t.part = 'e' THEN UPDATE SET * WHEN MATCHED THEN DELETE WHEN NOT MATCHED
    THEN INSERT *;
MERGE INTO {t} t USING (SELECT CAST(NULL AS BIGINT) AS id) s ON t.id <=> s.id WHEN NOT MATCHED THEN
    INSERT (id, x) VALUES (s.id, 9) WHEN NOT MATCHED BY SOURCE AND t.part > 'd' THEN UPDATE SET part
    = concat(t.part, '!');
MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT 40L AS id, 'g' AS part, 5 AS more) s ON t.id =
    s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
UPDATE {t} SET more = coalesce(more, 0) + 1;
INSERT INTO {t} BY NAME SELECT 50L AS id, 50 AS more;
TRUNCATE TABLE {t}
"""
"""Each kind of statement once, also such as are refused, one after the other."""
REFUSED: Final = [
    "INSERT INTO {t} VALUES (5, 'c')",
    "INSERT INTO {t} VALUES ('five', 'c', 4.5,",
    "UPDATE {t} SET nothing = 1",
    "UPDATE {t} SET x = id / 0 WHERE id = 1",
    "INSERT INTO {t} REPLACE WHERE part = 'b' ",
    "MERGE INTO {t} t USING (SELECT * FROM VAL",
    "MERGE INTO {t} t USING (SELECT 40L AS id,",
]
"""How those that both refuse begin."""


class Pair:
    """A table of a lake and a table of Delta Spark's, which have the same rows."""

    def __init__(self, own: SparkSession, delta: DeltaSpark, directory: Path, properties: str) -> None:
        self.own, self.delta = own, delta
        self.own_names = {"t": "lake.s.t", "u": "lake.s.u"}
        self.delta_names = {name: f"delta.`{directory}/{name}`" for name in "tu"}
        for name, columns in (("t", COLUMNS), ("u", SOURCE)):
            columns = f"({columns}) USING delta PARTITIONED BY (part)"
            self.run(f"CREATE TABLE {{{name}}} {columns} {properties}")

    def run(self, statement: str) -> bool:
        """Run a statement on both. Whether it was done; then both have done it."""
        is_done = [self._own(statement), self._delta(statement)]
        assert is_done[0] == is_done[1], (statement, is_done)
        return is_done[0]

    def check(self, statement: str) -> None:
        """Both have the same rows."""
        query = "SELECT * FROM {t}"
        rows = [list(row) for row in self.own.sql(query.format(**self.own_names)).collect()]
        other = self.delta.sql(query.format(**self.delta_names))
        assert sorted(map(_text, rows)) == sorted(map(_text, other)), statement

    def check_columns(self) -> None:
        """Both have the same columns."""
        columns = self.own.table(self.own_names["t"]).columns
        described = self.delta.sql("DESCRIBE " + self.delta_names["t"])
        assert columns == [row[0] for row in described[: len(columns)]]

    def _own(self, statement: str) -> bool:
        try:
            self.own.sql(statement.format(**self.own_names)).collect()
        except Exception as problem:
            has_trace = "\tat " in str(problem)
        else:
            return True
        assert not has_trace, statement
        return False

    def _delta(self, statement: str) -> bool:
        try:
            self.delta.sql(statement.format(**self.delta_names))
        except SparkError:
            return False
        return True


def _text(row: list[Any]) -> str:
    return json.dumps(row, default=str)


@pytest.fixture
def own(started_spark: SparkSession, lake: Lake) -> SparkSession:
    """A session of the newest Spark with the lake."""
    return penstock.spark.session(lake)


@pytest.fixture(
    params=["", "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"], ids=["files", "vectors"]
)
def pair(own: SparkSession, spark: DeltaSpark, tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    return Pair(own, spark, tmp_path / "tables", request.param)


def test_every_statement_does_what_delta_spark_does(pair: Pair) -> None:
    refused = []
    for statement in OTHERS.strip().split(";\n"):
        if not pair.run(statement):
            refused.append(statement)
        pair.check(statement)
    assert [statement[:41] for statement in refused] == REFUSED
    pair.check_columns()


class Program:
    """Random statements over two tables."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair, self.random = pair, Random(seed)

    def run(self) -> None:
        ways = [
            self.insert,
            self.insert,
            self.overwrite,
            self.replace,
            self.delete,
            self.update,
            self.merge,
            self.merge,
        ]
        for _ in range(STATEMENTS):
            statement = self.random.choice(ways)()
            self.pair.run(statement)
            self.pair.check(statement)

    def number(self) -> str:
        return self.random.choice([*map(str, range(12)), "NULL"])

    def part(self) -> str:
        return self.random.choice(["'a'", "'b'", "'c'", "NULL"])

    def condition(self, table: str = "") -> str:
        prefix = f"{table}." if table else ""
        column = f"{prefix}{self.random.choice(['id', 'x'])}"
        conditions = [
            f"{column} > {self.number()}",
            f"{column} <=> {self.number()}",
            f"{prefix}part = {self.part()}",
            f"{prefix}part IN ('a', {self.part()})",
            f"{column} IS NULL",
            f"{column} % 3 = 1",
        ]
        one, other = self.random.sample(conditions, 2)
        return self.random.choice([one, f"{one} AND {other}", f"({one} OR {other})", f"NOT ({one})"])

    def insert(self) -> str:
        table = self.random.choice("tu")
        rows = [
            f"({self.number()}, {self.part()}, {self.number()})" for _ in range(self.random.randint(1, 4))
        ]
        return f"INSERT INTO {{{table}}} (id, part, x) VALUES {', '.join(rows)}"

    def overwrite(self) -> str:
        query = f"SELECT id, part, x, NULL, NULL FROM {{u}} WHERE {self.condition()}"
        return f"INSERT OVERWRITE {{t}} SELECT * FROM {{t}} UNION ALL {query}"

    def replace(self) -> str:
        part = self.part()
        return f"INSERT INTO {{t}} REPLACE WHERE part = {part} SELECT {self.number()}, {part}, 1, NULL, NULL"

    def delete(self) -> str:
        return f"DELETE FROM {{{self.random.choice('ttu')}}} WHERE {self.condition()}"

    def update(self) -> str:
        value = self.random.choice(
            ["x = x + 1", "part = concat(part, 'a')", "id = id + 1, x = id", "s.b = part"]
        )
        return f"UPDATE {{t}} SET {value} WHERE {self.condition()}"

    def merge(self) -> str:
        source = "(SELECT id, max(part) AS part, sum(x) AS x FROM {u} GROUP BY id)"
        source = self.random.choice([source, source, "{u}"])
        on = self.random.choice(["t.id = s.id", "t.id <=> s.id", "t.id = s.id AND t.part = s.part"])
        clauses = []
        if self.random.random() < 0.7:
            more = f" AND {self.condition(self.random.choice('ts'))}"
            clauses.append(f"WHEN MATCHED{more} THEN DELETE")
        if self.random.random() < 0.7:
            clauses.append("WHEN MATCHED THEN UPDATE SET x = s.x, part = coalesce(s.part, t.part)")
        if self.random.random() < 0.7:
            clauses.append(
                f"WHEN NOT MATCHED AND {self.condition('s')} THEN INSERT (id, part) VALUES (s.id, s.part)"
            )
        if self.random.random() < 0.4:
            clauses.append(
                f"WHEN NOT MATCHED BY SOURCE AND {self.condition('t')} THEN UPDATE SET x = t.x * 2"
            )
        clauses = clauses or ["WHEN NOT MATCHED BY SOURCE AND t.id > 8 THEN DELETE"]
        return f"MERGE INTO {{t}} t USING {source} s ON {on} {' '.join(clauses)}"


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.verify if seed == 1 else pytest.mark.reliability)
        for seed in range(1, 7)
    ],
)
def test_a_random_program_leaves_the_rows_that_delta_spark_leaves(pair: Pair, seed: int) -> None:
    Program(pair, seed).run()
