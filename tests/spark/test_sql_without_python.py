"""A real client without Python in its Spark driver: spark-sql."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.spark import jar
from penstock.spark.settings import CATALOG, CATALOG_CLASS, PROTOCOLS
from tests.interop.penstock_server import serving
from tests.spark.starting import QUICK_JVM
from tests.transactions.pipelines import ids, rows

pytestmark = pytest.mark.verify

RUN_MAX_S = 180


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
    if (found := jar.path()) is None:
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
            f"{CATALOG}lake": CATALOG_CLASS,
            f"{CATALOG}lake.lake": server.uri,
            f"{CATALOG}lake.token": token,
        }


def environment() -> dict[str, str]:
    pyspark = pytest.importorskip("pyspark")
    return {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent), "PYTHONWARNINGS": "ignore"}


def spark_sql(settings: dict[str, str], script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    told = environment()
    command = [f"{told['SPARK_HOME']}/bin/spark-sql"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    file = directory / "script.sql"
    file.write_text(script)
    command += ["--conf", "spark.sql.catalogImplementation=in-memory", "-f", str(file)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env=told, timeout=RUN_MAX_S, check=False
    )


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
