"""A real client without Python in its Spark driver: spark-sql."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import penstock
from penstock.spark import attached, jar
from penstock.spark.settings import CATALOG, PROTOCOLS, RELATION_CATALOG, find_catalog_class
from tests.interop.penstock_server import serving
from tests.spark.starting import QUICK_JVM
from tests.transactions.pipelines import ids, rows

pytestmark = pytest.mark.verify

RUN_MAX_S = 180
PROGRAM = Path(__file__).with_name("dying_attached_program.py")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A lake with tables of three formats."""
    with penstock.open(tmp_path / "lake", create=True, author="ann") as lake:
        for kind in ("delta", "parquet", "lance"):
            lake.table(f"s.{kind}").write(rows(1, 2), format=kind)
    return tmp_path / "lake"


@pytest.fixture
def settings(place: Path) -> Iterator[dict[str, str]]:
    """The settings of a Spark that has nothing but the jar and the address of a server, and a token."""
    if (found := jar.find_jar()) is None:
        pytest.skip("there is no jar of Penstock's")
    with penstock.open(place) as lake:
        token = lake.create_token("sql", "write")
    with serving(str(place), for_everybody=False) as server:
        yield {
            "spark.jars": str(found),
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.sql.warehouse.dir": str(place.parent / "warehouse"),
            **PROTOCOLS,
            f"{CATALOG}lake": find_catalog_class(),
            f"{CATALOG}lake.lake": server.uri,
            f"{CATALOG}lake.token": token,
        }


def environment() -> dict[str, str]:
    pyspark = pytest.importorskip("pyspark")
    return {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent), "PYTHONWARNINGS": "ignore"}


def command(settings: dict[str, str]) -> list[str]:
    words = [f"{environment()['SPARK_HOME']}/bin/spark-sql"]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    return [*words, "--conf", "spark.sql.catalogImplementation=in-memory"]


