"""After every statement and every failure: outside of a transaction none is open, inside of one only that is.

Spark begins transactions of its own for some plans and never ends them. What a statement does is one commit
here, whatever Spark makes of it, and a statement that fails leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from penstock.lake.lake import Lake
from tests.spark.sql_session import run
from tests.transactions.pipelines import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Kind(NamedTuple):
    """A kind of statement, with a place for a value that is wrong in one way or another."""

    text: str
    commits: int = 1
    """How many it makes if it succeeds."""


VALUES: Final = {
    "good": "id + 10",
    "unknown": "absent + 10",
    "broken": "if(id > 0, raise_error('broken'), id)",
}
"""What is selected: rows, a column that Spark does not know, a value that fails while rows are written."""
WRITES: Final = {
    "insert": Kind("INSERT INTO lake.s.t SELECT {} FROM lake.s.t"),
    "overwrite": Kind("INSERT OVERWRITE lake.s.t SELECT {} FROM lake.s.t"),
    "replace": Kind("INSERT INTO lake.s.t REPLACE WHERE id > 0 SELECT {} FROM lake.s.t"),
    "widen": Kind("INSERT WITH SCHEMA EVOLUTION INTO lake.s.t BY NAME SELECT {} AS id, 1 AS x FROM lake.s.t"),
    "create": Kind("CREATE TABLE lake.s.new AS SELECT {} AS id FROM lake.s.t"),
    "files": Kind("CREATE TABLE lake.s.files USING parquet AS SELECT {} AS id FROM lake.s.t"),
    "recreate": Kind("CREATE OR REPLACE TABLE lake.s.u AS SELECT {} AS id FROM lake.s.t"),
    "delete": Kind("DELETE FROM lake.s.t WHERE {} > 11"),
    "update": Kind("UPDATE lake.s.t SET id = {}"),
    "merge": Kind(
        "MERGE INTO lake.s.t t USING (SELECT {} AS id FROM lake.s.u) s ON t.id = s.id"
        " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    ),
    "select": Kind("SELECT {} FROM lake.s.t", 0),
    "explain": Kind("EXPLAIN INSERT INTO lake.s.t SELECT {} FROM lake.s.t", 0),
}
OTHERS: Final = {
    "CREATE TABLE lake.s.made (id BIGINT)": "CREATE TABLE lake.s.t (id BIGINT)",
    "CREATE OR REPLACE TABLE lake.s.v (id BIGINT, x INT)": "CREATE OR REPLACE TABLE lake.s.v (id CHAR(3))",
    "REPLACE TABLE lake.s.v (y INT) USING parquet": "REPLACE TABLE lake.s.absent (id BIGINT)",
    "ALTER TABLE lake.s.u ADD COLUMN x INT": "ALTER TABLE lake.s.u ADD COLUMN id INT",
    "ALTER TABLE lake.s.made RENAME TO s.gone": "ALTER TABLE lake.s.made RENAME TO s.t",
    "TRUNCATE TABLE lake.s.u": "TRUNCATE TABLE lake.s.absent",
    "DROP TABLE lake.s.gone": "DROP TABLE lake.s.absent",
    "CREATE NAMESPACE lake.n": "CREATE NAMESPACE lake.m",
    "DROP NAMESPACE lake.n": "DROP NAMESPACE lake.s",
}
"""Statements without rows, each with one of its kind that is refused."""
FRESH: Final = "CREATE OR REPLACE TABLE lake.s.t AS SELECT id FROM range(1, 3)"
IN_SHORT: Final = ("insert", "create", "recreate", "merge")
"""Of which `make test` tries these: Spark's own transactions begin with them."""


@pytest.fixture
def tables(lake: Lake) -> Lake:
    lake.table("s.t").write(rows(1, 2))
    lake.table("s.u").write(rows(1, 3))
    lake.table("s.v").write(rows(1))
    lake.branch().create_namespace("m")
    return lake


