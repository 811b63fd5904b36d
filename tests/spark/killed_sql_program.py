"""Runs statements of SQL over a lake, and is killed at a call of the catalog: see ``test_sql_kills``.

    python killed_sql_program.py LAKE DIRECTORY STEP NUMBER (before | inside | after)

Dies at the call of that number for a step: before it is answered, when its files are written and nothing is
committed, or when the answer is made. Prints each statement that came to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final

import penstock
from penstock.formats.delta.lake.calls import CommitTables, CreateTable
from penstock.spark.catalog import answers
from penstock.spark.sessions import session

STATEMENTS: Final = (
    "CREATE TABLE lake.s.made AS SELECT id FROM lake.s.t",
    "INSERT INTO lake.s.t VALUES (2)",
    "INSERT WITH SCHEMA EVOLUTION INTO lake.s.t BY NAME SELECT 3 AS id, 'c' AS name",
    "UPDATE lake.s.t SET id = 20 WHERE id = 2",
    "DELETE FROM lake.s.t WHERE id = 1",
    (
        "MERGE WITH SCHEMA EVOLUTION INTO lake.s.t t "
        "USING (SELECT 3 AS id, 7 AS part UNION ALL SELECT 4, 8) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
    "BEGIN TRANSACTION IN lake",
    "INSERT INTO lake.s.t (id) VALUES (5)",
    "INSERT INTO lake.s.made VALUES (6)",
    "COMMIT IN lake",
    "ALTER TABLE lake.s.made ADD COLUMNS (more STRING)",
    "TRUNCATE TABLE lake.s.made",
    "DROP TABLE lake.s.made",
    "CREATE VIEW lake.s.seen AS SELECT id FROM lake.s.t",
    "ALTER VIEW lake.s.seen AS SELECT id + 1 AS id FROM lake.s.t",
    "DROP VIEW lake.s.seen",
)


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, directory: str, step: str, number: str, moment: str) -> None:
    lake = penstock.open(url)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = {
        "spark.ui.enabled": False,
        "spark.driver.extraJavaOptions": quick,
        "spark.sql.shuffle.partitions": 1,
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
    spark = session(lake, master="local[1]", conf=conf)
    left = int(number)
    answer_question, do = answers.answer_question, lake.do

    def die_at_commit(call: Any, *others: Any) -> Any:
        if isinstance(call, CommitTables | CreateTable):
            die()
        return do(call, *others)

    def answer_or_die(session: Any, lake: Any, asked: str, *others: Any) -> Any:
        nonlocal left
        left -= asked == step
        is_last = asked == step and left < 0
        if is_last and moment == "before":
            die()
        if is_last and moment == "inside":
            lake.do = die_at_commit
        answer = answer_question(session, lake, asked, *others)
        if is_last:
            die()
        return answer

    answers.answer_question = answer_or_die  # type: ignore[assignment]
    for statement in STATEMENTS:
        spark.sql(statement).collect()
        print(statement, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