def spark_sql(settings: dict[str, str], script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    file = directory / "script.sql"
    file.write_text(script)
    return subprocess.run(
        [*command(settings), "-f", str(file)],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment(),
        timeout=RUN_MAX_S,
        check=False,
    )


class Terminal:
    """A spark-sql whose statements come one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self._told = process, 0

    def run(self, *statements: str) -> list[list[str]]:
        """Run statements; returns the rows of all of them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._told += 1
        mark = f"told {self._told}"
        for statement in (*statements, f"SELECT '{mark}'"):
            self.process.stdin.write(f"{statement};\n")
        self.process.stdin.flush()
        lines: list[list[str]] = []
        for line in self.process.stdout:
            if line.strip() == mark:
                return lines
            if not line.startswith("spark-sql "):
                lines.append(line.rstrip("\n").split("\t"))
        raise AssertionError("spark-sql ended")

    @property
    def pythons(self) -> list[int]:
        """The processes that it has started to be asked."""
        found = []
        for file in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in file.read_text().split():
                with suppress(FileNotFoundError):  # one that is over already
                    if attached.__name__ in Path(f"/proc/{pid}/cmdline").read_text():
                        found.append(int(pid))
        return found


@contextmanager
def terminal(settings: dict[str, str], directory: Path) -> Iterator[Terminal]:
    errors = directory / "errors.txt"
    with errors.open("w") as told:
        process = subprocess.Popen(
            command(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True,
            cwd=directory, env=environment(),
        )  # fmt: skip
        with process:
            try:
                yield Terminal(process)
            finally:
                process.kill()


def end(pid: int) -> None:
    """Kill a process of somebody else's, and wait until it is gone."""
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for_end(descriptor)


def wait_for_end(descriptor: int) -> None:
    readable, _, _ = select.select([descriptor], [], [], RUN_MAX_S)
    os.close(descriptor)
    assert readable


def test_spark_sql_reads_branches_and_writes(settings: dict[str, str], place: Path, tmp_path: Path) -> None:
    script = """
        SHOW TABLES IN lake.s;
        SELECT 'delta', sum(id) FROM lake.s.delta WHERE id > 0;
        CREATE BRANCH dev IN lake;
        USE REFERENCE dev IN lake;
        INSERT INTO lake.s.parquet SELECT id + 10 FROM lake.s.delta;
        CREATE TABLE lake.s.copy USING parquet AS SELECT * FROM lake.s.parquet;
        SELECT 'dev', sum(id) FROM lake.s.copy;
        SELECT 'main', sum(id) FROM lake.s.`parquet@main`;
        SELECT 'past', sum(id) FROM lake.s.parquet VERSION AS OF 'main';
        MERGE BRANCH dev INTO main IN lake;
        DESCRIBE HISTORY lake.s.delta LIMIT 1;
        SELECT * FROM lake.s.lance;
    """
    ran = spark_sql(settings, script, tmp_path)
    told = [line.split("\t") for line in ran.stdout.splitlines()]
    for expected in (["delta", "3"], ["dev", "26"], ["main", "3"], ["past", "3"]):
        assert expected in told, ran.stdout + ran.stderr[-3000:]
    assert {"delta", "parquet", "lance"} <= {word for line in told for word in line}
    # The last statement fails, and says what to do.
    assert ran.returncode != 0
    assert "use PySpark" in ran.stderr
    assert "\tat " not in ran.stderr, ran.stderr[-3000:]
    with penstock.open(place) as lake:
        assert ids(lake, "s.copy") == ids(lake, "s.parquet") == [1, 2, 11, 12]


@pytest.mark.skipif(find_catalog_class() != RELATION_CATALOG, reason="this Spark lets no catalog have views")
def test_spark_sql_creates_and_reads_views(settings: dict[str, str], place: Path, tmp_path: Path) -> None:
    script = """
        CREATE VIEW lake.s.v COMMENT 'few' AS SELECT id FROM lake.s.delta WHERE id < 20;
        CREATE BRANCH dev IN lake;
        INSERT INTO lake.s.`delta@dev` VALUES (10), (30);
        SELECT 'main', sum(id) FROM lake.s.v;
        SELECT 'dev', sum(id) FROM lake.s.`v@dev`;
        SHOW VIEWS IN lake.s;
        USE REFERENCE dev IN lake;
        ALTER VIEW lake.s.v AS SELECT id * 2 AS id FROM lake.s.delta;
        SELECT 'doubled', sum(id) FROM lake.s.v;
        MERGE BRANCH dev INTO main IN lake;
        DROP VIEW lake.s.v;
        SELECT 'merged', sum(id) FROM lake.s.`v@main`;
        SELECT * FROM lake.s.v;
    """
    ran = spark_sql(settings, script, tmp_path)
    told = [line.split("\t") for line in ran.stdout.splitlines()]
    for expected in (["main", "3"], ["dev", "13"], ["s", "v", "false"], ["doubled", "86"], ["merged", "86"]):
        assert expected in told, ran.stdout + ran.stderr[-3000:]
    assert ran.returncode != 0  # by the last statement
    assert "TABLE_OR_VIEW_NOT_FOUND" in ran.stderr
    assert "\tat " not in ran.stderr, ran.stderr[-3000:]


TABLES = """
CREATE TABLE lake.s.plain (id BIGINT, v BIGINT);
CREATE TABLE lake.s.ruled (id BIGINT, v BIGINT, twice BIGINT GENERATED ALWAYS AS (v * 2))
TBLPROPERTIES ('delta.constraints.small' = 'v < 100', 'delta.columnMapping.mode' = 'name');
CREATE TABLE lake.s.marked (id BIGINT, v BIGINT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')
"""
KINDS = ("plain", "ruled", "marked")
MERGED = """
MERGE INTO lake.s.{kind} t USING (SELECT * FROM VALUES (1, 5), (3, 6), (9, 7) AS v(id, v)) s ON t.id = s.id
WHEN MATCHED AND s.id = 1 THEN DELETE
WHEN MATCHED THEN UPDATE SET v = s.v
WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)
WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN UPDATE SET v = t.v + 1
"""


def test_a_python_that_the_catalog_names_does_what_takes_one(
    settings: dict[str, str], place: Path, tmp_path: Path
) -> None:
    settings[f"{CATALOG}lake.python"] = sys.executable
    errors = tmp_path / "errors.txt"
    with terminal(settings, tmp_path) as sql:
        sql.run(*(statement.replace("\n", " ") for statement in TABLES.strip().split(";\n")))
        (first,) = sql.pythons
        for kind in KINDS:
            sql.run(
                f"INSERT INTO lake.s.{kind} (id, v) VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
                f"UPDATE lake.s.{kind} SET v = v + 10 WHERE id > 2",
                f"DELETE FROM lake.s.{kind} WHERE id = 2",
                MERGED.format(kind=kind).strip().replace("\n", " "),
            )
            found = sql.run(f"SELECT * FROM lake.s.{kind} ORDER BY id")
            wanted = [(3, 6), (4, 15), (9, 7)]
            assert [tuple(map(int, row[:2])) for row in found] == wanted, errors.read_text()[-3000:]
        assert sql.run("SELECT twice FROM lake.s.ruled ORDER BY id") == [["12"], ["30"], ["14"]]
        sql.run("UPDATE lake.s.ruled SET v = 100 WHERE id = 3")
        assert "small" in errors.read_text()
        # Lance tables, columns that statements add, and branches.
        assert sql.run("SELECT sum(id) FROM lake.s.lance") == [["3"]]
        sql.run("INSERT WITH SCHEMA EVOLUTION INTO lake.s.plain BY NAME SELECT 5L AS id, 'e' AS note")
        sql.run("CREATE BRANCH dev IN lake", "DELETE FROM lake.s.`plain@dev` WHERE id > 4")
        assert sql.run("SELECT count(*) FROM lake.s.plain") == [["4"]]
        assert sql.run("SELECT count(*) FROM lake.s.`plain@dev`") == [["2"]]
        # The process is killed between statements of a transaction, and the next statement starts it again.
        sql.run("BEGIN TRANSACTION IN lake", "UPDATE lake.s.plain SET v = 0")
        assert sql.pythons == [first]
        end(first)
        sql.run("DELETE FROM lake.s.marked WHERE id = 3", "COMMIT IN lake")
        (second,) = sql.pythons
        assert second != first
        assert sql.run("SELECT sum(v), count(*) FROM lake.s.plain") == [["0", "4"]]
        assert settings[f"{CATALOG}lake.token"] not in Path(f"/proc/{second}/cmdline").read_text()
        # The driver is killed, which leaves no process.
        descriptor = os.pidfd_open(second)
        sql.process.kill()
        wait_for_end(descriptor)
    with penstock.open(place) as lake:
        assert ids(lake, "s.marked") == [4, 9]
        assert ids(lake, "s.plain") == [3, 4, 5, 9]


def test_a_python_that_dies_in_a_statement_fails_it_by_a_sentence_and_the_next_one_starts_another(
    settings: dict[str, str], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, python, die = PROGRAM, tmp_path / "python", tmp_path / "die"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PENSTOCK_TEST_DIE", str(die))
    settings[f"{CATALOG}lake.python"] = str(python)
    errors, known = tmp_path / "errors.txt", set[int]()
    with terminal(settings, tmp_path) as sql:
        sql.run("BEGIN TRANSACTION IN lake", "UPDATE lake.s.delta SET id = id + 10")
        for moment, found in (("inside", ["11", "12"]), ("after", ["21", "22"])):
            die.write_text(f"update {moment}")
            told = len(errors.read_text())
            known |= set(sql.pythons)
            assert sql.run("UPDATE lake.s.delta SET id = id + 10") == []
            said = errors.read_text()[told:]
            assert "the Python process of this driver ended while it was asked (update)" in said
            assert "SHOW LOG tells" in said
            assert "\tat " not in said, said
            # The session's transaction goes on, with what was done in it.
            assert sql.run("SELECT id FROM lake.s.delta ORDER BY id") == [[one] for one in found]
            assert not known & set(sql.pythons)
        assert sql.run("SELECT id FROM lake.s.`delta@main` ORDER BY id") == [["1"], ["2"]]
        sql.run("COMMIT IN lake")
        # A driver that ends by itself leaves no process either.
        (last,) = sql.pythons
        descriptor = os.pidfd_open(last)
        assert sql.process.stdin is not None
        sql.process.stdin.close()
        assert sql.process.wait(RUN_MAX_S) == 0
        wait_for_end(descriptor)
    with penstock.open(place) as lake:
        assert ids(lake, "s.delta") == [21, 22]


@pytest.mark.parametrize("python", ["/nowhere/python", sys.base_prefix + "/bin/python3"])
def test_a_python_that_does_not_start_is_told_with_its_setting(
    settings: dict[str, str], tmp_path: Path, python: str
) -> None:
    settings[f"{CATALOG}lake.python"] = python
    ran = spark_sql(settings, "SHOW TABLES IN lake.s;", tmp_path)
    assert ran.returncode != 0
    told = [line for line in ran.stderr.splitlines() if "spark.sql.catalog.lake.python" in line]
    assert told, ran.stderr[-3000:]
    assert python in told[-1]
    assert "\tat " not in ran.stderr