def fail(spark: SparkSession, statement: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, it leaves nothing
        run(spark, statement)
    assert "\tat " not in str(caught.value), statement


def is_possible(kind: str, value: str) -> bool:
    return kind != "explain" or value == "good"  # it is not run, and says what is wrong with it


def try_writes(lake: Lake, spark: SparkSession, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        statement = WRITES[kind]
        run(spark, FRESH)
        for value in ("unknown", "broken", "good"):
            if not is_possible(kind, value):
                continue
            before = len(lake.log(limit=None))
            text = statement.text.format(VALUES[value])
            if value == "good":
                run(spark, text)
            else:
                fail(spark, text)
            assert lake.transactions() == [], text
            expected = statement.commits if value == "good" else 0
            assert len(lake.log(limit=None)) == before + expected, text


def test_a_statement_is_one_commit_or_nothing_and_leaves_no_transaction(
    tables: Lake, spark: SparkSession
) -> None:
    try_writes(tables, spark, IN_SHORT)


@pytest.mark.verify
def test_so_is_every_other(tables: Lake, spark: SparkSession) -> None:
    try_writes(tables, spark, tuple(kind for kind in WRITES if kind not in IN_SHORT))
    for statement, refused in OTHERS.items():
        before = len(tables.log(limit=None))
        fail(spark, refused)
        assert tables.transactions() == [], refused
        assert len(tables.log(limit=None)) == before, refused
        run(spark, statement)
        assert tables.transactions() == [], statement
        assert len(tables.log(limit=None)) == before + 1, statement
    writers: tuple[Callable[[], object], ...] = (
        lambda: spark.sql("SELECT 1L AS id").writeTo("lake.s.t").append(),
        lambda: spark.sql("SELECT 1L AS id").write.mode("append").saveAsTable("lake.s.t"),
        lambda: spark.sql("SELECT 1L AS id").write.insertInto("lake.s.t", overwrite=True),
        lambda: spark.sql("SELECT 1L AS id").writeTo("lake.s.u").createOrReplace(),
    )
    for writer in writers:
        before = len(tables.log(limit=None))
        writer()
        assert tables.transactions() == []
        assert len(tables.log(limit=None)) == before + 1


def try_inside(lake: Lake, spark: SparkSession, kinds: tuple[str, ...]) -> None:
    head = lake.branch().head
    run(spark, "BEGIN TRANSACTION IN lake")
    (begun,) = lake.transactions()
    for kind in kinds:
        run(spark, FRESH)
        for value in ("unknown", "broken", "good"):
            if not is_possible(kind, value):
                continue
            before = lake.resolve(begun.branch)
            text = WRITES[kind].text.format(VALUES[value])
            if value == "good":
                run(spark, text)
            else:
                fail(spark, text)
            assert [one.id for one in lake.transactions()] == [begun.id], text
            is_changed = value == "good" and WRITES[kind].commits > 0
            assert bool(lake.diff(before, begun.branch)) == is_changed, text
    fail(spark, "BEGIN TRANSACTION IN lake")
    assert [one.id for one in lake.transactions()] == [begun.id]
    assert lake.branch().head == head


def test_a_statement_that_fails_in_a_transaction_leaves_it_as_it_was(
    tables: Lake, spark: SparkSession
) -> None:
    before = len(tables.log(limit=None))
    try_inside(tables, spark, IN_SHORT)
    run(spark, "COMMIT IN lake")
    assert tables.transactions() == []
    assert len(tables.log(limit=None)) == before + 1
    assert tables.table("s.new").exists


@pytest.mark.verify
def test_so_does_every_other_and_a_rollback_undoes_all(tables: Lake, spark: SparkSession) -> None:
    head = tables.branch().head
    try_inside(tables, spark, tuple(kind for kind in WRITES if kind not in IN_SHORT))
    for statement, refused in OTHERS.items():
        (begun,) = tables.transactions()
        before = tables.resolve(begun.branch)
        fail(spark, refused)
        assert not tables.diff(before, begun.branch), refused
        run(spark, statement)
        assert tables.diff(before, begun.branch), statement
    run(spark, "ROLLBACK IN lake")
    assert tables.transactions() == []
    assert tables.branch().head == head
