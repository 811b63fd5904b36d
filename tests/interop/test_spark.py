"""Spark writes Iceberg tables through its Nessie catalogue, with Penstock as the server behind it."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import installed
from tests.interop.forwarder import Forwarder
from tests.interop.rest import Nessie
from tests.servers.process import Missing

PROGRAM = Path(__file__).parent / "spark" / "program.py"
STOPPING_MAX_S = 30.0


class SparkError(Exception):
    """Spark refused a statement."""


class Spark:
    """A running Spark, which carries out one statement after the other."""

    def __init__(self, uri: str, directory: Path) -> None:
        java = installed.java()
        python = installed.python_environment("spark") / "python"
        (jar,) = installed.java_libraries("jars").glob("*.jar")
        self.uri = uri
        self.directory = directory
        self.log = (directory / "log").open("w")
        self.process = subprocess.Popen(
            [python, PROGRAM, jar],
            env={
                "PATH": f"{java.parent}:/usr/bin:/bin",
                "LC_ALL": "C.UTF-8",
                "TZ": "UTC",
                "HOME": str(directory),
            },
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def sql(self, statement: str) -> list[list[Any]]:
        """The rows of a statement; ``SparkError`` if Spark refuses it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(statement) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"Spark ended: {(self.directory / 'log').read_text()[-3000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise SparkError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def catalogue(self, name: str, reference: str, options: dict[str, str] | None = None) -> str:
        """Name a catalogue over a reference of the server. Spark loads it at its first use."""
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "nessie",
            ".uri": f"{self.uri}/api/v2",
            ".ref": reference,
            ".warehouse": (self.directory / "warehouse").as_uri(),
            ".cache-enabled": "false",
            **(options or {}),
        }
        for setting, value in settings.items():
            self.sql(f"SET `spark.sql.catalog.{name}{setting}`=`{value}`")
        return name

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(STOPPING_MAX_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.log.close()


@pytest.fixture(scope="module")
def spark(nessie_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    try:
        started = Spark(nessie_uri, tmp_path_factory.mktemp("spark"))
    except Missing as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()


@pytest.fixture
def main(spark: Spark, trunk: str) -> str:
    """A catalogue over the test's own trunk, which plays the part of main."""
    return spark.catalogue(f"main_{trunk[-12:]}", trunk)


def test_a_table_written_on_a_branch_is_on_main_after_the_merge(
    spark: Spark, nessie: Nessie, trunk: str, main: str
) -> None:
    spark.sql(f"CREATE NAMESPACE {main}.stock")
    nessie.create_branch(f"{trunk}-dev", trunk)
    dev = spark.catalogue(f"{main}_dev", f"{trunk}-dev")
    spark.sql(f"CREATE NAMESPACE {dev}.sales")
    spark.sql(f"CREATE TABLE {dev}.sales.orders (id BIGINT, item STRING) USING iceberg")
    spark.sql(f"INSERT INTO {dev}.sales.orders VALUES (1, 'bolt'), (2, 'nut')")
    assert spark.sql(f"SELECT * FROM {dev}.sales.orders ORDER BY id") == [[1, "bolt"], [2, "nut"]]

    assert spark.sql(f"SHOW NAMESPACES IN {main}") == [["stock"]]
    with pytest.raises(SparkError, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {main}.sales.orders")

    nessie.merge(f"{trunk}-dev", trunk)
    assert sorted(spark.sql(f"SHOW NAMESPACES IN {main}")) == [["sales"], ["stock"]]
    assert [row[:2] for row in spark.sql(f"SHOW TABLES IN {main}.sales")] == [["sales", "orders"]]
    assert spark.sql(f"SELECT * FROM {main}.sales.orders ORDER BY id") == [[1, "bolt"], [2, "nut"]]


def test_the_past_is_read_by_its_hash(spark: Spark, nessie: Nessie, trunk: str, main: str) -> None:
    spark.sql(f"CREATE NAMESPACE {main}.sales")
    spark.sql(f"CREATE TABLE {main}.sales.orders (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {main}.sales.orders VALUES (1)")
    past = nessie.head(trunk)
    spark.sql(f"INSERT INTO {main}.sales.orders VALUES (2)")

    assert spark.sql(f"SELECT * FROM {main}.sales.orders ORDER BY id") == [[1], [2]]
    assert spark.sql(f"SELECT * FROM {main}.sales.`orders@{trunk}#{past}`") == [[1]]
    then = spark.catalogue(f"{main}_then", trunk, {".ref.hash": past})
    assert spark.sql(f"SELECT * FROM {then}.sales.orders") == [[1]]


def test_tables_are_altered_renamed_and_dropped(spark: Spark, main: str) -> None:
    spark.sql(f"CREATE NAMESPACE {main}.sales")
    spark.sql(f"ALTER NAMESPACE {main}.sales SET PROPERTIES ('team' = 'anna')")
    assert "anna" in str(spark.sql(f"DESCRIBE NAMESPACE EXTENDED {main}.sales"))
    spark.sql(f"CREATE TABLE {main}.sales.orders (id BIGINT) USING iceberg")
    spark.sql(f"ALTER TABLE {main}.sales.orders ADD COLUMN item STRING")
    spark.sql(f"INSERT INTO {main}.sales.orders VALUES (1, 'bolt'), (2, 'nut')")
    spark.sql(f"DELETE FROM {main}.sales.orders WHERE id = 1")
    spark.sql(f"ALTER TABLE {main}.sales.orders RENAME TO {main}.sales.bought")
    assert spark.sql(f"SELECT * FROM {main}.sales.bought") == [[2, "nut"]]
    spark.sql(f"CREATE VIEW {main}.sales.names AS SELECT item FROM {main}.sales.bought")
    assert spark.sql(f"SELECT * FROM {main}.sales.names") == [["nut"]]

    with pytest.raises(SparkError, match="NamespaceNotEmpty"):
        spark.sql(f"DROP NAMESPACE {main}.sales")
    spark.sql(f"DROP VIEW {main}.sales.names")
    spark.sql(f"DROP TABLE {main}.sales.bought")
    spark.sql(f"DROP NAMESPACE {main}.sales")
    assert spark.sql(f"SHOW NAMESPACES IN {main}") == []


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_namespace_keeps_its_properties_when_others_are_set_and_removed(
    spark: Spark, nessie: Nessie, trunk: str, version: str
) -> None:
    """The catalogue reads a namespace, changes its properties and puts it back."""
    lake = spark.catalogue(f"{version}_{trunk[-12:]}", trunk, {".uri": f"{spark.uri}/api/{version}"})
    spark.sql(f"CREATE NAMESPACE {lake}.sales WITH PROPERTIES ('first' = '1')")
    content = nessie.get(f"trees/{trunk}/contents/sales")["content"]
    content["properties"]["by_another"] = "2"
    nessie.put(trunk, "sales", content, "by another client")

    spark.sql(f"ALTER NAMESPACE {lake}.sales SET PROPERTIES ('third' = '3')")
    spark.sql(f"ALTER NAMESPACE {lake}.sales SET PROPERTIES ('fourth' = '4', 'first' = 'changed')")
    spark.sql(f"ALTER NAMESPACE {lake}.sales UNSET PROPERTIES ('third')")

    kept = nessie.get(f"trees/{trunk}/contents/sales")["content"]["properties"]
    kept = {name: kept[name] for name in kept if name != "owner"}  # which Spark sets
    assert kept == {"first": "changed", "by_another": "2", "fourth": "4"}
    location = f"{(spark.directory / 'elsewhere').as_uri()}/{version}"
    spark.sql(f"ALTER NAMESPACE {lake}.sales SET LOCATION '{location}'")
    spark.sql(f"CREATE TABLE {lake}.sales.orders (id BIGINT) USING iceberg")
    table = nessie.get(f"trees/{trunk}/contents/sales.orders")["content"]
    assert f"/elsewhere/{version}/orders" in table["metadataLocation"]


def test_a_commit_that_meets_another_one_is_refused_and_made_again(
    spark: Spark, nessie: Nessie, trunk: str, main: str
) -> None:
    spark.sql(f"CREATE NAMESPACE {main}.sales")
    spark.sql(f"CREATE TABLE {main}.sales.orders (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {main}.sales.orders VALUES (1)")
    with_one_row = nessie.get(f"trees/{trunk}/contents/sales.orders")["content"]
    spark.sql(f"INSERT INTO {main}.sales.orders VALUES (2)")

    with Forwarder(spark.uri) as forwarder:
        met = spark.catalogue(f"{main}_met", trunk, {".uri": f"{forwarder.uri}/api/v2"})
        assert spark.sql(f"SELECT * FROM {met}.sales.orders ORDER BY id") == [[1], [2]]
        # While Spark's commit is under way, somebody takes the second row back.
        forwarder.meet("/history/commit", lambda: nessie.put(trunk, "sales.orders", with_one_row, "undo"))
        spark.sql(f"INSERT INTO {met}.sales.orders VALUES (3)")

    assert forwarder.statuses == [409, 200]
    assert spark.sql(f"SELECT * FROM {main}.sales.orders ORDER BY id") == [[1], [3]]
