"""Statements of SQL over a lake, for the oldest and the newest Spark: what each gives.

    python sql_program.py LAKE DIRECTORY

Prints one line of JSON: the version of Spark, and the rows of each statement, or the class of its error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import penstock
import penstock.spark
from penstock.spark.spark_errors import unwrap

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": 1,
}
FEED = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
STATEMENTS = (
    # Tables and names.
    "CREATE NAMESPACE lake.s COMMENT 'sales'",
    f"CREATE TABLE lake.s.t (id BIGINT, name STRING, day DATE) PARTITIONED BY (day) {FEED} COMMENT 'orders'",
    "CREATE TABLE lake.s.f (id BIGINT) USING parquet",
    "CREATE TABLE lake.s.t (id BIGINT)",
    "SHOW TABLES IN lake.s",
    "SHOW NAMESPACES IN lake",
    "DESCRIBE lake.s.t",
    "ALTER TABLE lake.s.t ADD COLUMNS (note STRING COMMENT 'n')",
    "ALTER TABLE lake.s.t SET TBLPROPERTIES ('owner.team' = 'blue')",
    "ALTER TABLE lake.s.t ALTER COLUMN id TYPE STRING",
    "SHOW COLUMNS IN lake.s.t",
    # Rows.
    "INSERT INTO lake.s.t VALUES (1, 'a', DATE '2026-01-01', 'x'), (2, 'b', DATE '2026-01-02', NULL)",
    "INSERT INTO lake.s.t BY NAME SELECT DATE '2026-01-03' AS day, 3 AS id",
    "INSERT INTO lake.s.t (id, day) VALUES (4, DATE '2026-01-03')",
    "INSERT OVERWRITE lake.s.t PARTITION (day = DATE '2026-01-02') SELECT 5, 'e', 'z'",
    "INSERT INTO lake.s.t REPLACE WHERE day = DATE '2026-01-01' SELECT 6, 'f', DATE '2026-01-01', 'y'",
    "SELECT id, name, note FROM lake.s.t WHERE day >= DATE '2026-01-01' ORDER BY id",
    "UPDATE lake.s.t SET name = upper(name), note = concat(note, '!') WHERE id IN (SELECT 5)",
    "DELETE FROM lake.s.t WHERE id = 4",
    "DELETE FROM lake.s.t WHERE EXISTS (SELECT 1 FROM lake.s.f WHERE f.id = t.id)",
    (
        "MERGE INTO lake.s.t t USING (SELECT 3L AS id, 'c' AS name UNION ALL SELECT 7L, 'g') s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = s.name"
        " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
        " WHEN NOT MATCHED BY SOURCE AND t.id = 6 THEN DELETE"
    ),
    "SELECT id, name, day, note FROM lake.s.t ORDER BY id",
    # Columns that statements add.
    "INSERT WITH SCHEMA EVOLUTION INTO lake.s.t BY NAME SELECT 8 AS id, 1.5D AS price",
    (
        "INSERT WITH SCHEMA EVOLUTION OVERWRITE lake.s.t PARTITION (day = DATE '2026-01-02')"
        " SELECT 9, 'i', 'z', 2, true AS paid"
    ),
    (
        "MERGE WITH SCHEMA EVOLUTION INTO lake.s.t t USING (SELECT 8 AS id, 3 AS amount) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
    "INSERT WITH SCHEMA EVOLUTION INTO lake.s.t BY NAME SELECT 8 AS id, NULL AS nothing",
    "INSERT WITH SCHEMA EVOLUTION INTO lake.s.f BY NAME SELECT 8 AS id, 1 AS more",
    "SELECT * FROM lake.s.t ORDER BY id",
    # Versions, branches, changes.
    "SELECT count(*) FROM lake.s.t VERSION AS OF 2",
    "SELECT id, _change_type, _commit_version FROM table_changes('lake.s.t', 2, 8) ORDER BY 3, 1, 2",
    "SELECT * FROM table_changes('lake.s.f', 0)",
    "CREATE BRANCH dev IN lake",
    "USE REFERENCE dev IN lake",
    "DELETE FROM lake.s.t WHERE id < 8",
    "SELECT count(*) FROM lake.s.t",
    "SELECT count(*) FROM lake.s.`t@main`",
    "SELECT count(*) FROM lake.s.t VERSION AS OF 'main'",
    "USE REFERENCE main IN lake",
    "MERGE BRANCH dev INTO main IN lake",
    "SELECT count(*) FROM lake.s.t",
    "SHOW CONFLICTS dev INTO main IN lake",
    "USE REFERENCE nobody IN lake",
    # Transactions.
    "BEGIN TRANSACTION IN lake",
    "INSERT INTO lake.s.f VALUES (1)",
    "INSERT INTO lake.s.t (id) VALUES (10)",
    "MERGE INTO lake.s.t USING (SELECT 1 AS id UNION ALL SELECT 1) s ON true WHEN MATCHED THEN DELETE",
    "SELECT count(*) FROM lake.s.`f@main`",
    "ROLLBACK IN lake",
    "SELECT count(*) FROM lake.s.f",
    "BEGIN TRANSACTION IN lake",
    "CREATE TABLE lake.s.c AS SELECT id FROM lake.s.t",
    "INSERT INTO lake.s.f SELECT id FROM lake.s.c",
    "UPDATE lake.s.t SET id = 'no number'",
    "COMMIT IN lake",
    "SELECT (SELECT count(*) FROM lake.s.c), (SELECT count(*) FROM lake.s.f)",
    "COMMIT IN lake",
    # And the rest.
    "CREATE OR REPLACE TABLE lake.s.c AS SELECT 1 AS one",
    "SELECT * FROM lake.s.c",
    "TRUNCATE TABLE lake.s.t",
    "SELECT count(*) FROM lake.s.t",
    "USE lake.s",
    "DESCRIBE HISTORY absent",
    "SELECT count(*) FROM t",
    "USE spark_catalog.default",
    "CALL lake.system.restore('s.t', version => 3)",
    "SELECT id FROM lake.s.t ORDER BY id",
    "ALTER TABLE lake.s.c RENAME TO s.d",
    "DROP TABLE lake.s.d",
    "SELECT * FROM lake.s.d",
    "DROP NAMESPACE lake.s",
    # Columns that give themselves values, and what a lake does not have.
    (
        "CREATE TABLE lake.v.t (id BIGINT GENERATED ALWAYS AS IDENTITY, x INT DEFAULT 3,"
        " y BIGINT GENERATED ALWAYS AS (CAST(x AS BIGINT) * 2))"
    ),
    "INSERT INTO lake.v.t (x) VALUES (1), (5)",
    "INSERT INTO lake.v.t (y) SELECT 6",
    "UPDATE lake.v.t SET x = DEFAULT WHERE x = 1",
    "SELECT x, y FROM lake.v.t ORDER BY x",
    "CREATE VIEW lake.v.w AS SELECT 1 AS one",
    "SHOW VIEWS IN lake.v",
    "DROP VIEW IF EXISTS lake.v.w",
    "CREATE TABLE lake.v.c (c STRING COLLATE UNICODE_CI)",
    "CREATE OR REPLACE TABLE lake.v.t (a CHAR(3))",
    "CREATE OR REPLACE TABLE lake.v.t (a INT)",
    "DESCRIBE lake.v.t",
    "SELECT absent(1)",
)
UNTOLD = (
    "CALL lake.system.restore",
    "CREATE BRANCH",
    "MERGE BRANCH",
    "USE REFERENCE",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
)
"""What answers with ids of commits."""


def main(address: str, directory: str) -> None:
    # Whatever else is printed, by the Java machine too, goes to the errors.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with penstock.open(address, create=True) as lake:
        settings = {**SETTINGS, "spark.sql.warehouse.dir": f"{directory}/warehouse"}
        spark = penstock.spark.session(lake, master="local[2]", conf=settings)
        try:
            found = [[statement, result(spark, statement)] for statement in STATEMENTS]
            print(json.dumps([spark.version, found]), file=answers, flush=True)
        finally:
            spark.stop()


def result(spark: Any, statement: str) -> Any:
    """The rows of a statement as text, or what it was refused with."""
    try:
        rows = [str(tuple(row)) for row in spark.sql(statement).collect()]
    except Exception as problem:
        found = unwrap(problem)
        has_trace = "\tat " in str(problem) or "Traceback" in str(problem)
        return f"{type(problem if found is None else found).__name__}{' with a trace' * has_trace}"
    return [] if statement.startswith(UNTOLD) else rows


if __name__ == "__main__":
    main(*sys.argv[1:])
